#include "runtime/system/standing_still.hpp"

#include "messages/servers.hpp"
#include "runtime/system/performer.hpp"

#include <caf/scoped_actor.hpp>
#include <caf/send.hpp>

#include <algorithm>
#include <chrono>
#include <map>
#include <thread>
#include <utility>

namespace troupe {
namespace {

constexpr std::chrono::milliseconds kPause{1};
constexpr std::chrono::milliseconds kLookAround{100};

// A checkpoint, and a user who wants to end the run, wait so long for messages that are under way by modelled times.
constexpr double kLateMax = 60;  // seconds
constexpr const char* kTooLate =
    "messages are under way (clock.modelled) that come in more than a minute; a checkpoint would "
    "have to wait for them";

struct Rest {
  bool complete = true;         // nobody has a job left
  bool too_late = false;        // messages that are still under way were not waited for
  std::vector<ActorId> gone{};  // who does not answer any more
};

/// Asks all to keep their messages, and what has come of that.
Rest ask_all(const caf::scoped_actor& self, const Theatre& theatre) {
  const auto ask = [&](const Performing& actor) {
    return self->request(actor, caf::infinite, Freeze::value);
  };
  std::map<ActorId, decltype(ask(Performing{}))> questions;
  for (std::size_t id = 0; id < theatre.actors.size(); ++id) {
    if (theatre.actors[id]) {
      questions.emplace(static_cast<ActorId>(id), ask(theatre.actors[id]));
    }
  }
  Rest rest;
  for (auto& [id, question] : questions) {
    question.receive([&](bool idle) { rest.complete = rest.complete && idle; },
                     [&, gone = id](const caf::error&) { rest.gone.push_back(gone); });
  }
  return rest;
}

/// Returns when CAF's clock has sent all that it was given to send until now but alarms: it keeps the
/// order of times, so what it is given last for a later time comes last. False: given up before.
bool await_late_messages(const caf::scoped_actor& self,
                         const Theatre& theatre,
                         const std::function<bool()>& given_up) {
  constexpr double kLater = 0.005;  // seconds; the clock's own idea of now may be that much behind
  const double left = std::max(0.0, theatre.due_from_others - theatre.own_time()) + kLater;
  self->delayed_send(
      self, std::chrono::nanoseconds(static_cast<std::int64_t>(left * 1e9)), Thaw::value);
  bool come = false;
  while (!come && !given_up()) {
    self->receive([&](Thaw) { come = true; }, caf::after(kLookAround) >> [] {});
  }
  return come;
}

/// Until all jobs are done and nothing is on its way. What jobs have made, and what came late, stands
/// among the messages that are kept once all have been asked again. Nothing where others do not come to rest.
std::optional<Rest> come_to_rest(const Theatre& theatre) {
  const caf::scoped_actor self{theatre.system};
  const auto& interrupts = theatre.options.interrupts;
  const auto given_up = [&theatre, &interrupts, before = interrupts ? interrupts() : 0] {
    return theatre.ended || (interrupts && interrupts() > before);
  };
  Rest rest = ask_all(self, theatre);
  while (!rest.complete) {
    if (given_up()) {
      return {};
    }
    std::this_thread::sleep_for(kPause);
    rest = ask_all(self, theatre);
  }
  if (theatre.options.others && !theatre.options.others->settle()) {
    return {};
  }
  const bool too_late = theatre.due_from_others - theatre.own_time() > kLateMax;
  if (theatre.due_from_others > 0 && !too_late && !await_late_messages(self, theatre, given_up)) {
    return {};
  }
  if (theatre.recorder) {
    // What was recorded may be news for the Director.
    self->request(theatre.recorder, caf::infinite, Freeze::value)
        .receive([](bool) {}, [](const caf::error&) {});
  }
  // A job may have begun since (is_awaited_by_jobs); those that wait for it are done, so that it will be, too.
  for (rest = ask_all(self, theatre); !rest.complete; rest = ask_all(self, theatre)) {
    if (given_up()) {
      return {};
    }
    std::this_thread::sleep_for(kPause);
  }
  rest.too_late = too_late;
  for (const auto& place : theatre.workplaces) {
    if (place) {
      for (const auto& [where, stream] : place->streams) {
        stream->synchronize();  // what a job has enqueued on a GPU is done then
      }
    }
  }
  return rest;
}

/// The machines here and what is kept for them, to write; what is kept stays.
RunState state_of(const Theatre& theatre, const std::vector<ActorId>& gone) {
  RunState state{.now = theatre.now(), .delivered = 0, .pending = {}, .gone = gone, .free_at = {}};
  for (std::size_t id = 0; id < theatre.performers.size(); ++id) {
    if (!theatre.performers[id]) {
      continue;
    }
    const auto to = static_cast<ActorId>(id);
    bool rung = false;  // its alarm is among them
    for (const Message& message : theatre.performers[id]->held()) {
      state.pending.push_back({state.now, state.pending.size(), to, message});
      rung = rung || holds_alternative<Alarm>(message);
    }
    if (const auto& alarm = theatre.performers[id]->alarm(); alarm && !rung) {
      state.pending.push_back({*alarm, state.pending.size(), to, sent_by(to, Alarm{})});
    }
  }
  for (const auto& place : theatre.workplaces) {
    state.free_at.push_back(place ? place->free_at : 0);
  }
  return state;
}

/// ... and those elsewhere. ArchiveError; NotNow where it is too late here, or in a process that says so.
void write(Theatre& theatre, const Rest& rest, const Result<Others::Kept>& elsewhere, Archive& a) {
  if (rest.too_late) {
    throw NotNow(kTooLate);
  }
  if (!elsewhere && elsewhere.error().message.find(kTooLate) != std::string::npos) {
    throw NotNow(elsewhere.error().message);
  }
  if (!elsewhere) {
    throw ArchiveError(elsewhere.error().message);
  }
  RunState state = state_of(theatre, rest.gone);
  state.gone.insert(state.gone.end(), elsewhere->lost.begin(), elsewhere->lost.end());
  state.elsewhere = elsewhere->parts;
  archive_run(a, theatre.cast, state);
}

std::vector<Standstill> ask_all_machines(const Theatre& theatre, const Rest& rest) {
  std::vector<Standstill> told = standstills_of(theatre.cast, {rest.gone.begin(), rest.gone.end()});
  if (theatre.options.others) {
    theatre.options.others->explain(told);
  }
  return told;
}

/// An alarm that has not gone off.
bool is_ahead(const Pending& p, const RunState& state) {
  return holds_alternative<Alarm>(p.message) && p.time > state.now;
}

/// A run that goes on from here would go on to lose a machine: whether it bears that is not known yet.
bool has_news_of_a_loss(const Theatre& theatre) {
  const auto& news = theatre.performers[theatre.cast.director.id]->held();
  return std::ranges::any_of(
      news, [](const Message& message) { return holds_alternative<Down>(message); });
}

}  // namespace

void freeze_all(const Theatre& theatre) {
  for (Performer* performer : theatre.performers) {
    if (performer) {
      performer->freeze();
    }
  }
}

void thaw_all(const Theatre& theatre) {
  for (const Performing& actor : theatre.actors) {
    if (actor) {
      caf::anon_send(actor, Thaw::value);
    }
  }
}

void take_snapshot(Theatre& theatre) {
  Others* const others = theatre.options.others;
  if (others) {
    others->halt();
  }
  const auto rest = come_to_rest(theatre);
  if (rest && !theatre.ended) {
    const auto elsewhere = others ? others->gather() : Others::Kept{};
    const bool known = elsewhere || elsewhere.error().kind == ErrorKind::data;
    if (known && !has_news_of_a_loss(theatre)) {
      theatre.options.snapshot({.archive = [&](Archive& a) { write(theatre, *rest, elsewhere, a); },
                                .explain =
                                    [&] {
                                      return ask_all_machines(theatre, *rest);
                                    }});
    }
  }
  thaw_all(theatre);
  if (others) {
    others->go_on();
  }
}

bool await_turns(const Theatre& theatre, const std::function<bool()>& given_up) {
  const caf::scoped_actor self{theatre.system};
  if (theatre.due_from_others > 0 && !await_late_messages(self, theatre, given_up)) {
    return false;
  }
  const auto ask = [&](const Performing& actor) {
    return self->request(actor, caf::infinite, Explain::value);
  };
  std::vector<decltype(ask(Performing{}))> questions;
  for (const Performing& actor : theatre.actors) {
    if (actor) {
      questions.push_back(ask(actor));
    }
  }
  for (auto& question : questions) {
    question.receive([](const Standstill&) {}, [](const caf::error&) {});
  }
  return true;
}

std::optional<Archived> state_at_rest(Theatre& theatre) {
  const auto rest = come_to_rest(theatre);
  if (!rest || theatre.ended) {
    return {};
  }
  if (rest->too_late) {
    throw ArchiveError(kTooLate);
  }
  RunState state = state_of(theatre, rest->gone);
  Archive a;
  archive_part(a, theatre.cast, state);
  return a.take();
}

void take_up(Theatre& theatre, const RunState& state) {
  for (std::size_t i = 0; i < std::min(theatre.workplaces.size(), state.free_at.size()); ++i) {
    if (theatre.workplaces[i]) {
      theatre.workplaces[i]->free_at = state.free_at[i];
    }
  }
  std::vector<Pending> pending = state.pending;
  std::sort(pending.begin(), pending.end(), earlier);
  for (Pending& p : pending) {
    Performer* const performer = theatre.performers[p.to];
    if (performer && is_ahead(p, state)) {
      performer->alarm() = p.time;
    } else if (performer) {
      performer->held().push_back(std::move(p.message));
    }
  }
}

void wake_up(Theatre& theatre, const RunState& state) {
  for (const Pending& p : state.pending) {
    if (theatre.is_here(p.to) && is_ahead(p, state)) {
      theatre.send_later(p.to, p.time - state.now, sent_by(p.to, Alarm{}));
    }
  }
  for (const ActorId id : state.gone) {
    if (theatre.actors[id]) {
      // In order, not by a death: the Director has heard of that before, and nobody records it once more.
      caf::anon_send_exit(theatre.actors[id], caf::exit_reason::user_shutdown);
    }
  }
}

}  // namespace troupe
