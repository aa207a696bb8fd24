// The virtual clock: one queue of (time, sequence, recipient, message). Each pop calls `on` of one
// machine; what it sends goes back into the queue. A job is executed when it is issued and its
// outputs are delivered after the modelled time. No threads, no actor system: the same cast gives
// the same order and the same bits, whatever the number of cores.
#pragma once

#include "runtime/system/agenda_queue.hpp"
#include "runtime/system/driver.hpp"
#include "runtime/system/faults.hpp"
#include "runtime/system/snapshot.hpp"
#include "runtime/system/witness.hpp"

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

namespace troupe {

class Agenda {
 public:
  /// `order` may be null. The cast, the sinks and the times outlive the Agenda.
  Agenda(Cast& cast, const TimeModel& times, RecordSink& records, OrderSink* order);
  ~Agenda();

  /// Until the Director ends the run, or nothing is left to happen (a stall: exit code 5 and what
  /// everyone waits for), or `interrupted` returns true (asked now and then).
  Ending run(const std::function<bool()>& interrupted = {});

  double now() const { return now_; }

  std::uint64_t delivered() const { return delivered_; }

  /// Writes the run as it is between two deliveries, or reads it back instead of beginning anew: the
  /// same deliveries follow. From `between`, or before run(). ArchiveError as archive_run().
  void archive(Archive& a);

  /// What a state that is read back is held to, where set.
  const RunBounds* bounds = nullptr;
  /// Called between two deliveries, where set.
  std::function<void()> between;

  /// From now on these befall the run, and `witness` watches it; both outlive the Agenda. LawBroken, out of
  /// run(), where the run breaks one of the witness's laws.
  void suffer(Faults& faults, Witness& witness);

  /// Puts a message into the queue from outside; for tests of faults.
  void post(double time, ActorId to, Message message) { push(time, to, std::move(message)); }

  /// What to do with a message instead of delivering it; for tests of faults. True: it is lost.
  std::function<bool(ActorId, const Message&)> lose;

 private:
  Ending play(const std::function<bool()>& interrupted);

  using Entry = AgendaQueue::Entry;

  /// What only a run with faults has to know of an entry. Not in it: the heap moves entries often.
  struct Way {
    std::uint64_t number = 0;     // that the Witness has given it
    std::uint32_t from_life = 0;  // of who sent it, and of whom it was sent to: lives_
    std::uint32_t to_life = 0;
  };

  bool step();
  std::optional<Entry> next_entry();
  void archive_faults(Archive& a);
  bool befall();
  void bury(const Faults::Death& death);
  void raise(int host);
  void renew(Cast::Again& again);
  bool stands(std::int32_t replica) const;
  void make_anew(std::int32_t replica);
  bool outlived(const Entry& entry) const;

  std::uint32_t life(ActorId id) const { return id < lives_.size() ? lives_[id] : 0; }

  Way way(const Entry& entry) const {
    return entry.slot < ways_.size() ? ways_[entry.slot] : Way{};
  }

  double next_thaw() const;
  bool withheld(const Entry& entry);
  void push(double time, ActorId to, Message&& message, std::uint64_t number = 0);
  void send(ActorId from, Effects::Send& send);
  void deliver(ActorId to, Message&& message);
  void carry_out(ActorId from);
  void place(std::vector<Pending> pending);
  Stream& stream(const Cast::Member& member);

  Cast& cast_;
  const TimeModel& times_;
  RecordSink& records_;
  OrderSink* order_;
  AgendaQueue queue_;
  std::vector<Message> slots_;
  std::vector<std::uint32_t> free_;
  std::map<std::pair<Device, Precision>, std::unique_ptr<Stream>> streams_;
  std::set<ActorId> gone_;  // whose handler has thrown
  Effects fx_;
  std::optional<Ending> ending_;
  double now_ = 0;
  std::uint64_t sequence_ = 0;
  std::uint64_t delivered_ = 0;
  std::vector<double> thread_free_;  // by thread: members that share one take turns

  std::vector<std::uint32_t> lives_;  // by ActorId: how often the machine was made anew

  Faults* faults_ = nullptr;  // null: nothing goes wrong
  Witness* witness_ = nullptr;
  std::vector<Way> ways_;                      // by slot; shorter: as a Way begins
  std::map<int, std::deque<Entry>> withheld_;  // by host that stands still: in their order
  std::deque<Entry> thawed_;                   // of hosts that go on: before all others
};

}  // namespace troupe
