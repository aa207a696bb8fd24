#include "runtime/system/threads.hpp"

#include "messages/pipeline.hpp"
#include "runtime/system/actor.hpp"
#include "runtime/system/room.hpp"
#include "runtime/system/standing_still.hpp"
#include "runtime/system/thread_limits.hpp"

#include <caf/actor_system_config.hpp>
#include <caf/scoped_actor.hpp>
#include <caf/send.hpp>

#include <algorithm>
#include <chrono>
#include <future>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <thread>
#include <utility>

namespace troupe {
namespace {

constexpr int kThreadsOfCaf = 2;  // its scheduler's, where nothing of ours runs, and its clock's
constexpr std::chrono::milliseconds kLook{100};  // between looks at the user and the stall
constexpr std::chrono::milliseconds kLookForSnapshots{5};
constexpr std::chrono::seconds kExplainTimeout{1};

caf::actor_system_config caf_config() {
  caf::actor_system_config config;
  config.set("scheduler.policy", caf::atom("sharing"));
  config.set("scheduler.max-threads",
             std::size_t{1});  // actors of ours take turns on threads of ours (thread.hpp)
  return config;
}

class RecorderHost final : public Pinned<RecorderActor> {
 public:
  RecorderHost(caf::actor_config& config, Thread& thread, Theatre* theatre, RecordSink* sink)
      : Pinned(config, thread), theatre_(*theatre), sink_(*sink) {
    set_exception_handler([](std::exception_ptr& e) { return reason_of(e); });
  }

  const char* name() const override { return "recorder"; }

 protected:
  RecorderActor::behavior_type make_behavior() override {
    return {[this](const RecordBatch& batch) {
              take(batch);
              theatre_.unrecorded.fetch_sub(1);
            },
            [](Freeze) {
              return true;
            }};
  }

 private:
  /// What is recorded here has been; what another process tells need not have been.
  void take(const RecordBatch& batch) {
    try {
      for (const RecordEntry& entry : batch.entries) {
        if (auto diverged = sink_.on(entry, batch.now)) {
          theatre_.ports[theatre_.cast.director.id]->send(std::move(*diverged));
        }
      }
    } catch (const ContractError& error) {
      if (batch.teller == kOutside) {
        throw;
      }
      theatre_.options.others->accuse(batch.teller, error.what());
    }
  }

  Theatre& theatre_;
  RecordSink& sink_;
};

/// Numbers of the threads whose members play in this process.
std::set<int> threads_here(const Cast& cast, const ThreadOptions& options) {
  std::set<int> here;
  for (std::size_t id = 0; id < cast.members.size(); ++id) {
    if (!options.others || options.others->is_here(static_cast<ActorId>(id))) {
      here.insert(cast.members[id].thread);
    }
  }
  return here;
}

/// The actors of a run and their threads, from the first to the last.
class Company {
 public:
  explicit Company(Theatre& theatre) : theatre_(theatre), recording_(theatre.system, recorders_) {}

  /// `records` is called on a thread of its own.
  void assemble(RecordSink& records) {
    const std::vector<OrderSink*>& orders = theatre_.options.orders;
    const std::set<int> here = threads_here(theatre_.cast, theatre_.options);
    for (int i = 0; i < theatre_.cast.threads; ++i) {
      const auto at = static_cast<std::size_t>(i);
      OrderSink* const order = at < orders.size() ? orders[at] : nullptr;
      theatre_.workplaces.push_back(
          here.contains(i) ? std::make_unique<Workplace>(theatre_.system, theatre_.crew, order)
                           : nullptr);
    }
    if (theatre_.is_here(theatre_.cast.director.id)) {
      theatre_.recorder = hire<RecorderHost>(recording_, &theatre_, &records);
    }
    for (std::size_t id = 0; id < theatre_.cast.members.size(); ++id) {
      hire_machine(theatre_, static_cast<ActorId>(id));
    }
    watch();
  }

  /// Sends everybody home. What they had recorded until then has been handed over when it returns.
  ~Company() {
    std::vector<Performing> here;
    std::copy_if(theatre_.actors.begin(),
                 theatre_.actors.end(),
                 std::back_inserter(here),
                 [](const Performing& actor) { return static_cast<bool>(actor); });
    for (const Performing& actor : here) {
      caf::anon_send_exit(actor, caf::exit_reason::user_shutdown);
    }
    // A thread may go once its actors are down: nobody can call it any more.
    caf::scoped_actor self{theatre_.system};
    self->wait_for(here);
    if (theatre_.options.others) {
      theatre_.options.others->close();  // who uses the workplaces
    }
    theatre_.workplaces.clear();
    if (theatre_.recorder) {
      caf::anon_send_exit(theatre_.recorder, caf::exit_reason::user_shutdown);
      self->wait_for(theatre_.recorder);
    }
  }

  Company(const Company&) = delete;
  Company& operator=(const Company&) = delete;

 private:
  /// The Director watches over the machines. Where it is lost itself, or the recorder, the run ends.
  void watch() {
    const ActorId director = theatre_.cast.director.id;
    if (!theatre_.is_here(director)) {
      watch_for_others();
      return;
    }
    end_with(theatre_.actors[director], theatre_.cast.members[director].name);
    end_with(theatre_.recorder, "the recorder");
    caf::anon_send(theatre_.actors[director], Watch::value);
  }

  /// ... in the process where it is.
  void watch_for_others() {
    for (std::size_t id = 0; id < theatre_.actors.size(); ++id) {
      if (theatre_.actors[id]) {
        theatre_.actors[id]->attach_functor([this, id](const caf::error& reason) {
          if (reason != caf::exit_reason::user_shutdown) {
            theatre_.options.others->down(static_cast<ActorId>(id), words_of(reason));
          }
        });
      }
    }
  }

  template <class Handle>
  void end_with(const Handle& actor, const std::string& name) {
    actor->attach_functor([this, name](const caf::error& reason) {
      theatre_.lose(name + " is lost: " + words_of(reason), LossKind::machine);
    });
  }

  Theatre& theatre_;
  Crew recorders_{false};  // one, who may wait for a disk, which no machine has to wait for
  Thread recording_;
};

}  // namespace

std::vector<Standstill> ask_everyone(const Theatre& theatre) {
  caf::scoped_actor self{theatre.system};
  const auto ask = [&](const Performing& actor) {
    return self->request(actor, kExplainTimeout, Explain::value);
  };
  // All at once: they share the timeout.
  std::map<std::size_t, decltype(ask(Performing{}))> questions;
  for (std::size_t id = 0; id < theatre.actors.size(); ++id) {
    if (theatre.actors[id]) {
      questions.emplace(id, ask(theatre.actors[id]));
    }
  }
  std::vector<Standstill> told(theatre.actors.size());
  for (auto& [id, question] : questions) {
    Standstill& of = told[id];
    question.receive([&](const Standstill& answer) { of = answer; },
                     [&](const caf::error& error) {
                       if (error == caf::sec::request_timeout) {
                         of.waits_for = "its thread, where a handler does not return";
                       } else {
                         of.gone = true;
                       }
                     });
  }
  return told;
}

namespace {

/// How the run ends that has stalled.
Ending end_of_stalled(const Theatre& theatre) {
  std::vector<Standstill> told = ask_everyone(theatre);
  if (theatre.options.others) {
    theatre.options.others->explain(told);
  }
  Ending ending = stalled(theatre.cast, std::move(told));
  if (theatre.options.others) {
    ending.cause += " " + theatre.options.others->players();
  }
  return ending;
}

/// Tells when a run has stalled: for so long no message has come, no job has run and none is under
/// way.
class StallWatch {
 public:
  explicit StallWatch(const Theatre& theatre) : theatre_(theatre), moved_(theatre.own_time()) {}

  /// It has stood still because it was told to.
  void moved() { moved_ = theatre_.own_time(); }

  bool stalled() {
    const Others* others = theatre_.options.others;
    const Others::Progress elsewhere = others ? others->progress() : Others::Progress{};
    const std::uint64_t deliveries = theatre_.deliveries() + elsewhere.deliveries;
    const double now = theatre_.own_time();
    if (deliveries != seen_ || theatre_.busy > 0 || elsewhere.busy ||
        std::max(theatre_.due.load(), elsewhere.due) > now) {
      seen_ = deliveries;
      moved_ = now;
    }
    return now - moved_ > theatre_.options.stall_seconds;
  }

 private:
  const Theatre& theatre_;
  std::uint64_t seen_ = 0;
  double moved_;
};

/// Waits for the run's end, looking after its stalls and the user's wishes meanwhile.
Ending await_ending(Theatre& theatre) {
  std::future<Ending> future = theatre.ending.get_future();
  StallWatch watch(theatre);
  int interrupts = 0;
  const auto look = theatre.options.snapshot_due ? kLookForSnapshots : kLook;
  while (future.wait_for(look) != std::future_status::ready) {
    if (watch.stalled()) {
      theatre.end(end_of_stalled(theatre));
    }
    const int asked = theatre.options.interrupts ? theatre.options.interrupts() : 0;
    if (asked > interrupts) {
      interrupts = asked;
      if (asked >= 2) {
        theatre.end({.exit_code = 130, .cause = "interrupted", .weights = {}});
        continue;
      }
      if (theatre.options.snapshot) {
        take_snapshot(theatre);  // the last: what comes now is the run's end
      }
      theatre.ports[theatre.cast.director.id]->send(Halt{});
    } else if (interrupts == 0 && theatre.options.snapshot_due && theatre.options.snapshot_due()) {
      take_snapshot(theatre);
      watch.moved();
    }
  }
  Ending ending = future.get();
  if (interrupts > 0 && ending.exit_code == 0) {
    ending.exit_code = 130;
    ending.cause = "interrupted";
  }
  return ending;
}

/// From the first message to the end, when all that has been recorded anywhere has been handed over.
/// `state`: what the run goes on from; null where it begins, or where others have it.
Ending play(Theatre& theatre, RecordSink& records, const RunState* state) {
  Company company(theatre);
  company.assemble(records);
  Others* const others = theatre.options.others;
  if (state) {
    theatre.before = state->now;
    freeze_all(theatre);
    take_up(theatre, *state);
  } else if (others && others->resumes()) {
    freeze_all(theatre);
  }
  theatre.start = Theatre::Clock::now();
  if (const auto opened = others ? others->open(theatre) : Result<void>(); !opened) {
    theatre.lose(opened.error().message, LossKind::process);
  } else if (state) {
    wake_up(theatre, *state);
    thaw_all(theatre);
    if (others) {
      others->go_on();
    }
  } else if (!others || !others->resumes()) {
    for (const ActorId id : theatre.cast.starting) {
      if (theatre.is_here(id)) {
        theatre.ports[id]->send(Start{});
      }
    }
  }
  Ending ending = await_ending(theatre);
  if (theatre.cast.over) {
    theatre.cast.over();
  }
  const auto collected = others ? others->collect(ending) : Result<void>();
  if (!collected && ending.exit_code == 0) {
    const auto& asked = theatre.options.interrupts;
    const bool interrupted = asked && asked() >= 2;
    ending.exit_code = interrupted ? 130 : static_cast<int>(collected.error().kind);
    ending.cause = interrupted ? "interrupted" : collected.error().message;
  }
  return ending;
}

/// On a thread of its own. Where CAF cannot make one of its threads (others may have taken the last since they were counted), its
/// exception would destroy the half-made system, and CAF's destructors crash on one; an exception that leaves a thread's function
/// destroys nothing, and the program ends with its last words.
void make_system(std::optional<caf::actor_system>& system, caf::actor_system_config& config) {
  made_thread([&] { system.emplace(config); }).join();
}

}  // namespace

Ending run_on_threads(Cast& cast, RecordSink& records, const ThreadOptions& options) {
  // 1: the recorder's.
  check_room_for_threads(static_cast<int>(threads_here(cast, options).size()) + 1 + kThreadsOfCaf);
  caf::actor_system_config config = caf_config();
  std::optional<caf::actor_system> system;
  make_system(system, config);
  std::optional<RunState> state;
  if (options.resume) {
    state.emplace();
    state->bounds = options.bounds;
    archive_run(*options.resume, cast, *state);
    options.resume->expect_end();
    expect_all(cast, *state);
    if (options.others) {
      options.others->deal(cast, *state);
    }
  }
  Theatre theatre{.system = *system, .cast = cast, .options = options};
  return play(theatre, records, state ? &*state : nullptr);
}

}  // namespace troupe
