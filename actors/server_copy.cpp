#include "actors/server_copy.hpp"

#include "messages/archive.hpp"
#include "messages/archive_sized.hpp"
#include "messages/copies.hpp"
#include "messages/evaluation.hpp"
#include "messages/message.hpp"
#include "messages/returns.hpp"

#include <algorithm>
#include <utility>

namespace troupe {
namespace {

bool is_alarm(const InputName& name) {
  return message_name(name.message) == "Alarm";
}

}  // namespace

ServerCopy::ServerCopy(Config config, std::unique_ptr<Machine> server)
    : c_(std::move(config)), server_(std::move(server)), alive_(c_.copies.size(), true) {}

void ServerCopy::on(Message message, double now, Effects& fx) {
  if (struck_off_) {
    return;
  }
  if (const auto* ordered = get_if<Ordered>(&message)) {
    if (!leads() && ordered->number == last_told_ + 1) {  // else it is known
      told_.push_back(*ordered);
      ++last_told_;
    }
  } else if (const auto* confirmed = get_if<Confirmed>(&message)) {
    confirm(confirmed->number, fx);
  } else if (const auto* missing = get_if<Missing>(&message)) {
    resend(*missing, fx);
  } else if (auto* resent = get_if<Resent>(&message)) {
    if (asked_ == resent->number && resent->number > taken_) {
      resent_ = std::move(*resent);
    }
  } else if (const auto* succession = get_if<Succession>(&message)) {
    succeed(*succession, now, fx);
  } else {
    keep(std::move(message));
  }
  if (!struck_off_) {
    leads() ? lead(now, fx) : follow(fx);
  }
  if (bad_) {
    throw *std::exchange(bad_, std::nullopt);
  }
}

// -- what comes ------------------------------------------------------------------------------------

InputName ServerCopy::name_of(const Message& message) const {
  InputName name{.from = message.from, .message = static_cast<std::uint16_t>(message.index())};
  if (const auto* upload = get_if<Upload>(&message)) {
    name.number = upload->sequence;
  } else if (const auto* pull = get_if<PinnedPull>(&message)) {
    name.number = pull->request;
  }
  return name;
}

/// The same input of this copy, whose own machines stand for those of the head.
InputName ServerCopy::here(InputName name) const {
  for (std::size_t i = 0; i < c_.copies.size(); ++i) {
    if (name.from == c_.copies[i].id) {
      name.from = c_.copies[c_.index].id;
      break;
    }
    if (name.from == c_.optimizers[i]) {
      name.from = c_.optimizers[c_.index];
      break;
    }
  }
  return name;
}

void ServerCopy::keep(Message message) {
  if (const auto* membership = get_if<Membership>(&message)) {
    note_deaths(*membership);
  }
  const InputName name = name_of(message);
  if (again_.erase(name) > 0) {
    return;  // it has been taken, as it was sent again
  }
  kept_[name].push_back({++arrivals_, std::move(message)});
}

void ServerCopy::note_deaths(const Membership& m) {
  for (std::size_t r = 0; r < m.alive.size() && r < c_.shards.size(); ++r) {
    if (!m.alive[r]) {
      dead_.insert(c_.shards[r]);
    }
  }
}

/// The first of that name, which is kept no longer.
Message ServerCopy::take_out(KeptByName::iterator place) {
  Message message = std::move(place->second.front().message);
  place->second.pop_front();
  if (place->second.empty()) {
    kept_.erase(place);
  }
  return message;
}

// -- taking it -------------------------------------------------------------------------------------

/// In the order in which it has come.
void ServerCopy::lead(double now, Effects& fx) {
  while (!kept_.empty()) {
    const auto first =
        std::min_element(kept_.begin(), kept_.end(), [](const auto& a, const auto& b) {
          return a.second.front().arrival < b.second.front().arrival;
        });
    const InputName name = first->first;
    // Clocks of two hosts may differ by a little.
    take(take_out(first),
         {taken_ + 1, name, std::max(now, now_), static_cast<std::uint32_t>(c_.index)},
         fx);
    last_told_ = taken_;
  }
  confirm_where_last(fx);
}

/// In the order that was told, as far as it has come.
void ServerCopy::follow(Effects& fx) {
  while (!told_.empty()) {
    const Ordered order = told_.front();
    std::optional<Found> found = find(order, fx);
    if (!found) {
      break;
    }
    told_.pop_front();
    if (found->message) {
      take(*std::move(found->message), order, fx);
    } else {
      ++taken_;
      head_ = order.head;
      unconfirmed_.push_back({.order = order, .upload = {}});
      tell_next(order, fx);
    }
  }
  confirm_where_last(fx);
}

/// What the order names, where it has come; else, where it will not come, it is asked for.
std::optional<ServerCopy::Found> ServerCopy::find(const Ordered& order, Effects& fx) {
  const InputName name = here(order.input);
  if (is_alarm(name)) {
    return Found{sent_by(name.from, Alarm{})};
  }
  if (const auto kept = kept_.find(name); kept != kept_.end()) {
    return Found{take_out(kept)};
  }
  if (resent_ && resent_->number == order.number) {
    std::optional<Upload> upload = std::move(std::exchange(resent_, std::nullopt)->upload);
    asked_.reset();
    again_.insert(name);
    return upload ? Found{sent_by(name.from, *std::move(upload))} : Found{};
  }
  if (dead_.contains(name.from) && asked_ != order.number) {
    asked_ = order.number;
    fx.send(c_.copies[*before()], Missing{c_.copies[c_.index], order.number});
  }
  return {};
}

void ServerCopy::take(Message message, const Ordered& order, Effects& fx) {
  Taken& taken = unconfirmed_.emplace_back(Taken{.order = order, .upload = {}});
  ++taken_;
  head_ = order.head;
  now_ = order.now;
  if (const auto* upload = get_if<Upload>(&message); upload && next()) {
    taken.upload = *upload;
  }
  hand_over(std::move(message), order.now, fx);
  tell_next(order, fx);
}

/// To the server.
void ServerCopy::hand_over(Message message, double now, Effects& fx) {
  if (holds_alternative<Alarm>(message)) {
    alarm_.reset();
  }
  const auto* release = get_if<Release>(&message);
  const std::int64_t known = release ? release->step : -1;
  Effects made;
  const ActorId from = message.from;
  try {
    server_->on(std::move(message), now, made);
  } catch (const BadSender& bad) {
    bad_.emplace(bad.what(), bad.from.value_or(from));  // every copy finds the same, and goes on
    made.clear();
  }
  said_.released(known);
  CopyOutputs outputs = outputs_of(made, fx);
  said_.note(outputs);
  if (leads()) {
    unconfirmed_.back().held = std::move(outputs);
  }
}

/// What is for others; the rest is done.
CopyOutputs ServerCopy::outputs_of(Effects& made, Effects& fx) {
  TROUPE_CHECK(made.runs.empty() && !made.ending, "a server leaves work and endings to others");
  CopyOutputs outputs;
  for (Effects::Send& one : made.sends) {
    if (one.to == c_.optimizers[c_.index]) {
      fx.sends.push_back(std::move(one));
      continue;
    }
    if (auto* down = get_if<Down>(&one.message)) {
      down->id = kOutside;  // every copy would find the same
    }
    outputs.sends.push_back({one.to, one.modelled, std::move(one.message)});
  }
  for (RecordEntry& entry : made.records) {
    outputs.records.push_back({std::move(entry)});
  }
  if (made.alarm) {
    const double earliest = std::min(*made.alarm, alarm_.value_or(*made.alarm));
    alarm_ = earliest;  // one that comes too early does no harm
    if (leads()) {
      fx.wake(earliest);
    }
  }
  return outputs;
}

// -- along the chain -------------------------------------------------------------------------------

/// The nearest living copy before this one.
std::optional<std::size_t> ServerCopy::before() const {
  for (std::size_t i = c_.index; i > 0; --i) {
    if (alive_[i - 1]) {
      return i - 1;
    }
  }
  return {};
}

std::optional<std::size_t> ServerCopy::next() const {
  for (std::size_t i = c_.index + 1; i < alive_.size(); ++i) {
    if (alive_[i]) {
      return i;
    }
  }
  return {};
}

void ServerCopy::tell_next(const Ordered& order, Effects& fx) {
  if (const auto copy = next()) {
    fx.send(c_.copies[*copy], order);
  }
}

/// All living copies have taken what the last one has.
void ServerCopy::confirm_where_last(Effects& fx) {
  if (!next() && !unconfirmed_.empty()) {
    tell_confirmed(fx);
    confirm(taken_, fx);
  }
}

/// The last copy does. A copy before the one that has made the order was given up, and may have taken something else.
void ServerCopy::tell_confirmed(Effects& fx) {
  for (std::size_t i = head_; i < c_.index; ++i) {
    if (alive_[i]) {
      fx.send(c_.copies[i], Confirmed{taken_});
    }
  }
}

/// What has followed from these inputs may be known.
void ServerCopy::confirm(std::uint64_t number, Effects& fx) {
  while (!unconfirmed_.empty() && unconfirmed_.front().order.number <= number) {
    unconfirmed_.front().held.release(fx);
    unconfirmed_.pop_front();
  }
}

void ServerCopy::resend(const Missing& m, Effects& fx) {
  for (const Taken& taken : unconfirmed_) {
    if (taken.order.number == m.number) {
      fx.send(m.from, Resent{m.number, taken.upload});
    }
  }
}

// -- copies that die -------------------------------------------------------------------------------

void ServerCopy::succeed(const Succession& m, double now, Effects& fx) {
  if (m.epoch <= epoch_ || m.alive.size() != alive_.size()) {
    return;
  }
  epoch_ = m.epoch;
  struck_off_ = !m.alive[c_.index];  // its optimizer is dead
  const bool led = leads();
  const auto next_before = next();
  alive_ = m.alive;
  asked_.reset();
  if (struck_off_) {
    return;
  }
  if (leads() && !led) {
    become_head(now, fx);
  }
  if (next() == next_before) {
    return;
  }
  if (!next() && unconfirmed_.empty()) {
    tell_confirmed(fx);  // what the one behind it had confirmed may not have come to all
  }
  for (const Taken& taken : unconfirmed_) {
    tell_next(taken.order, fx);
  }
}

/// Nobody alive has taken what this copy was told and has not taken: it has not happened.
void ServerCopy::become_head(double now, Effects& fx) {
  told_.clear();
  last_told_ = taken_;
  resent_.reset();
  CopyOutputs again = said_.all();
  if (unconfirmed_.empty()) {
    again.release(fx);
  } else {
    unconfirmed_.back().held = std::move(again);
  }
  if (alarm_) {
    fx.wake(std::max(now, *alarm_));
  }
}

// -- standing still --------------------------------------------------------------------------------

std::string ServerCopy::waits_for() const {
  if (struck_off_) {
    return "";
  }
  if (!told_.empty()) {
    return concat("what machine ", told_.front().input.from, " has sent to the copy before it");
  }
  if (!leads()) {
    return "";  // it does as that does
  }
  if (!unconfirmed_.empty()) {
    return concat("the other copies to take its input ", unconfirmed_.front().order.number);
  }
  return server_->waits_for();
}

Remains ServerCopy::remains() const {
  return leads() && !struck_off_ ? server_->remains() : Remains{};
}

void ServerCopy::Kept::archive(Archive& a) {
  a(arrival, message);
}

void ServerCopy::Taken::archive(Archive& a) {
  a(order, upload, held);
}

void ServerCopy::archive(Archive& a) {
  server_->archive(a);
  archive_sized(a, alive_);
  a(epoch_,
    kept_,
    arrivals_,
    told_,
    last_told_,
    taken_,
    unconfirmed_,
    head_,
    now_,
    alarm_,
    dead_,
    asked_,
    resent_,
    again_,
    said_,
    struck_off_);
}

}  // namespace troupe
