// A machine is an actor's logic: a plain state machine, `on(message, now) -> effects`. Its only inputs are its messages and
// the time. A driver delivers the messages and carries out the effects; there is one for threads (threads.hpp) and one
// for virtual time (agenda.hpp), and the same machine runs under both.
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
  unmodelled,  // takes no time in the model: gathering samples, evaluations, norms
  forward,
  input_gradient,
  weight_gradient,
  backward,  // both halves at once
  update,
  predict,        // the forward of a Predictor of error signals
  teach,          // and its training
  predict_input,  // the same of a Predictor of inputs
  teach_input,
};

/// A job: a pure function of tensors, which the driver runs on the machine's device. Tensors that it changes in place move
/// into it and come back with its result.
struct Run {
  Lane lane = Lane::sequence;  // results of one lane come back in order
  Work work = Work::unmodelled;
  std::int32_t stage = 0;  // the stage whose speed the time model applies
  Stamp stamp;
  bool shared = false;  // work of a server, which a slow replica does not slow down
  std::function<Message(Stream&)> job{};  // returns the message Ran<T> for the machine (Actor::run)
};

/// Why a run has ended that could not go on.
enum class LossKind : std::uint8_t {
  none,
  machine,  // a handler of a machine has thrown
  process,  // a process was lost with its machines, or could reach no other
  stall,    // no message was under way
};

/// How a run ended.
struct Ending {
  int exit_code = 0;
  std::string cause;      // empty where all is well
  std::int64_t step = 0;  // the run's last step
  // The step of `weights` where it is not the last one (record.best)
  std::optional<std::int64_t> best{};
  std::vector<Weights> weights;                // by chunk; empty where the run failed
  std::vector<std::vector<Tensor>> buffers{};  // by chunk, in layer order
  double seconds = 0;  // of the run's clock, when it ended; the driver fills it in
  LossKind loss = LossKind::none;
};

/// What a machine wants done. `on` fills it; the driver carries it out, sends before runs.
class Effects {
 public:
  /// A message on its way. Only Effects makes one, so that no recipient gets a message that it does not understand.
  class Send {
   public:
    ActorId to;
    Message message;
    bool modelled;  // a tensor between stages or replicas: takes the link's modelled time

   private:
    friend class Effects;

    Send(ActorId recipient, Message content, bool takes_time)
        : to(recipient), message(std::move(content)), modelled(takes_time) {}
  };

  template <class Role, class M>
  void send(Ref<Role> to, M&& message) {
    send_if<Role, M>(to.id, std::forward<M>(message), std::remove_cvref_t<M>::kFacts.travels);
  }

  /// The same without the link's time: to a machine on the same thread, or for what takes no time in the model.
  template <class Role, class M>
  void send_beside(Ref<Role> to, M&& message) {
    send_if<Role, M>(to.id, std::forward<M>(message), false);
  }

  /// Forwards a message to a machine with the role of its first recipient: nothing is checked here.
  void pass_on(ActorId to, Message message, bool modelled) {
    sends.push_back(Send(to, std::move(message), modelled));
  }

  void run(Run job) { runs.push_back(std::move(job)); }

  template <class Record>
  void record(Record&& entry) {
    records.emplace_back(std::forward<Record>(entry));
  }

  /// Asks for an Alarm at time `at`; of several that one call of `on` asks for, the last counts.
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

/// What is left of the model in a machine when a run has stalled: the newest weights of a chunk or of one of its slices,
/// and buffers of chunks.
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

  /// What it has of the model; nothing in a machine that has none of it.
  virtual Remains remains() const { return {}; }

  /// For checkpoints: writes all its state, or reads it into a machine that was made from the same Config. ArchiveError
  /// by default: the machine cannot be written.
  virtual void archive(Archive& a);

  /// Which messages it understands.
  virtual RoleTag role() const { return AnyRole{}; }

  /// Itself, or what it is wrapped around.
  virtual Machine& core() { return *this; }

  /// The role that it sends messages as. A machine around another one understands more, but speaks as the inner one.
  virtual RoleTag speaks_as() const { return role(); }
};

/// Calls make(stream), which returns a T, and returns it as the message Ran<T>. Its tensors are ready() when the device has
/// computed them.
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

/// A machine with a role. Hands each message M to `Self::handle(M, double now, Effects&)`; one that the role does not list
/// is a bug.
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
  /// Asks for a job. What make(Stream&) returns, a T, comes back as the message Ran<T>.
  template <class F>
  static void run(Effects& effects, Run request, F&& make) {
    using T = std::invoke_result_t<F&, Stream&>;
    static_assert(Role::template accepts<Ran<T>>, "the machine does not understand its own job");
    request.job = [lane = request.lane, make = std::forward<F>(make)](Stream& stream) mutable {
      return ran(lane, make, stream);
    };
    effects.run(std::move(request));
  }
};

/// The machines of a run with their names, threads and devices: everything that a driver needs to run them.
struct Cast {
  struct Member {
    std::string name;  // "stage-2"
    std::unique_ptr<Machine> machine;
    int thread = 0;  // members of one thread share it; numbered from 0
    Device device;
    Precision precision = Precision::fp32;  // of matrix products in its jobs
    std::int32_t replica = -1;  // the replica that is lost with it and all its copies; -1: none
    std::int32_t stage = -1;    // the stage of its thread, counted over all replicas; -1: none
  };

  /// A machine that takes the place of one that is gone.
  struct Replacement {
    ActorId id = 0;
    std::unique_ptr<Machine> machine;
  };

  std::vector<Member> members;    // by ActorId
  std::vector<ActorId> starting;  // those that get Start, in this order
  Ref<DirectorRole> director;
  int threads = 0;
  /// Makes the machines of a replica once more, without any state; they wait for Rejoin. Empty: a replica that is lost does
  /// not come back.
  std::function<std::vector<Replacement>(std::int32_t replica)> make_replacements{};
  /// Called by the real clock when the run is over, in each process: jobs that wait for other processes return. May be empty.
  std::function<void()> over{};
  /// By the first copy of a machine: its other copies (callers.hpp), which the Witness has to know.
  std::map<ActorId, std::vector<ActorId>> copies{};
};

}  // namespace troupe
