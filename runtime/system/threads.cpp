#include "runtime/system/threads.hpp"

#include "kernels/stream.hpp"

#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>
#include <caf/allowed_unsafe_message_type.hpp>
#include <caf/event_based_actor.hpp>
#include <caf/scoped_actor.hpp>
#include <caf/send.hpp>
#include <caf/stateful_actor.hpp>
#include <caf/typed_actor.hpp>
#include <caf/typed_event_based_actor.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <future>
#include <map>
#include <stdexcept>
#include <utility>

namespace troupe {

/// A message with its recipient: all that travels between shells.
struct Envelope {
  ActorId to = 0;
  Message message;
  bool delayed = false;  // was under way for its modelled time
};

struct RecordBatch {
  std::vector<RecordEntry> entries;
  double now = 0;
};

/// Name and `waits_for` of each machine of a shell.
struct WaitReport {
  std::vector<std::pair<std::string, std::string>> waits;
};

}  // namespace troupe

// In process only: tensors travel as handles. What crosses a process border will have a form of its
// own.
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::Envelope)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::RecordBatch)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::WaitReport)

namespace troupe {
namespace {

using Clock = std::chrono::steady_clock;
using resume_atom = caf::atom_constant<caf::atom("resume")>;
using explain_atom = caf::atom_constant<caf::atom("explain")>;
using flush_atom = caf::atom_constant<caf::atom("flush")>;

using ShellActor = caf::typed_actor<caf::reacts_to<Envelope>,
                                    caf::reacts_to<resume_atom>,
                                    caf::replies_to<explain_atom>::with<WaitReport>>;
using RecorderActor =
    caf::typed_actor<caf::reacts_to<RecordBatch>, caf::replies_to<flush_atom>::with<bool>>;

constexpr int kJobsAheadMax = 8;          // of a GPU: a shell's thread enqueues no further
constexpr double kDelaySecondsMax = 1e9;  // 32 years; the clock counts nanoseconds in 64 bits

/// What all shells of a run share.
struct Theatre {
  Cast& cast;
  const ThreadOptions& options;
  Clock::time_point start = Clock::now();
  std::vector<ShellActor> shells;  // by thread; complete before the first Start is sent
  RecorderActor recorder;
  std::promise<Ending> ending;
  std::atomic<bool> ended{false};
  std::atomic<std::uint64_t> deliveries{0};
  std::atomic<int> busy{0};  // jobs that run, and modelled results on their way

  double now() const { return std::chrono::duration<double>(Clock::now() - start).count(); }

  void end(Ending how) {
    if (!ended.exchange(true)) {
      how.seconds = now();
      ending.set_value(std::move(how));
    }
  }
};

struct ShellState {
  static inline const char* name = "shell";

  ShellActor::pointer self = nullptr;
  Theatre* theatre = nullptr;
  int thread = 0;
  OrderSink* order = nullptr;
  std::deque<Envelope> inbox;  // for machines of this thread
  std::deque<std::pair<ActorId, Run>> jobs;
  std::map<std::pair<Device, Precision>, std::unique_ptr<Stream>> streams;
  std::deque<Event> ahead;  // one a job that a GPU has not finished yet
  double free_at = 0;       // modelled times: when the thread's last job is over
  RecordBatch records;
  Effects fx;

  void deliver_all();
  void run_one_job();
  void turn(Envelope first);
  void turn();
  void die(ActorId who, const std::string& cause);
  double link_seconds(const Message& message) const;
  void send_later(const ShellActor& to, double seconds, Envelope envelope);
};

/// Hands every waiting message to its machine and its sends to where they belong.
void ShellState::deliver_all() {
  Cast& cast = theatre->cast;
  while (!inbox.empty()) {
    Envelope envelope = std::move(inbox.front());
    inbox.pop_front();
    const double now = theatre->now();
    theatre->deliveries.fetch_add(1, std::memory_order_relaxed);
    if (order) {
      order->delivered(now, envelope.to, envelope.message.index(), message_stamp(envelope.message));
    }
    try {
      cast.members[envelope.to].machine->on(std::move(envelope.message), now, fx);
    } catch (const std::exception& error) {
      die(envelope.to, error.what());
      return;
    }
    for (Effects::Send& send : fx.sends) {
      const int to = cast.members[send.to].thread;
      if (to == thread) {
        inbox.push_back({send.to, std::move(send.message)});
      } else if (const double seconds = send.modelled ? link_seconds(send.message) : 0;
                 seconds > 0) {
        send_later(theatre->shells[static_cast<std::size_t>(to)],
                   seconds,
                   {send.to, std::move(send.message)});
      } else {
        self->send(theatre->shells[static_cast<std::size_t>(to)],
                   Envelope{send.to, std::move(send.message)});
      }
    }
    for (Run& run : fx.runs) {
      jobs.emplace_back(envelope.to, std::move(run));
    }
    for (RecordEntry& record : fx.records) {
      records.entries.push_back(std::move(record));
    }
    if (fx.alarm) {
      send_later(self, std::max(0.0, *fx.alarm - now), {envelope.to, Alarm{}});
    }
    if (fx.ending) {
      theatre->end(std::move(*fx.ending));
    }
    fx.clear();
  }
}

void ShellState::run_one_job() {
  auto [who, run] = std::move(jobs.front());
  jobs.pop_front();
  const Cast::Member& member = theatre->cast.members[who];
  const double start = theatre->now();
  theatre->busy.fetch_add(1, std::memory_order_relaxed);
  Message made;
  const Stamp stamp = run.stamp;
  const Work work = run.work;
  const double begin =
      std::max(start, free_at);  // by the model, which knows nothing of the messages' way
  const double modelled =
      theatre->options.modelled ? theatre->options.modelled->work(run, begin) : 0;
  if (modelled > 0) {
    free_at = begin + modelled;
  }
  try {
    auto& stream = streams[{member.device, member.precision}];
    if (!stream) {
      stream = std::make_unique<Stream>(member.device, member.precision);
    }
    made = run_job(run, *stream);
    if (member.device.kind != DeviceKind::cpu) {
      ahead.push_back(stream->record());
      if (ahead.size() > kJobsAheadMax) {
        ahead.front().wait();
        ahead.pop_front();
      }
    }
  } catch (const std::exception& error) {
    theatre->busy.fetch_sub(1, std::memory_order_relaxed);
    die(who, error.what());
    return;
  }
  theatre->busy.fetch_sub(1, std::memory_order_relaxed);
  const double end = theatre->now();
  if (work != Work::unmodelled) {
    records.entries.push_back(
        modelled > 0 ? BusyRecord{who, begin, std::max(end, free_at), to_string(work), stamp}
                     : BusyRecord{who, start, end, to_string(work), stamp});
  }
  double left = modelled > 0 ? free_at - end : 0;
  const auto replica = static_cast<std::size_t>(theatre->cast.members[who].replica);  // -1: none
  if (const std::vector<double>& factors = theatre->options.hold_back;
      !theatre->options.modelled && work != Work::unmodelled && replica < factors.size()) {
    left = (end - start) * (factors[replica] - 1);
  }
  if (left > 0) {
    send_later(self, left, {who, std::move(made)});
  } else {
    inbox.push_back({who, std::move(made)});
  }
}

double ShellState::link_seconds(const Message& message) const {
  return theatre->options.modelled ? theatre->options.modelled->link(message) : 0;
}

/// A message after the delay, never a sleep: the shell stays responsive.
void ShellState::send_later(const ShellActor& to, double seconds, Envelope envelope) {
  seconds = std::min(seconds, kDelaySecondsMax);
  theatre->busy.fetch_add(1, std::memory_order_relaxed);
  envelope.delayed = true;
  self->delayed_send(
      to, std::chrono::nanoseconds(static_cast<std::int64_t>(seconds * 1e9)), std::move(envelope));
}

void ShellState::turn(Envelope first) {
  if (first.delayed) {
    theatre->busy.fetch_sub(1, std::memory_order_relaxed);
  }
  inbox.push_back(std::move(first));
  turn();
}

/// Messages, then one job, then its messages. A further job waits for a message to self, so that
/// what came in meanwhile (an evaluation, the end of the run) has its turn.
void ShellState::turn() {
  deliver_all();
  if (!jobs.empty() && !theatre->ended) {
    run_one_job();
    deliver_all();
    if (!jobs.empty()) {
      self->send(self, resume_atom::value);
    }
  }
  if (!records.entries.empty()) {
    records.now = theatre->now();
    self->send(theatre->recorder, std::exchange(records, {}));
  }
}

void ShellState::die(ActorId who, const std::string& cause) {
  const Cast& cast = theatre->cast;
  inbox.clear();
  jobs.clear();
  fx.clear();
  if (cast.members[cast.director.id].thread == thread) {
    Ending ending;
    ending.exit_code = static_cast<int>(ErrorKind::lost);
    ending.cause = cast.members[who].name + " is lost: " + cause;
    theatre->end(std::move(ending));
  } else {
    const auto director = static_cast<std::size_t>(cast.members[cast.director.id].thread);
    self->send(theatre->shells[director],
               Envelope{cast.director.id, Down{cast.members[who].name, cause, who}});
  }
  self->quit(caf::exit_reason::unhandled_exception);
}

ShellActor::behavior_type shell(ShellActor::stateful_pointer<ShellState> self,
                                Theatre* theatre,
                                int thread) {
  ShellState& state = self->state;
  state.self = self;
  state.theatre = theatre;
  state.thread = thread;
  const auto index = static_cast<std::size_t>(thread);
  state.order = index < theatre->options.orders.size() ? theatre->options.orders[index] : nullptr;
  return {
      [self](Envelope& envelope) { self->state.turn(std::move(envelope)); },
      [self](resume_atom) { self->state.turn(); },
      [self](explain_atom) {
        WaitReport report;
        for (const Cast::Member& member : self->state.theatre->cast.members) {
          if (member.thread == self->state.thread) {
            report.waits.emplace_back(member.name, member.machine->waits_for());
          }
        }
        return report;
      },
  };
}

RecorderActor::behavior_type recorder(RecorderActor::pointer self,
                                      Theatre* theatre,
                                      RecordSink* sink) {
  return {
      [=](RecordBatch& batch) {
        for (const RecordEntry& entry : batch.entries) {
          if (auto diverged = sink->on(entry, batch.now)) {
            const ActorId director = theatre->cast.director.id;
            const auto thread = static_cast<std::size_t>(theatre->cast.members[director].thread);
            self->send(theatre->shells[thread], Envelope{director, std::move(*diverged)});
          }
        }
      },
      [](flush_atom) { return true; },
  };
}

/// Sees shells go that did not say why, and tells the Director.
struct WatcherState {
  static inline const char* name = "watcher";
};

using WatcherActor = caf::typed_actor<caf::replies_to<flush_atom>::with<bool>>;

WatcherActor::behavior_type watcher(WatcherActor::stateful_pointer<WatcherState> self,
                                    Theatre* theatre) {
  self->set_down_handler([theatre](const caf::down_msg& down) {
    if (theatre->ended || down.reason == caf::exit_reason::unhandled_exception) {
      return;  // over, or it has told the Director itself
    }
    if (theatre->recorder.address() == down.source) {
      theatre->end({.exit_code = static_cast<int>(ErrorKind::lost),
                    .cause = "the recorder is lost: what it was told could not be kept",
                    .step = 0,
                    .weights = {}});
      return;
    }
    for (std::size_t t = 0; t < theatre->shells.size(); ++t) {
      if (theatre->shells[t].address() == down.source) {
        std::string names;
        for (const Cast::Member& member : theatre->cast.members) {
          if (member.thread == static_cast<int>(t)) {
            names += (names.empty() ? "" : ", ") + member.name;
          }
        }
        Ending ending;
        ending.exit_code = static_cast<int>(ErrorKind::lost);
        ending.cause = names + " is lost: its actor ended without a word";
        theatre->end(std::move(ending));
      }
    }
  });
  for (const ShellActor& shell_actor : theatre->shells) {
    self->monitor(shell_actor);
  }
  self->monitor(theatre->recorder);
  return {[](flush_atom) {
    return true;
  }};
}

std::string ask_everyone(caf::actor_system& system, const Theatre& theatre) {
  std::vector<std::pair<std::string, std::string>> waits;
  caf::scoped_actor self{system};
  for (const ShellActor& shell_actor : theatre.shells) {
    self->request(shell_actor, std::chrono::seconds(1), explain_atom::value)
        .receive(
            [&](const WaitReport& report) {
              waits.insert(waits.end(), report.waits.begin(), report.waits.end());
            },
            [&](const caf::error&) {
              waits.emplace_back("a thread", "something inside a handler");
            });
  }
  return explain_stall(waits);
}

/// system.spawn<detached>(args...). CAF counts an actor before it makes its thread; where that fails
/// the actor neither runs nor ends, so it is taken off again: the system waits for all it counts.
template <class... Args>
auto spawn_detached(caf::actor_system& system, const Args&... args) {
  const std::size_t actors = system.registry().running();
  const std::size_t threads = system.detached_actors();
  try {
    return system.spawn<caf::detached>(args...);
  } catch (...) {
    if (system.registry().running() > actors) {
      system.registry().dec_running();
    }
    if (system.detached_actors() > threads) {
      system.dec_detached_threads();
    }
    throw;
  }
}

/// The recorder and a shell a thread. Throws where the machine has no room for so many; then none is
/// left.
void hire(caf::actor_system& system, Theatre& theatre, RecordSink& records) {
  try {
    theatre.recorder = spawn_detached(system, recorder, &theatre, &records);
    for (int thread = 0; thread < theatre.cast.threads; ++thread) {
      theatre.shells.push_back(spawn_detached(system, shell, &theatre, thread));
    }
  } catch (const std::exception& error) {
    const std::string cause = concat("only ",
                                     theatre.shells.size(),
                                     " of the run's ",
                                     theatre.cast.threads,
                                     " threads could be made: ",
                                     error.what());
    for (const ShellActor& made : std::exchange(theatre.shells, {})) {
      caf::anon_send_exit(made, caf::exit_reason::user_shutdown);
    }
    if (theatre.recorder) {
      caf::anon_send_exit(std::exchange(theatre.recorder, {}), caf::exit_reason::user_shutdown);
    }
    system.await_all_actors_done();
    throw std::runtime_error(cause);
  }
}

}  // namespace

Ending run_on_threads(Cast& cast, RecordSink& records, const ThreadOptions& options) {
  caf::actor_system_config config;
  config.set("scheduler.policy", caf::atom("sharing"));
  config.set("scheduler.max-threads",
             std::size_t{1});  // shells are detached; only the watcher is scheduled
  caf::actor_system system{config};
  Theatre theatre{.cast = cast, .options = options, .shells = {}, .recorder = {}, .ending = {}};
  hire(system, theatre, records);
  auto watch = system.spawn(watcher, &theatre);
  {
    // It is made when its thread gets to it, which in a short run may be after the end.
    caf::scoped_actor self{system};
    self->request(watch, caf::infinite, flush_atom::value)
        .receive([](bool) {}, [](const caf::error&) {});
  }
  const auto send = [&](ActorId to, Message message) {
    const auto thread = static_cast<std::size_t>(cast.members[to].thread);
    caf::anon_send(theatre.shells[thread], Envelope{to, std::move(message)});
  };
  theatre.start = Clock::now();
  for (const ActorId id : cast.starting) {
    send(id, Start{});
  }

  std::future<Ending> future = theatre.ending.get_future();
  std::uint64_t seen = 0;
  int interrupts = 0;
  Clock::time_point moved = Clock::now();
  while (future.wait_for(std::chrono::milliseconds(100)) != std::future_status::ready) {
    const std::uint64_t deliveries = theatre.deliveries.load(std::memory_order_relaxed);
    if (deliveries != seen || theatre.busy.load(std::memory_order_relaxed) > 0) {
      seen = deliveries;
      moved = Clock::now();
    }
    if (std::chrono::duration<double>(Clock::now() - moved).count() > options.stall_seconds) {
      Ending ending;
      ending.exit_code = static_cast<int>(ErrorKind::lost);
      ending.cause = ask_everyone(system, theatre);
      theatre.end(std::move(ending));
    }
    const int asked = options.interrupts ? options.interrupts() : 0;
    if (asked > interrupts) {
      interrupts = asked;
      if (asked >= 2) {
        Ending ending;
        ending.exit_code = 130;
        ending.cause = "interrupted";
        theatre.end(std::move(ending));
      } else {
        send(cast.director.id, Halt{});
      }
    }
  }
  Ending ending = future.get();
  if (interrupts > 0 && ending.exit_code == 0) {
    ending.exit_code = 130;
    ending.cause = "interrupted";
  }

  // Records were sent before the deliveries that led here, so a request behind them sees them all
  // handled.
  {
    caf::scoped_actor self{system};
    for (const ShellActor& shell_actor : theatre.shells) {
      self->send_exit(shell_actor, caf::exit_reason::user_shutdown);
    }
    self->wait_for(theatre.shells);
    self->request(theatre.recorder, std::chrono::seconds(60), flush_atom::value)
        .receive([](bool) {}, [](const caf::error&) {});
    self->send_exit(theatre.recorder, caf::exit_reason::user_shutdown);
    self->send_exit(watch, caf::exit_reason::user_shutdown);
  }
  theatre.shells.clear();
  theatre.recorder = RecorderActor{};
  watch = WatcherActor{};
  system.await_all_actors_done();
  return ending;
}

}  // namespace troupe
