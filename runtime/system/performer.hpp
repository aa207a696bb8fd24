// Plays one machine on the real clock: hands it its messages and carries out what it wants done. An
// exception that leaves one of these functions is the end of the machine's actor (actor.cpp).
#pragma once

#include "runtime/system/theatre.hpp"

#include <deque>
#include <optional>

namespace troupe {

class Performer {
 public:
  /// The theatre outlives it.
  Performer(Theatre& theatre, ActorId id)
      : theatre_(theatre),
        id_(id),
        member_(theatre.cast.members[id]),
        place_(theatre.workplace_of(id)) {}

  const Cast::Member& member() const { return member_; }

  void deliver(Message message);

  /// Runs the next job, whose result comes as a message.
  void perform();

  /// Keeps messages for later, from now on. True where no job is left, either.
  bool freeze();
  /// Goes on, with the messages that have been kept first.
  void thaw();

  // -- while all are frozen, or before the first message: from any thread

  /// Messages that are kept, and an alarm that has been asked for: when it is due.
  std::deque<Message>& held() { return held_; }

  std::optional<double>& alarm() { return alarm_; }

 private:
  std::optional<Delivered> noted(const Message& message, double now) const;
  void tell(Message message, double now);
  bool is_elsewhere(ActorId id) const;
  Message work(Run& run, Stream& stream) const;
  std::string last_heard_of() const;
  void carry_out(double now);
  void record(std::vector<RecordEntry> entries, std::optional<Delivered> of = {});
  void await_recorder();
  double seconds_held_back(const Run& run, double spent) const;

  Theatre& theatre_;
  ActorId id_;
  const Cast::Member& member_;
  Workplace& place_;
  std::deque<Run> jobs_;
  Effects fx_;
  bool frozen_ = false;
  std::deque<Message> held_;
  std::optional<double> alarm_;  // seconds of the run's clock
};

}  // namespace troupe
