// An actor is a plain state machine, `on(message, now) -> effects`. Its inputs are its inbox and
// the clock, nothing else, so the same machine runs on threads (threads.hpp) and under a virtual
// clock (agenda.hpp).
#pragma once

#include "kernels/stream.hpp"
#include "messages/ending.hpp"
#include "messages/protocol.hpp"
#include "messages/ran.hpp"
#include "messages/record.hpp"

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace troupe {

class Archive;

/// What a job is, for the time model and the busy account.
enum class Work : std::uint8_t {
  unmodelled,  // takes no modelled time: the Source's batches, marks, norms
  forward,
  input_gradient,
  weight_gradient,
  backward,  // both halves at once
  update,
  predict,  // of a predictor of error signals
  teach,
  predict_input,  // of a predictor of inputs
  teach_input,
};

/// A pure function of tensor handles, run by the driver on the machine's device. Mutable tensors
/// move in and come back.
struct Run {
  Lane lane = Lane::sequence;
  Work work = Work::unmodelled;
  std::int32_t stage = 0;  // whose modelled time applies
  Stamp stamp;
  bool shared = false;                    // a server's: a slow replica does not make it slow
  std::function<Message(Stream&)> job{};  // makes the Ran that the machine gets (Actor::run)
};

/// Of what a run has ended that could not go on.
enum class LossKind : std::uint8_t {
  none,
  machine,  // one whose handler has thrown
  process,  // one that was lost with the process that it played in, or the way to all others
  stall,    // nothing was left to happen
};

/// How a run ended.
struct Ending {
  int exit_code = 0;
  std::string cause;      // empty where all is well
  std::int64_t step = 0;  // at which the run ended
  // Step of the final weights where it is another (record.best)
  std::optional<std::int64_t> best{};
  std::vector<Weights> weights;                // by chunk; empty where the run failed
  std::vector<std::vector<Tensor>> buffers{};  // by chunk, in layer order
  double seconds = 0;  // of the run's clock, when it ended; the driver's to fill in
  LossKind loss = LossKind::none;
};

/// What a machine wants done. Filled by `on`, carried out by the driver in this order: sends, runs.
class Effects {
 public:
  /// One of them; made by Effects alone, so that no message goes to who does not understand it.
  class Send {
   public:
    ActorId to;
    Message message;
    bool modelled;  // a tensor between stages or replicas: takes the link's modelled time

   private:
    friend class Effects;

    Send(ActorId whom, Message says, bool travels)
        : to(whom), message(std::move(says)), modelled(travels) {}
  };

  template <class Role, class M>
  void send(Ref<Role> to, M&& message) {
    send_if<Role, M>(to.id, std::forward<M>(message), std::remove_cvref_t<M>::kFacts.travels);
  }

  /// To a machine on the same thread, or of what takes no time in the model: no link takes time.
  template <class Role, class M>
  void send_beside(Ref<Role> to, M&& message) {
    send_if<Role, M>(to.id, std::forward<M>(message), false);
  }

  /// What a machine has said, to one that understands what the machine that it was said to does.
  void pass_on(ActorId to, Message said, bool modelled) {
    sends.push_back(Send(to, std::move(said), modelled));
  }

  void run(Run job) { runs.push_back(std::move(job)); }

  void record(RecordEntry entry) { records.push_back(std::move(entry)); }

  /// An Alarm to the machine itself at time `at`; of several asked for in one turn the last counts.
  void wake(double at) { alarm = at; }

  void finish(Ending how) { ending = std::move(how); }

  void clear() {
    sends.clear();
    runs.clear();
    records.clear();
    alarm.reset();
    ending.reset();
  }

  std::vector<Send> sends;
  std::vector<Run> runs;
  std::vector<RecordEntry> records;
  std::optional<double> alarm;
  std::optional<Ending> ending;

 private:
  template <class Role, class M>
  void send_if(ActorId to, M&& message, bool modelled) {
    static_assert(Role::template accepts<std::remove_cvref_t<M>>,
                  "the recipient does not understand this message");
    sends.push_back(Send(to, std::forward<M>(message), modelled));
  }
};

/// What a machine holds of the model, asked for where a run has stalled: the newest weights of a chunk
/// or of one of its slices, and buffers of chunks.
struct Remains {
  std::vector<Concluded> weights;
  std::vector<Buffers> buffers;
};

class Machine {
 public:
  virtual ~Machine() = default;
  virtual void on(Message message, double now, Effects& effects) = 0;

  /// What it waits for, as the end of a sentence ("F(7) of stage 1"), or "" where it has nothing
  /// left to do.
  virtual std::string waits_for() const = 0;

  /// What it has of the model; nothing where that is not its part.
  virtual Remains remains() const { return {}; }

  /// Writes all that changes while it plays, or reads it back into a machine that was made alike, for
  /// checkpoints. ArchiveError by default: it cannot.
  virtual void archive(Archive& a);

  /// What it may be told: the type of its actor follows from it.
  virtual RoleTag role() const { return AnyRole{}; }

  /// As what it speaks: what is wrapped around an actor is told more than that, and says no more.
  virtual RoleTag speaks_as() const { return role(); }
};

/// What `make` made, T, as the message Ran<T>; its tensors are ready when the device is done with
/// them.
template <class F>
Message ran(Lane lane, F& make, Stream& stream) {
  using T = std::invoke_result_t<F&, Stream&>;
  Ran<T> done{lane, make(stream)};
  if (stream.device().kind != DeviceKind::cpu) {
    for_each_tensor(done.made,
                    [event = stream.record()](Tensor& tensor) { tensor.set_ready(event); });
  }
  return done;
}

/// Hands each message to `Self::handle(M, double now, Effects&)`; what its role does not list is a
/// bug.
template <class Self, class Role>
class Actor : public Machine {
 public:
  RoleTag role() const final { return Role{}; }

  void on(Message message, double now, Effects& effects) final {
    const bool understood = Role::dispatch(std::move(message), [&]<class M>(M&& m) {
      static_cast<Self*>(this)->handle(std::forward<M>(m), now, effects);
    });
    TROUPE_CHECK(understood, "a message that its recipient does not understand");
  }

 protected:
  /// Asks for a kernel job. What make(Stream&) returns, a T, comes back as Ran<T>.
  template <class F>
  static void run(Effects& effects, Run how, F&& make) {
    using T = std::invoke_result_t<F&, Stream&>;
    static_assert(Role::template accepts<Ran<T>>, "the machine does not understand its own job");
    how.job = [lane = how.lane, make = std::forward<F>(make)](Stream& stream) mutable {
      return ran(lane, make, stream);
    };
    effects.run(std::move(how));
  }
};

/// Machines with their names, threads and devices: everything a driver needs to bring them to life.
struct Cast {
  struct Member {
    std::string name;  // "stage-2"
    std::unique_ptr<Machine> machine;
    int thread = 0;  // members of one thread share it; numbered from 0
    Device device;
    Precision precision = Precision::fp32;  // of its jobs' products
    std::int32_t replica = -1;              // that dies with it; -1: everybody's
    std::int32_t stage = -1;  // whose time its thread's jobs take, over all replicas; -1: nobody's
  };

  /// A machine that takes the place of one that is gone.
  struct Again {
    ActorId id = 0;
    std::unique_ptr<Machine> machine;
  };

  std::vector<Member> members;    // by ActorId
  std::vector<ActorId> starting;  // who gets Start, in this order
  Ref<DirectorRole> director;
  int threads = 0;
  /// The machines of a replica anew, which know nothing and wait for Rejoin. Empty: what has died stays
  /// dead.
  std::function<std::vector<Again>(std::int32_t replica)> again{};
  /// By the first copy of a machine, the others (callers.hpp), for who watches the run.
  std::map<ActorId, std::vector<ActorId>> copies{};
};

}  // namespace troupe
