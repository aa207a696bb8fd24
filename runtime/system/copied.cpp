#include "runtime/system/copied.hpp"

#include "messages/archive_sized.hpp"
#include "messages/bounds.hpp"
#include "messages/ending.hpp"
#include "messages/peers.hpp"
#include "messages/servers.hpp"

#include <algorithm>

namespace troupe {
namespace {

void tell(ActorId to, CopyWord word, Effects& fx) {
  fx.pass_on(to, std::move(word), false);
}

/// Whether a machine that speaks so may pass `message` on. Else it is a question of its sender, who is dead.
bool may_say(const Message& message, const RoleTag& role) {
  try {
    check_may_say(message, role);
    return true;
  } catch (const ArchiveError&) {
    return false;
  }
}

/// The same where one is missing.
void archive_one(Archive& a, std::optional<Message>& message) {
  bool there = message.has_value();
  a(there);
  if (there) {
    Message& kept = a.reading() ? message.emplace() : *message;
    a(kept.from);
    kept.archive(a);
  }
}

}  // namespace

Copied::Copied(Copies copies, std::size_t index, std::unique_ptr<Machine> machine)
    : copies_(std::move(copies)),
      index_(index),
      machine_(std::move(machine)),
      alive_(copies_.seats.size(), true) {}

void Copied::on(Message message, double now, Effects& fx) {
  if (struck_off_) {
    return;
  }
  if (const auto* word = get_if<CopyWord>(&message)) {
    heed(*word, message.from, now, fx);
  } else if (is_other(message.from)) {
    take_up(std::move(message));
  } else {
    inbox_.keep(std::move(message));
  }
  if (!struck_off_) {
    leads() ? lead(now, fx) : follow(fx);
    confirm_where_last(fx);
    leads() ? spoken_.say(taken_ - unconfirmed_.size(), fx) : spoken_.keep_quiet();
  }
  if (bad_) {
    throw *std::exchange(bad_, std::nullopt);
  }
}

// -- what comes ------------------------------------------------------------------------------------

/// The wire lets any machine say a CopyWord; whose each of them is, is known here.
void Copied::believe(const CopyWord& word, ActorId from) const {
  using enum CopyWord::Kind;
  const bool of_census = word.kind == left || word.kind == lost;
  const ActorId census = copies_.census;
  TROUPE_BELIEVE(word.kind <= resumes, "an unknown word between copies");
  TROUPE_BELIEVE(!of_census || from == census, "what is lost, told by no director");
  TROUPE_BELIEVE(word.kind > nobodys || is_other(from), "an order to copies, given by none");
}

void Copied::heed(const CopyWord& word, ActorId from, double now, Effects& fx) {
  using enum CopyWord::Kind;
  believe(word, from);
  if (word.kind == ordered && !leads() && word.number == last_told_ + 1) {  // else it is known
    told_.push_back(word);
    ++last_told_;
  } else if (word.kind == confirmed) {
    confirm(word.number);
  } else if (word.kind == missing) {
    resend(word.number, from, fx);
  } else if (word.kind == resent) {
    announced_.emplace(from, word);
  } else if (word.kind == nobodys && asked_ == word.number) {
    resent_ = Taken{.order = word, .input = {}};
  } else if (word.kind == left) {
    close_up(word, now, fx);
  } else if (word.kind == lost) {
    dead_.insert(word.input.from);
  } else if (word.kind == heard) {
    spoken_.heard(from, word.input);
  }
}

/// Whether it is another copy.
bool Copied::is_other(ActorId id) const {
  return id != own().self &&
         std::ranges::any_of(copies_.seats, [id](const auto& seat) { return seat.self == id; });
}

/// What the copy before it has sent again.
void Copied::take_up(Message message) {
  if (!announced_ || announced_->first != message.from) {
    return;
  }
  const CopyWord word = std::exchange(announced_, std::nullopt)->second;
  if (asked_ == word.number) {
    resent_ = Taken{.order = word, .input = std::move(message)};
  }
}

/// The same input of this copy, whose own machines stand for those of the head.
InputName Copied::here(InputName name) const {
  for (const Copies::Seat& seat : copies_.seats) {
    if (name.from == seat.self) {
      name.from = own().self;
      break;
    }
    if (name.from == seat.aide && seat.aide != kOutside) {
      name.from = own().aide;
      break;
    }
  }
  return name;
}

// -- taking it -------------------------------------------------------------------------------------

/// In the order in which it has come.
void Copied::lead(double now, Effects& fx) {
  while (std::optional<Message> message = inbox_.take_first()) {
    const CopyWord order{.number = taken_ + 1,
                         .input = name_of(*message),
                         .now = std::max(now, now_),  // clocks of two hosts may differ by a little
                         .head = static_cast<std::uint32_t>(index_)};
    take(std::move(message), order, fx);
    last_told_ = taken_;
  }
}

/// In the order that was told, as far as it has come.
void Copied::follow(Effects& fx) {
  while (!told_.empty()) {
    const CopyWord order = told_.front();
    std::optional<Found> found = find(order, fx);
    if (!found) {
      return;
    }
    told_.pop_front();
    take(std::move(found->message), order, fx);
  }
}

/// What the order names, where it has come; else, where it will not come, it is asked for.
std::optional<Copied::Found> Copied::find(const CopyWord& order, Effects& fx) {
  const InputName name = here(order.input);
  if (message_name(name.message) == "Alarm") {
    return Found{sent_by(name.from, Alarm{})};
  }
  if (std::optional<Message> kept = inbox_.take(name)) {
    return Found{std::move(kept)};
  }
  if (resent_ && resent_->order.number == order.number) {
    std::optional<Message> input = std::move(std::exchange(resent_, std::nullopt)->input);
    asked_.reset();
    inbox_.expect_again(name);
    return input ? Found{sent_by(name.from, *std::move(input))} : Found{};
  }
  if (dead_.contains(name.from) && asked_ != order.number) {
    asked_ = order.number;
    tell(copies_.seats[*before()].self,
         {.kind = CopyWord::Kind::missing, .number = order.number},
         fx);
  }
  return {};
}

/// Nothing where nobody would miss it.
void Copied::take(std::optional<Message> message, const CopyWord& order, Effects& fx) {
  Taken& taken = unconfirmed_.emplace_back(Taken{.order = order, .input = {}});
  ++taken_;
  head_ = order.head;
  now_ = order.now;
  if (message) {
    if (next() && message->from != own().self && message->from != own().aide) {
      taken.input = message;
    }
    hand_over(*std::move(message), order.now, fx);
  }
  tell_next(order, fx);
}

/// To the machine.
void Copied::hand_over(Message message, double now, Effects& fx) {
  if (holds_alternative<Alarm>(message)) {
    alarm_.reset();
  }
  Effects made;
  const ActorId from = message.from;
  try {
    TROUPE_BELIEVE(
        understands(machine_->role(), message), "it does not understand ", message_name(message));
    machine_->on(std::move(message), now, made);
  } catch (const BadSender& bad) {
    bad_.emplace(bad.what(), bad.from.value_or(from));  // every copy finds the same, and goes on
    made.clear();
  }
  note(made, fx);
}

/// What is for others is noted; the rest is done.
void Copied::note(Effects& made, Effects& fx) {
  TROUPE_CHECK(!made.ending, "who ends the run has no copies");
  for (Effects::Send& one : made.sends) {
    if (one.to == own().self || one.to == own().aide) {
      fx.sends.push_back(std::move(one));
      continue;
    }
    if (auto* down = get_if<Down>(&one.message)) {
      down->id = kOutside;  // every copy would find the same
    }
    spoken_.note(taken_, std::move(one));
  }
  for (Run& job : made.runs) {
    fx.run(std::move(job));
  }
  for (RecordEntry& entry : made.records) {
    spoken_.note(taken_, std::move(entry));
  }
  if (made.alarm) {
    const double earliest = std::min(*made.alarm, alarm_.value_or(*made.alarm));
    alarm_ = earliest;  // one that comes too early does no harm
    if (leads()) {
      fx.wake(earliest);
    }
  }
}

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
    tell(copies_.seats[*copy].self, order, fx);
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
      tell(copies_.seats[i].self, {.kind = CopyWord::Kind::confirmed, .number = taken_}, fx);
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
    tell(to, {.kind = kind, .number = number}, fx);
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
  struck_off_ = !left.alive[index_];  // its aide is dead
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

// -- standing still --------------------------------------------------------------------------------

std::string Copied::waits_for() const {
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
  return machine_->waits_for();
}

Remains Copied::remains() const {
  return leads() && !struck_off_ ? machine_->remains() : Remains{};
}

void Copied::Taken::archive(Archive& a) {
  a(order);
  archive_one(a, input);
}

void Copied::archive(Archive& a) {
  machine_->archive(a);
  archive_sized(a, alive_);
  a(change_,
    inbox_,
    told_,
    last_told_,
    taken_,
    unconfirmed_,
    head_,
    now_,
    alarm_,
    dead_,
    asked_,
    announced_,
    resent_,
    spoken_,
    struck_off_);
}

}  // namespace troupe
