#include "runtime/system/copied.hpp"

#include "messages/archive_sized.hpp"
#include "messages/bounds.hpp"
#include "messages/ending.hpp"
#include "messages/peers.hpp"
#include "messages/servers.hpp"

#include <algorithm>

namespace troupe {
namespace {

/// A message with its sender, or that there is none.
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

Copied::Copied(Copies copies,
               std::size_t index,
               std::size_t at,
               std::unique_ptr<Machine> machine,
               const std::vector<Copies>& others)
    : copies_(std::move(copies)),
      index_(index),
      at_(at),
      machine_(std::move(machine)),
      alive_(copies_.seats.size(), true),
      hearing_(others),
      spoken_(copies_.seats.front()[at]) {}

void Copied::on(Message message, double now, Effects& fx) {
  if (struck_off_) {
    return;
  }
  const auto* word = get_if<CopyWord>(&message);
  if (word && word->kind != CopyWord::Kind::resumes) {
    heed(*word, message.from, now, fx);
  } else if (is_other(message.from)) {
    take_up(std::move(message));
  } else {
    hear(std::move(message), fx);
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
    deaf_.insert(word.input.from);
    spoken_.forget(word.input.from);
    if (word.number == 0) {  // no other copy of it is left
      dead_.insert(word.input.from);
    }
  } else if (word.kind == heard) {
    spoken_.heard(from, word.input);
  }
}

std::optional<std::size_t> Copied::place_in(const std::vector<ActorId>& seat, ActorId id) {
  const auto found = std::ranges::find(seat, id);
  return found == seat.end() ? std::nullopt : std::optional(found - seat.begin());
}

/// Whether it is another copy.
bool Copied::is_other(ActorId id) const {
  for (std::size_t i = 0; i < copies_.seats.size(); ++i) {
    if (i != index_ && of_copy(i) == id) {
      return true;
    }
  }
  return false;
}

/// Is kept as said by the first copy of whoever has said it.
void Copied::hear(Message message, Effects& fx) {
  if (const auto place = place_in(own(), message.from)) {
    message.from = firsts()[*place];
  } else if (!hearing_.takes(message, fx)) {
    return;
  }
  inbox_.keep(std::move(message));
}

/// What the copy before it has sent again: what the order names, in the words of who has said it.
void Copied::take_up(Message message) {
  if (!announced_ || announced_->first != message.from) {
    return;
  }
  const CopyWord word = std::exchange(announced_, std::nullopt)->second;
  if (asked_ == word.number && !told_.empty()) {
    const InputName& name = told_.front().input;
    TROUPE_BELIEVE(same_words(name_of(message), name),
                   "it sends again another message than was asked for");
    TROUPE_BELIEVE(is_answered_to(message, name.from),
                   "it sends again what is to be answered to another");
    resent_ = Taken{.order = word, .input = std::move(message)};
  }
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
  const InputName& name = order.input;
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
    tell_copy(of_copy(*before()), {.kind = CopyWord::Kind::missing, .number = order.number}, fx);
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
    if (next() && !place_in(firsts(), message->from)) {
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
    // Every copy finds the same, and goes on.
    bad_.emplace(bad.what(), hearing_.speaker_of(bad.from.value_or(from)));
    made.clear();
  }
  note(made, fx);
}

/// What is for others is noted; the rest is done.
void Copied::note(Effects& made, Effects& fx) {
  TROUPE_CHECK(!made.ending, "who ends the run has no copies");
  for (Effects::Send& one : made.sends) {
    note(std::move(one), fx);
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

void Copied::note(Effects::Send one, Effects& fx) {
  if (const auto place = place_in(firsts(), one.to)) {
    one.to = own()[*place];
    fx.sends.push_back(std::move(one));
    return;
  }
  if (auto* down = get_if<Down>(&one.message)) {
    down->id = kOutside;  // every copy would find the same
  }
  const std::vector<ActorId>& copies = hearing_.copies_of(one.to);
  for (const ActorId to : copies.empty() ? std::vector{one.to} : copies) {
    if (!deaf_.contains(to)) {
      one.to = to;
      spoken_.note(taken_, one);
    }
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
    deaf_,
    asked_,
    announced_,
    resent_,
    hearing_,
    spoken_,
    struck_off_);
}

}  // namespace troupe
