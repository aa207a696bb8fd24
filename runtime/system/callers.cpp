#include "runtime/system/callers.hpp"

#include "messages/archive_sized.hpp"

#include <algorithm>

namespace troupe {
namespace {

using Kind = CopyWord::Kind;

/// What a driver tells of a machine in its name.
bool is_of_driver(const Message& message) {
  const auto* down = get_if<Down>(&message);
  return down && down->id == message.from;
}

}  // namespace

// -- Caller ----------------------------------------------------------------------------------------

Caller::Caller(std::vector<Copies> all, std::unique_ptr<Machine> machine)
    : all_(std::move(all)), machine_(std::move(machine)), heard_(all_.size()) {
  for (std::size_t i = 0; i < all_.size(); ++i) {
    firsts_[all_[i].seats.front().self] = i;
    for (std::uint32_t copy = 0; copy < all_[i].seats.size(); ++copy) {
      places_[all_[i].seats[copy].self] = {i, copy};
    }
  }
}

void Caller::tell(const Copies& copies, const CopyWord& word, Effects& fx) {
  for (const Copies::Seat& seat : copies.seats) {
    fx.pass_on(seat.self, word, false);
  }
}

void Caller::on(Message message, double now, Effects& fx) {
  const auto place = places_.find(message.from);
  if (place == places_.end() || is_of_driver(message)) {
    return pass_on(std::move(message), now, fx);
  }
  const auto [machine, copy] = place->second;
  if (is_news(message, machine, copy)) {
    // Before the machine may refuse it.
    tell(all_[machine], {.kind = Kind::heard, .input = heard_[machine].names.back()}, fx);
    pass_on(std::move(message), now, fx);
  }
}

/// Whether `machine` says what it has not said before.
bool Caller::is_news(const Message& message, std::size_t machine, std::uint32_t copy) {
  Heard& heard = heard_[machine];
  if (copy < heard.speaker) {
    return false;
  }
  heard.speaker = copy;
  if (const auto* word = get_if<CopyWord>(&message)) {
    const std::uint64_t unknown = heard.count - std::min(heard.count, word->number);
    const std::uint64_t last = std::min<std::uint64_t>(unknown, heard.names.size());
    heard.known.assign(heard.names.end() - static_cast<std::ptrdiff_t>(last), heard.names.end());
    return false;
  }
  const InputName name = name_of(message);
  const auto known =
      std::ranges::find_if(heard.known, [&name](const auto& one) { return same_words(one, name); });
  if (known != heard.known.end()) {
    heard.known.erase(known);
    return false;
  }
  ++heard.count;
  heard.names.push_back(name);
  if (heard.names.size() > kNamesMax) {
    heard.names.pop_front();
  }
  return true;
}

void Caller::pass_on(Message message, double now, Effects& fx) {
  TROUPE_BELIEVE(
      understands(machine_->role(), message), "it does not understand ", message_name(message));
  const std::size_t before = fx.sends.size();
  machine_->on(std::move(message), now, fx);
  const std::size_t made = fx.sends.size();
  for (std::size_t i = before; i < made; ++i) {
    const auto first = firsts_.find(fx.sends[i].to);
    if (first == firsts_.end()) {
      continue;
    }
    const std::vector<Copies::Seat>& seats = all_[first->second].seats;
    for (std::size_t copy = 1; copy < seats.size(); ++copy) {
      fx.pass_on(seats[copy].self, fx.sends[i].message, fx.sends[i].modelled);
    }
  }
}

void Caller::archive(Archive& a) {
  machine_->archive(a);
  archive_sized(a, heard_);
}

// -- Census ----------------------------------------------------------------------------------------

Census::Census(std::vector<Copies> copies, std::unique_ptr<Machine> machine)
    : Caller(std::move(copies), std::move(machine)) {
  for (const Copies& one : all()) {
    alive_.emplace_back(one.seats.size(), true);
  }
}

void Census::on(Message message, double now, Effects& fx) {
  const auto* down = get_if<Down>(&message);
  if (!down || down->id == kOutside) {
    return Caller::on(std::move(message), now, fx);
  }
  if (survives(*down, fx)) {
    return;
  }
  for (const Copies& one : all()) {
    tell(one, {.kind = Kind::lost, .input = {.from = down->id}}, fx);
  }
  pass_on(std::move(message), now, fx);
}

/// Whether what is lost is a copy of a machine of which another one is left.
bool Census::survives(const Down& m, Effects& fx) {
  for (std::size_t i = 0; i < alive_.size(); ++i) {
    const Copies& of = all()[i];
    const auto seat = std::ranges::find_if(
        of.seats, [&m](const auto& one) { return one.self == m.id || one.aide == m.id; });
    if (seat == of.seats.end()) {
      continue;
    }
    std::vector<bool>& alive = alive_[i];
    const auto copy = seat - of.seats.begin();
    if (!alive[static_cast<std::size_t>(copy)]) {
      return true;  // it goes with the other of its two machines
    }
    alive[static_cast<std::size_t>(copy)] = false;
    const auto left = std::count(alive.begin(), alive.end(), true);
    if (left == 0) {
      return false;
    }
    fx.record(LossOfCopy{.chunk = of.chunk,
                         .slice = of.slice,
                         .copy = static_cast<std::int32_t>(copy),
                         .left = static_cast<std::int32_t>(left),
                         .cause = m.actor + ": " + m.cause});
    tell(of, {.kind = Kind::left, .number = ++change_, .alive = alive}, fx);
    return true;
  }
  return false;
}

void Census::archive(Archive& a) {
  Caller::archive(a);
  for (std::vector<bool>& of : alive_) {
    archive_sized(a, of);
  }
  a(change_);
}

// --------------------------------------------------------------------------------------------------

void join_copies(Cast& cast, const std::vector<Copies>& all, const std::vector<ActorId>& callers) {
  if (all.empty()) {
    return;
  }
  for (Copies of : all) {
    of.census = cast.director.id;
    for (std::size_t copy = 0; copy < of.seats.size(); ++copy) {
      std::unique_ptr<Machine>& machine = cast.members[of.seats[copy].self].machine;
      machine = std::make_unique<Copied>(of, copy, std::move(machine));
      if (copy > 0) {
        cast.copies[of.seats.front().self].push_back(of.seats[copy].self);
      }
    }
  }
  for (const ActorId id : callers) {
    std::unique_ptr<Machine>& machine = cast.members[id].machine;
    machine = std::make_unique<Caller>(all, std::move(machine));
  }
  std::unique_ptr<Machine>& director = cast.members[cast.director.id].machine;
  director = std::make_unique<Census>(all, std::move(director));
}

}  // namespace troupe
