#include "runtime/record/trace_timeline.hpp"

#include "runtime/record/trace_waiting.hpp"
#include "runtime/system/driver.hpp"

#include <algorithm>
#include <deque>
#include <optional>
#include <tuple>

namespace troupe {
namespace {

using Kind = TraceEvent::Kind;

/// Where a slice stands.
struct Spot {
  std::size_t track = 0;
  std::size_t slice = 0;
};

/// The tracks of one actor, or of a process's channel.
struct Lanes {
  std::size_t actor = 0;
  std::size_t work = 0;
  std::size_t messages = 0;
  std::size_t waiting = 0;
  std::map<std::string, std::size_t> counters{};
};

class Builder {
 public:
  explicit Builder(TracedRun& run) : run_(run) {}

  std::vector<TraceTrack> build() {
    merge();
    add_tracks();
    for (const TraceEvent& event : events()) {
      add(event);
    }
    add_waiting();
    draw_flows();
    for (TraceTrack& track : tracks_) {  // a slice may stand behind the copies of the one around it
      std::ranges::stable_sort(track.slices, {}, &TraceSlice::start);
    }
    return std::move(tracks_);
  }

 private:
  using Key = std::tuple<ActorId, ActorId, std::uint16_t, Stamp>;  // from, to, message

  std::vector<TraceEvent>& events() { return run_.parts.begin()->second.events; }

  bool is_known(ActorId id) const { return id < lanes_.size() && lanes_[id]; }

  int process_of(ActorId id) const { return run_.actors[id].process; }

  /// All events into the first part, and the time that all processes know of.
  void merge() {
    for (auto& [process, part] : run_.parts) {
      begin_ = std::max(begin_, part.since);
      if (&part != &run_.parts.begin()->second) {
        events().insert(events().end(), part.events.begin(), part.events.end());
        part.events.clear();
      }
    }
    std::stable_sort(events().begin(), events().end(), [](const auto& x, const auto& y) {
      return x.start < y.start;
    });
    if (begin_ == 0) {  // nothing was dropped
      // A wait may have begun before the checkpoint that the run goes on from.
      const auto first =
          std::find_if(events().begin(), events().end(), [](const TraceEvent& event) {
            return event.kind == Kind::handled;
          });
      begin_ = first == events().end() ? run_.end : first->start;
    }
    // What was dropped last may have been after the run's end.
    begin_ = std::min(begin_, run_.end);
  }

  std::size_t add_track(std::string name, std::size_t parent = TraceTrack::kRoot) {
    tracks_.push_back({.name = std::move(name), .parent = parent});
    return tracks_.size() - 1;
  }

  Lanes add_lanes(const std::string& name, std::size_t process) {
    Lanes lanes{.actor = add_track(name, process)};
    lanes.work = add_track("work", lanes.actor);
    lanes.messages = add_track("messages", lanes.actor);
    lanes.waiting = add_track("waiting", lanes.actor);
    return lanes;
  }

  void add_tracks() {
    std::map<std::string, std::size_t> hosts;
    std::map<int, std::size_t> processes;
    for (const auto& [number, part] : run_.parts) {
      if (!hosts.contains(part.host)) {
        hosts[part.host] = add_track(part.host);
      }
      processes[number] = add_track(run_.names[number], hosts[part.host]);
      tracks_.back().slices.push_back(
          {.start = begin_, .end = run_.end, .name = "run", .category = "run"});
    }
    for (const TracedRun::Actor& actor : run_.actors) {
      const auto process = processes.find(actor.process);
      lanes_.push_back(process == processes.end()
                           ? std::nullopt
                           : std::optional(add_lanes(actor.name, process->second)));
    }
    times_.resize(lanes_.size());
    handled_.resize(lanes_.size());
    results_.resize(lanes_.size());
  }

  TraceTrack& counter(ActorId who, const std::string& name, bool bytes) {
    auto [at, is_new] = lanes_[who]->counters.try_emplace(name, 0);
    if (is_new) {
      at->second = add_track(name, lanes_[who]->actor);
      tracks_.back().counts = true;
      tracks_.back().bytes = bytes;
    }
    return tracks_[at->second];
  }

  /// Adds to a sum, or sets it.
  void count(
      ActorId who, const char* name, std::int64_t at, std::int64_t value, bool sum, bool bytes) {
    TraceTrack& track = counter(who, name, bytes);
    const std::int64_t last = track.values.empty() ? 0 : track.values.back().second;
    // Without a sign, so that what another process tells cannot make it overflow.
    const auto total = static_cast<std::uint64_t>(last) + static_cast<std::uint64_t>(value);
    const std::int64_t next = sum ? static_cast<std::int64_t>(total) : value;
    if (!track.values.empty() && track.values.back().first >= at) {
      track.values.back().second = next;
    } else {
      track.values.emplace_back(at, next);
    }
  }

  /// The part of it that all processes know of; nothing where it is not drawn.
  std::optional<Spot> draw(std::size_t track,
                           const TraceEvent& event,
                           std::string_view name,
                           const char* category) {
    if (event.end < begin_ || event.start > run_.end) {
      return {};
    }
    std::vector<TraceSlice>& slices = tracks_[track].slices;
    slices.push_back({.start = std::max(event.start, begin_),
                      .end = std::min(event.end, run_.end),
                      .name = name,
                      .category = category,
                      .event = &event});
    const Spot spot{track, slices.size() - 1};
    if (event.copied > 0) {  // they stand together at its end, as if made there
      TraceSlice copies = slices.back();
      copies.start = std::max(copies.start, copies.end - std::int64_t{event.copied});
      copies.category = spent::kCopy;
      slices.back().end = copies.start;
      slices.push_back(std::move(copies));
    }
    return spot;
  }

  void add(const TraceEvent& event) {
    if (!is_known(event.who)) {
      return;
    }
    const std::string_view message = message_name(event.message);
    switch (event.kind) {
      case Kind::handled:
        return add_handled(event, message);
      case Kind::sent:
        return add_sent(event);
      case Kind::job:
        return add_job(event);
      case Kind::waited:
        times_[event.who].wants.push_back({event.start, event.end, event.what});
        return;
      case Kind::applied:
        return add_applied(event);
      case Kind::read:
        reads_[{event.stamp, event.what}] = {event.number, event.second};
        return;
      case Kind::packed:
        add_busy(event);
        draw(lanes_[event.who]->messages, event, message, spent::kSerialise);
        return;
      case Kind::unpacked:
        draw(channel(event.who), event, message, spent::kSerialise);
        arrive({event.other, event.who, event.message, event.stamp}, event.who, event.end);
        return;
    }
  }

  void add_busy(const TraceEvent& event) {
    times_[event.who].busy.push_back({event.start, event.end});
  }

  /// Where what the channel of its process does is drawn.
  std::size_t channel(ActorId who) {
    const int process = process_of(who);
    const auto found = channels_.find(process);
    if (found != channels_.end()) {
      return found->second;
    }
    const std::size_t parent = tracks_[lanes_[who]->actor].parent;
    return channels_[process] = add_track("channel", parent);
  }

  /// A message is in its recipient's mailbox.
  void arrive(const Key& key, ActorId to, std::int64_t at) {
    arrived_[key].push_back(at);
    count(to, "mailbox", at, 1, true, false);
  }

  void add_handled(const TraceEvent& event, std::string_view name) {
    add_busy(event);
    handled_[event.who] = draw(lanes_[event.who]->messages, event, name, spent::kHandling);
    std::deque<std::int64_t>* came = nullptr;
    if (event.other == event.who) {
      came = &results_[event.who];
    } else if (const auto found =
                   arrived_.find({event.other, event.who, event.message, event.stamp});
               found != arrived_.end()) {
      came = &found->second;
      if (!came->empty()) {
        count(event.who, "mailbox", event.start, -1, true, false);
      }
    }
    if (came && !came->empty()) {
      add_pending(event.who, came->front(), event.start);
      came->pop_front();
    }
  }

  void add_pending(ActorId who, std::int64_t from, std::int64_t until) {
    if (!run_.modelled && from < until) {
      times_[who].pending.push_back({from, until});
    }
  }

  void add_sent(const TraceEvent& event) {
    if (event.number > 0) {
      count(event.who, kBytesSent, event.start, event.number, true, true);
    }
    if (is_known(event.other) && process_of(event.other) == process_of(event.who)) {
      arrive({event.who, event.other, event.message, event.stamp}, event.other, event.start);
    }
    if (event.message == Kinds::place<struct Activation>() && handled_[event.who]) {
      const Stamp& s = event.stamp;
      auto& flow = micro_batches_[{s.replica, s.batch, s.micro_batch}];
      if (flow.empty()) {
        flow.push_back(*handled_[event.who]);  // of the source
      }
    }
  }

  void add_job(const TraceEvent& event) {
    const auto work = static_cast<Work>(event.what);
    const Stamp& s = event.stamp;
    add_busy(event);
    results_[event.who].push_back(event.end);
    if (event.second < event.start) {
      times_[event.who].pending.push_back({event.second, event.start});
    }
    const auto spot = draw(lanes_[event.who]->work, event, to_string(work), spent::kKernel);
    if (work == Work::forward && event.number > 0) {
      stashed_[{event.who, s}] = event.number;
      count(event.who, "stashed bytes", event.end, event.number, true, true);
    }
    if (const auto kept = stashed_.find({event.who, s});
        kept != stashed_.end() && (work == Work::backward || work == Work::weight_gradient)) {
      count(event.who, "stashed bytes", event.end, -kept->second, true, true);
      stashed_.erase(kept);
    }
    if (!spot) {
      return;
    }
    const bool passes = work == Work::forward || work == Work::input_gradient ||
                        work == Work::weight_gradient || work == Work::backward;
    if (passes) {
      jobs_.push_back(*spot);
    }
    if (passes && work != Work::weight_gradient) {
      micro_batches_[{s.replica, s.batch, s.micro_batch}].push_back(*spot);
    }
    if (work == Work::backward || work == Work::weight_gradient) {
      gradients_[{s.replica, s.chunk, s.batch}].born.push_back(*spot);
    } else if (work == Work::update) {
      gradients_[{s.replica, s.chunk, s.batch}].applied.push_back(*spot);
    }
  }

  void add_applied(const TraceEvent& event) {
    const Stamp& s = event.stamp;
    if (event.start >= begin_ && event.start <= run_.end) {
      count(event.who, "staleness", event.start, event.number - event.second, false, false);
    }
    if (handled_[event.who]) {
      gradients_[{s.replica, s.chunk, s.batch}].applied.push_back(*handled_[event.who]);
    }
  }

  void add_waiting() {
    std::map<std::pair<int, int>, std::vector<ActorId>> threads;  // by process
    for (std::size_t id = 0; id < lanes_.size(); ++id) {
      if (lanes_[id]) {
        const TracedRun::Actor& actor = run_.actors[id];
        threads[{actor.process, actor.thread}].push_back(static_cast<ActorId>(id));
      }
    }
    for (const auto& [thread, actors] : threads) {
      std::vector<ActorTimes*> all;
      for (const ActorId id : actors) {
        all.push_back(&times_[id]);
      }
      const ThreadTimes times(all, {begin_, run_.end});
      for (const ActorId id : actors) {
        tracks_[lanes_[id]->waiting].slices = times.waiting_of(times_[id]);
      }
    }
  }

  TraceSlice& at(const Spot& spot) { return tracks_[spot.track].slices[spot.slice]; }

  /// From the first slice to the last; one alone is no flow.
  void draw_flow(std::vector<Spot> through) {
    std::stable_sort(through.begin(), through.end(), [this](const Spot& x, const Spot& y) {
      return at(x).start != at(y).start ? at(x).start < at(y).start : at(x).event < at(y).event;
    });
    const auto same = [](const Spot& x, const Spot& y) {
      return x.track == y.track && x.slice == y.slice;
    };
    through.erase(std::unique(through.begin(), through.end(), same), through.end());
    if (through.size() < 2) {
      return;
    }
    ++flows_;
    for (std::size_t i = 0; i + 1 < through.size(); ++i) {
      at(through[i]).flows.push_back(flows_);
    }
    at(through.back()).flows_in.push_back(flows_);
  }

  void draw_flows() {
    for (const Spot& job : jobs_) {
      TraceSlice& slice = at(job);
      const std::uint8_t backward =
          slice.event->what == static_cast<std::uint8_t>(Work::forward) ? 0 : 1;
      if (const auto read = reads_.find({slice.event->stamp, backward}); read != reads_.end()) {
        std::tie(slice.version, slice.step) = read->second;
      }
    }
    for (const auto& [of, through] : micro_batches_) {
      draw_flow(through);
    }
    for (auto& [of, gradient] : gradients_) {
      if (!gradient.born.empty() && !gradient.applied.empty()) {
        gradient.born.insert(gradient.born.end(), gradient.applied.begin(), gradient.applied.end());
        draw_flow(std::move(gradient.born));
      }
    }
  }

  struct Gradient {
    std::vector<Spot> born;
    std::vector<Spot> applied;
  };

  TracedRun& run_;
  std::int64_t begin_ = 0;
  std::vector<TraceTrack> tracks_;
  std::vector<std::optional<Lanes>> lanes_;   // by ActorId; none: of a process that has no part
  std::map<int, std::size_t> channels_;       // by process
  std::vector<ActorTimes> times_;             // by ActorId, as these
  std::vector<std::optional<Spot>> handled_;  // the last message
  std::vector<std::deque<std::int64_t>>
      results_;  // when jobs ended whose results have not been handed out
  std::map<Key, std::deque<std::int64_t>> arrived_;  // that have not been handed out
  std::map<std::pair<ActorId, Stamp>, std::int64_t> stashed_;
  std::map<std::pair<Stamp, std::uint8_t>, std::pair<std::int64_t, std::int64_t>> reads_;
  std::vector<Spot> jobs_;  // of passes
  std::map<std::tuple<std::int32_t, std::int64_t, std::int32_t>, std::vector<Spot>> micro_batches_;
  std::map<std::tuple<std::int32_t, std::int32_t, std::int64_t>, Gradient> gradients_;
  std::uint64_t flows_ = 0;
};

}  // namespace

std::vector<TraceTrack> timeline_of(TracedRun& run) {
  return Builder(run).build();
}

}  // namespace troupe
