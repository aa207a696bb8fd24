// The Agenda runs a cast, which is the machines of a run (machine.hpp), in virtual time. It keeps a queue of messages, each
// with the time of its delivery, hands the earliest one to its machine, and puts what this machine sends into the queue. A
// job is computed as soon as a machine asks for it; its result is delivered after the time that the TimeModel gives the
// job. There is one thread and no actor system: the same cast gives the same order and the same bits, whatever the number
// of cores.
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
  /// `order` may be null. All that is referred to outlives the Agenda.
  Agenda(Cast& cast, const TimeModel& times, RecordSink& records, OrderSink* order);
  ~Agenda();

  /// Delivers messages until the Director ends the run, none is left (a stall: the Ending has exit code 5 and tells what
  /// each machine waits for), or `interrupted`, which is called now and then, returns true.
  Ending run(const std::function<bool()>& interrupted = {});

  double now() const { return now_; }

  std::uint64_t delivered() const { return delivered_; }

  /// Writes the state of the run between two deliveries, or reads such a state, from which run() then goes on with the
  /// same deliveries. Called from `between`, or before run(). ArchiveError as archive_run().
  void archive(Archive& a);

  /// What every machine says of itself.
  std::vector<Standstill> standstills() const { return standstills_of(cast_, gone_); }

  /// The limits that a state must keep which is read; null: none.
  const RunBounds* bounds = nullptr;
  /// Called between two deliveries; may be empty.
  std::function<void()> between;

  /// From now on the run has these faults, and `witness` watches it; both outlive the Agenda. run() throws LawBroken where
  /// the run breaks one of the laws of the witness.
  void inject_faults(Faults& faults, Witness& witness);

  /// Puts a message into the queue from outside; for tests of faults.
  void post(double time, ActorId to, Message message) { push(time, to, std::move(message)); }

  /// For tests of faults: called for each message that is sent. A message for which it returns true is lost.
  std::function<bool(ActorId, const Message&)> lose;

 private:
  Ending play(const std::function<bool()>& interrupted);

  using Entry = AgendaQueue::Entry;

  /// Where an entry comes from, which only a run with faults needs. It is kept apart, because the heap moves entries often.
  struct Origin {
    std::uint64_t number = 0;     // of the message on its link, from the Witness; 0: it passes none
    std::uint32_t from_life = 0;  // lives_ of the sender and of the recipient when it was sent
    std::uint32_t to_life = 0;
  };

  bool step();
  std::optional<Entry> next_entry();
  void archive_faults(Archive& a);
  bool play_next_fault();
  void kill_host(const Faults::Death& death);
  void revive_host(int host);
  void replace_machine(Cast::Replacement& replacement);
  bool hosts_are_up(std::int32_t replica) const;
  void replace_replica(std::int32_t replica);
  bool is_of_former_life(const Entry& entry) const;

  std::uint32_t life(ActorId id) const { return id < lives_.size() ? lives_[id] : 0; }

  Origin origin(const Entry& entry) const {
    return entry.slot < origins_.size() ? origins_[entry.slot] : Origin{};
  }

  double next_thaw() const;
  bool drop_or_withhold(const Entry& entry);
  void push(double time, ActorId to, Message&& message, std::uint64_t number = 0);
  void send(ActorId from, Effects::Send& send);
  void deliver(ActorId to, Message&& message);
  void carry_out(ActorId from);
  void refill_queue(std::vector<Pending> pending);
  Stream& stream(const Cast::Member& member);

  Cast& cast_;
  const TimeModel& times_;
  RecordSink& records_;
  OrderSink* order_;
  AgendaQueue queue_;
  std::vector<Message> slots_;
  std::vector<std::uint32_t> free_slots_;
  std::map<std::pair<Device, Precision>, std::unique_ptr<Stream>> streams_;
  std::set<ActorId> gone_;  // a handler of theirs has thrown, or their host has crashed
  Effects fx_;
  std::optional<Ending> ending_;
  double now_ = 0;
  std::uint64_t sequence_ = 0;
  std::uint64_t delivered_ = 0;
  std::vector<double> thread_free_at_;  // by thread: when the last job that it was given ends

  std::vector<std::uint32_t> lives_;  // by ActorId: how often the machine has been replaced

  Faults* faults_ = nullptr;  // null: the run has none
  Witness* witness_ = nullptr;
  std::vector<Origin> origins_;                // by slot; beyond its end: as an Origin is made
  std::map<int, std::deque<Entry>> withheld_;  // by frozen host, in order of delivery
  std::deque<Entry> thawed_;  // of a host that is no longer frozen: delivered before all others
};

}  // namespace troupe
