#include "runtime/system/callers.hpp"

#include "messages/archive_sized.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace troupe {
namespace {

using Kind = CopyWord::Kind;

/// What a driver tells of a machine in its name.
bool is_of_driver(const Message& message) {
  const auto* down = get_if<Down>(&message);
  return down && down->id == message.from;
}

/// To each machine of all copies.
void tell(const Copies& copies, const CopyWord& word, Effects& fx) {
  for (const std::vector<ActorId>& seat : copies.seats) {
    for (const ActorId id : seat) {
      fx.pass_on(id, word, false);
    }
  }
}

}  // namespace

// -- Caller ----------------------------------------------------------------------------------------

Caller::Caller(const std::vector<Copies>& all, std::unique_ptr<Machine> machine)
    : hearing_(all), machine_(std::move(machine)) {}

void Caller::on(Message message, double now, Effects& fx) {
  if (is_of_driver(message) || hearing_.takes(message, fx)) {
    pass_on(std::move(message), now, fx);
  }
}

void Caller::pass_on(Message message, double now, Effects& fx) {
  TROUPE_BELIEVE(
      understands(machine_->role(), message), "it does not understand ", message_name(message));
  const ActorId from = message.from;
  const auto before = std::ssize(fx.sends);
  const auto runs = std::ssize(fx.runs);
  const auto records = std::ssize(fx.records);
  try {
    machine_->on(std::move(message), now, fx);
  } catch (const BadSender& bad) {
    fx.sends.erase(fx.sends.begin() + before, fx.sends.end());  // copies would not get it
    fx.runs.erase(fx.runs.begin() + runs, fx.runs.end());
    fx.records.erase(fx.records.begin() + records, fx.records.end());
    fx.alarm.reset();
    fx.ending.reset();
    throw BadSender(bad.what(), hearing_.speaker_of(bad.from.value_or(from)));
  }
  const std::size_t made = fx.sends.size();
  for (auto i = static_cast<std::size_t>(before); i < made; ++i) {
    for (const ActorId copy : hearing_.copies_of(fx.sends[i].to)) {
      if (copy != fx.sends[i].to) {
        fx.pass_on(copy, fx.sends[i].message, fx.sends[i].modelled);
      }
    }
  }
}

void Caller::archive(Archive& a) {
  machine_->archive(a);
  hearing_.archive(a);
}

// -- Census ----------------------------------------------------------------------------------------

Census::Census(std::vector<Copies> all, std::unique_ptr<Machine> machine)
    : Caller(all, std::move(machine)), all_(std::move(all)) {
  for (const Copies& one : all_) {
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
  tell_all({.kind = Kind::lost, .input = {.from = down->id}}, fx);
  pass_on(std::move(message), now, fx);
}

void Census::tell_all(const CopyWord& word, Effects& fx) const {
  for (const Copies& one : all_) {
    tell(one, word, fx);
  }
}

/// Whether what is lost is a machine of which another copy is left, or goes with one of which all have heard.
bool Census::survives(const Down& m, Effects& fx) {
  for (std::size_t i = 0; i < alive_.size(); ++i) {
    const Copies& of = all_[i];
    const auto seat = std::ranges::find_if(of.seats, [&m](const std::vector<ActorId>& ids) {
      return std::ranges::find(ids, m.id) != ids.end();
    });
    if (seat == of.seats.end()) {
      continue;
    }
    std::vector<bool>& alive = alive_[i];
    const auto copy = seat - of.seats.begin();
    if (!alive[static_cast<std::size_t>(copy)]) {
      return true;  // it goes with the others of its household
    }
    alive[static_cast<std::size_t>(copy)] = false;
    const auto left = std::count(alive.begin(), alive.end(), true);
    if (left == 0) {
      for (const ActorId first : of.seats.front()) {
        tell_all({.kind = Kind::lost, .input = {.from = first}}, fx);
      }
      for (const ActorId id : *seat) {
        tell_all({.kind = Kind::lost, .number = 1, .input = {.from = id}}, fx);
      }
      return false;
    }
    fx.record(LossOfCopy{.of = of.name,
                         .copy = static_cast<std::int32_t>(copy),
                         .left = static_cast<std::int32_t>(left),
                         .cause = m.actor + ": " + m.cause});
    tell(of, {.kind = Kind::left, .number = ++change_, .alive = alive}, fx);
    for (const ActorId id : *seat) {
      tell_all({.kind = Kind::lost, .number = 1, .input = {.from = id}}, fx);
    }
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

void join_copies(Cast& cast, std::vector<Copies> all) {
  if (all.empty()) {
    return;
  }
  std::vector<bool> wrapped(cast.members.size());
  const auto wrap = [&](ActorId id, auto make) {
    std::unique_ptr<Machine>& machine = cast.members[id].machine;
    machine = make(std::move(machine));
    wrapped[id] = true;
  };
  for (Copies& of : all) {
    of.census = cast.director.id;
  }
  for (std::size_t i = 0; i < all.size(); ++i) {
    std::vector<Copies> others = all;
    others.erase(others.begin() + static_cast<std::ptrdiff_t>(i));
    for (std::size_t copy = 0; copy < all[i].seats.size(); ++copy) {
      for (std::size_t at = 0; at < all[i].seats[copy].size(); ++at) {
        const ActorId first = all[i].seats.front()[at];
        const ActorId id = all[i].seats[copy][at];
        wrap(id, [&](std::unique_ptr<Machine> machine) {
          return std::make_unique<Copied>(all[i], copy, at, std::move(machine), others);
        });
        if (copy > 0) {
          cast.copies[first].push_back(id);
          if (std::ranges::find(cast.starting, first) != cast.starting.end()) {
            cast.starting.push_back(id);
          }
        }
      }
    }
  }
  for (ActorId id = 0; id < cast.members.size(); ++id) {
    if (!wrapped[id]) {
      wrap(id, [&](std::unique_ptr<Machine> machine) -> std::unique_ptr<Machine> {
        return id == cast.director.id ? std::make_unique<Census>(all, std::move(machine))
                                      : std::make_unique<Caller>(all, std::move(machine));
      });
    }
  }
}

}  // namespace troupe
