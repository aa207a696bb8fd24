// What copies of a machine tell each other, and how they close up where one has died.
#include "messages/bounds.hpp"
#include "messages/servers.hpp"
#include "runtime/system/copied.hpp"

#include <algorithm>

namespace troupe {
namespace {

/// Whether a machine that speaks so may pass `message` on. Else a machine of another role has said it, which is dead with all
/// its copies: a question of its own, or a part of what a replica does that is dead with it.
bool may_say(const Message& message, const RoleTag& role) {
  try {
    check_may_say(message, role);
    return true;
  } catch (const ArchiveError&) {
    return false;
  }
}

}  // namespace

// -- along the chain -------------------------------------------------------------------------------

/// The nearest living copy before this one.
std::optional<std::size_t> Copied::before() const {
  for (std::size_t i = index_; i > 0; --i) {
    if (alive_[i - 1]) {
      return i - 1;
    }
  }
  return {};
}

std::optional<std::size_t> Copied::next() const {
  for (std::size_t i = index_ + 1; i < alive_.size(); ++i) {
    if (alive_[i]) {
      return i;
    }
  }
  return {};
}

void Copied::tell_next(const CopyWord& order, Effects& fx) {
  if (const auto copy = next()) {
    tell_copy(of_copy(*copy), order, fx);
  }
}

/// All living copies have taken what the last one has.
void Copied::confirm_where_last(Effects& fx) {
  if (!next() && !unconfirmed_.empty()) {
    tell_confirmed(fx);
    confirm(taken_);
  }
}

/// The last copy does. A copy before the one that has made the order was given up, and may have taken something else.
void Copied::tell_confirmed(Effects& fx) {
  for (std::size_t i = head_; i < index_; ++i) {
    if (alive_[i]) {
      tell_copy(of_copy(i), {.kind = CopyWord::Kind::confirmed, .number = taken_}, fx);
    }
  }
}

void Copied::confirm(std::uint64_t number) {
  while (!unconfirmed_.empty() && unconfirmed_.front().order.number <= number) {
    unconfirmed_.pop_front();
  }
}

void Copied::resend(std::uint64_t number, ActorId to, Effects& fx) {
  for (const Taken& taken : unconfirmed_) {
    if (taken.order.number != number) {
      continue;
    }
    const bool passes = taken.input && may_say(*taken.input, speaks_as());
    const auto kind = passes ? CopyWord::Kind::resent : CopyWord::Kind::nobodys;
    tell_copy(to, {.kind = kind, .number = number}, fx);
    if (passes) {
      fx.pass_on(to, *taken.input, false);
    }
  }
}

// -- copies that die -------------------------------------------------------------------------------

void Copied::close_up(const CopyWord& left, double now, Effects& fx) {
  if (left.number <= change_ || left.alive.size() != alive_.size()) {
    return;
  }
  change_ = left.number;
  struck_off_ = !left.alive[index_];  // another one of its household is dead
  const bool led = leads();
  const auto next_before = next();
  alive_ = left.alive;
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
void Copied::become_head(double now, Effects& fx) {
  told_.clear();
  last_told_ = taken_;
  resent_.reset();
  spoken_.begin(fx);
  if (alarm_) {
    fx.wake(std::max(now, *alarm_));
  }
}

}  // namespace troupe
