// What the actors of a run share: the way to each other, the clock, and the place where each works.
#pragma once

#include "kernels/stream.hpp"
#include "runtime/system/thread.hpp"
#include "runtime/system/threads.hpp"

#include <caf/allowed_unsafe_message_type.hpp>
#include <caf/typed_actor.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace troupe {

/// What has been recorded at once.
struct RecordBatch {
  std::vector<RecordEntry> entries;
  double now = 0;
  std::optional<Delivered>
      of{};                   // on its way to another process: the delivery that they follow from
  ActorId teller = kOutside;  // a machine of the process that they come from; kOutside: this one
};

}  // namespace troupe

// In process only: tensors travel as handles.
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::Message)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::RecordBatch)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::Standstill)

namespace troupe {

using Perform = caf::atom_constant<caf::atom("perform")>;  // run your next job
using Watch = caf::atom_constant<caf::atom("watch")>;      // over all others, as the Director
using Explain = caf::atom_constant<caf::atom("explain")>;  // what do you wait for?
using Freeze = caf::atom_constant<caf::atom("freeze")>;  // hold your messages; are your jobs done?
using Thaw = caf::atom_constant<caf::atom("thaw")>;      // go on with them

/// The actor of a machine. That the machine's role understands a message is checked where it is sent (Port).
using Performing = caf::typed_actor<caf::reacts_to<Perform>,
                                    caf::reacts_to<Watch>,
                                    caf::replies_to<Explain>::with<Standstill>,
                                    caf::replies_to<Freeze>::with<bool>,
                                    caf::reacts_to<Thaw>,
                                    caf::reacts_to<Message>>;

/// Freeze: what was recorded before has been handed over when it answers.
using RecorderActor =
    caf::typed_actor<caf::reacts_to<RecordBatch>, caf::replies_to<Freeze>::with<bool>>;

class Performer;

/// The way to one machine. Usable from every thread; what is sent to a machine that is gone is
/// dropped.
class Port {
 public:
  virtual ~Port() = default;
  /// Throws ContractError where the machine's role does not accept the message.
  virtual void send(Message message, std::chrono::nanoseconds delay = {}) = 0;
};

/// A thread and what the actors on it share; theirs alone, but for `deliveries`.
struct Workplace {
  Workplace(caf::actor_system& system, Crew& crew, OrderSink* log)
      : order(log), thread(system, crew) {}

  /// Where jobs of `member` run.
  Stream& stream(const Cast::Member& member);
  /// On a GPU a job has been enqueued when it returns: waits where too many have not been finished.
  void keep_pace(Stream& stream);

  OrderSink* order;
  std::map<std::pair<Device, Precision>, std::unique_ptr<Stream>> streams;
  std::deque<Event> ahead;  // one a job that a GPU has not finished yet
  double free_at = 0;       // modelled times: when the thread's last job is over
  std::atomic<std::uint64_t> deliveries{0};
  std::optional<ActorId> heard_of{};  // of another process: who has sent the last message
  Thread thread;                      // last: it ends first
};

struct Theatre {
  using Clock = std::chrono::steady_clock;

  caf::actor_system& system;
  Cast& cast;
  const ThreadOptions& options;
  Clock::time_point start = Clock::now();
  double before = 0;  // seconds of the run's clock at the start, of a run that goes on
  Crew crew{};
  // By thread; null where its members play in another process.
  std::vector<std::unique_ptr<Workplace>> workplaces{};
  // By ActorId; complete before the first message. An actor is null, too, where its machine plays in
  // another process; the port is the way to there.
  std::vector<Performing> actors{};
  std::vector<std::unique_ptr<Port>> ports{};
  std::vector<Performer*> performers{};     // the actors' own; null as they are
  std::vector<RoleTag> roles{};             // as what the machines of all processes speak
  RecorderActor recorder{};                 // null where another process has it
  std::atomic<std::int64_t> unrecorded{0};  // batches that the recorder has yet to see to
  std::promise<Ending> ending{};
  std::atomic<bool> ended{false};
  std::atomic<int> busy{0};  // jobs that run
  // When the last of the messages that are under way comes, or came, in own_time()
  std::atomic<double> due{0};
  std::atomic<double> due_from_others{0};  // the same without the alarms
  std::atomic<double> put_forward{0};      // seconds, of the run's clock

  /// Whether machine `id` plays in this process.
  bool is_here(ActorId id) const { return !options.others || options.others->is_here(id); }

  /// Seconds of the run's clock.
  double now() const { return put_forward + own_time(); }

  /// Puts the run's clock forward where it shows less than `at`, which the clock of another host has shown before: so what
  /// follows from something is never earlier than that (Lamport 1978). From any thread.
  void not_before(double at);

  /// The same as now(), but for what the clock was put forward by: it goes as fast as CAF's clock, and never jumps.
  double own_time() const {
    return before + std::chrono::duration<double>(Clock::now() - start).count();
  }

  Workplace& workplace_of(ActorId id) const {
    return *workplaces[static_cast<std::size_t>(cast.members[id].thread)];
  }

  /// Messages delivered here so far.
  std::uint64_t deliveries() const;

  /// Hands the batch to the recorder, which is in this process. From any thread.
  void record(RecordBatch batch);

  /// The first to call it decides. From any thread.
  void end(Ending how);
  /// ... because somebody was lost for good.
  void lose(std::string cause, LossKind loss);

  /// A message after `seconds`, never a sleep.
  void send_later(ActorId to, double seconds, Message message);
};

/// Asks every machine of this process what it waits for and has; by ActorId, empty for those of others. Who
/// is gone waits for nothing and has nothing.
std::vector<Standstill> ask_everyone(const Theatre& theatre);

}  // namespace troupe
