#include "runtime/system/standing_still.hpp"

#include "runtime/system/performer.hpp"

#include <caf/scoped_actor.hpp>
#include <caf/send.hpp>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

namespace troupe {
namespace {

constexpr std::chrono::milliseconds kPause{1};

struct Rest {
  bool complete = true;         // nobody has a job left
  std::vector<ActorId> gone{};  // who does not answer any more
};

/// Asks all to keep their messages, and what has come of that.
Rest ask_all(const caf::scoped_actor& self, const Theatre& theatre) {
  const auto ask = [&](const Performing& actor) {
    return self->request(actor, caf::infinite, Freeze::value);
  };
  std::vector<decltype(ask(Performing{}))> questions;
  for (const Performing& actor : theatre.actors) {
    questions.push_back(ask(actor));
  }
  Rest rest;
  for (std::size_t id = 0; id < questions.size(); ++id) {
    questions[id].receive(
        [&](bool idle) { rest.complete = rest.complete && idle; },
        [&](const caf::error&) { rest.gone.push_back(static_cast<ActorId>(id)); });
  }
  return rest;
}

/// Returns when CAF's clock has sent all that it was given to send until now but alarms: it keeps the
/// order of times, so what it is given last for a later time comes last.
void await_late_messages(const caf::scoped_actor& self, const Theatre& theatre) {
  constexpr double kLater = 0.005;  // seconds; the clock's own idea of now may be that much behind
  const double left = std::max(0.0, theatre.due_from_others - theatre.now()) + kLater;
  self->delayed_send(
      self, std::chrono::nanoseconds(static_cast<std::int64_t>(left * 1e9)), Thaw::value);
  self->receive([](Thaw) {});
}

/// Until all jobs are done and nothing is on its way. What jobs have made, and what came late, stands
/// among the messages that are kept once all have been asked again.
Rest come_to_rest(const caf::scoped_actor& self, const Theatre& theatre) {
  Rest rest = ask_all(self, theatre);
  while (!theatre.ended && !rest.complete) {
    std::this_thread::sleep_for(kPause);
    rest = ask_all(self, theatre);
  }
  if (theatre.due_from_others > 0) {
    await_late_messages(self, theatre);
  }
  // What was recorded may be news for the Director.
  self->request(theatre.recorder, caf::infinite, Freeze::value)
      .receive([](bool) {}, [](const caf::error&) {});
  return ask_all(self, theatre);
}

void thaw_all(const Theatre& theatre) {
  for (const Performing& actor : theatre.actors) {
    caf::anon_send(actor, Thaw::value);
  }
}

/// The machines and what is kept for them, to write; what is kept stays.
void write(Theatre& theatre, const std::vector<ActorId>& gone, Archive& a) {
  RunState state{.now = theatre.now(), .delivered = 0, .pending = {}, .gone = gone, .free_at = {}};
  for (std::size_t id = 0; id < theatre.performers.size(); ++id) {
    const auto to = static_cast<ActorId>(id);
    bool rung = false;  // its alarm is among them
    for (const Message& message : theatre.performers[id]->held()) {
      state.pending.push_back({state.now, state.pending.size(), to, message});
      rung = rung || std::holds_alternative<Alarm>(message);
    }
    if (const auto& alarm = theatre.performers[id]->alarm(); alarm && !rung) {
      state.pending.push_back({*alarm, state.pending.size(), to, Alarm{}});
    }
  }
  for (const auto& place : theatre.workplaces) {
    state.free_at.push_back(place->free_at);
  }
  archive_run(a, theatre.cast, state);
}

}  // namespace

void take_snapshot(caf::actor_system& system, Theatre& theatre) {
  caf::scoped_actor self{system};
  const Rest rest = come_to_rest(self, theatre);
  if (!theatre.ended) {
    for (const auto& place : theatre.workplaces) {
      for (const auto& [where, stream] : place->streams) {
        stream->synchronize();  // what a job has enqueued on a GPU is done then
      }
    }
    theatre.options.snapshot([&](Archive& a) { write(theatre, rest.gone, a); });
  }
  thaw_all(theatre);
}

void resume(Theatre& theatre, Archive& from) {
  RunState state;
  archive_run(from, theatre.cast, state);
  from.expect_end();
  theatre.start -= std::chrono::duration_cast<Theatre::Clock::duration>(
      std::chrono::duration<double>(state.now));
  for (std::size_t i = 0; i < std::min(theatre.workplaces.size(), state.free_at.size()); ++i) {
    theatre.workplaces[i]->free_at = state.free_at[i];
  }
  std::sort(state.pending.begin(), state.pending.end(), earlier);
  for (Performer* performer : theatre.performers) {
    performer->freeze();
  }
  std::vector<Pending> alarms;
  for (Pending& p : state.pending) {
    if (std::holds_alternative<Alarm>(p.message) && p.time > state.now) {
      theatre.performers[p.to]->alarm() = p.time;
      alarms.push_back(std::move(p));
    } else {
      theatre.performers[p.to]->held().push_back(std::move(p.message));
    }
  }
  for (const Pending& p : alarms) {  // from here on others write to what is held
    theatre.send_later(p.to, p.time - state.now, Alarm{});
  }
  for (const ActorId id : state.gone) {
    caf::anon_send_exit(theatre.actors[id], caf::exit_reason::kill);
  }
  thaw_all(theatre);
}

}  // namespace troupe
