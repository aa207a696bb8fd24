#include "runtime/schemes/schedules/timeline.hpp"

#include "kernels/check.hpp"
#include "runtime/schemes/schedules/walk.hpp"

#include <algorithm>
#include <deque>

namespace troupe {

double Timeline::idle() const {
  double busy = 0;
  for (const auto& stage : stages) {
    for (const Interval& interval : stage) {
      busy += interval.end - interval.start;
    }
  }
  const double all = end * static_cast<double>(stages.size());
  return all > 0 ? 1 - busy / all : 0;
}

namespace {

double duration(Act act, const ChunkTimes& t) {
  switch (act) {
    case Act::forward:
      return t.forward;
    case Act::backward:
      return t.input_gradient + t.weight_gradient;
    case Act::input_gradient:
      return t.input_gradient;
    case Act::weight_gradient:
      return t.weight_gradient;
    case Act::update:
      return t.update;
  }
  return 0;
}

/// Times at which a chunk has something from its neighbours, in order of micro-batches.
class Arrivals {
 public:
  /// Each chunk has something from `senders` others, which are neighbours in number.
  Arrivals(std::int32_t chunks, std::int32_t senders)
      : senders_(senders), times_(static_cast<std::size_t>(chunks * senders)) {}

  void add(std::int32_t chunk, std::int32_t from, double time) { of(chunk, from).push_back(time); }

  /// When the next of a chunk's inputs is there. It is taken away.
  double taken(std::int32_t chunk) {
    double time = 0;
    for (std::int32_t from = 0; from < senders_; ++from) {
      time = std::max(time, of(chunk, from).front());
      of(chunk, from).pop_front();
    }
    return time;
  }

 private:
  std::deque<double>& of(std::int32_t chunk, std::int32_t from) {
    return times_[static_cast<std::size_t>(chunk * senders_ + from % senders_)];
  }

  std::int32_t senders_;
  std::vector<std::deque<double>> times_;
};

bool sends_error(Act act) {
  return act == Act::backward || act == Act::input_gradient;
}

}  // namespace

Timeline simulate(const Schedule& schedule,
                  const std::vector<ChunkTimes>& times,
                  std::int64_t batches) {
  Arrivals activations(schedule.chunks, schedule.width);
  Arrivals errors(schedule.chunks, schedule.width);
  std::vector<double> clock(schedule.stages.size());
  Timeline timeline;
  timeline.stages.resize(schedule.stages.size());
  const Walk walked = walk(schedule, batches, [&](std::int32_t stage, const Action& a) {
    const auto k = static_cast<std::size_t>(stage);
    const ChunkTimes& t = times[static_cast<std::size_t>(a.chunk)];
    double ready = 0;
    if (a.act == Act::forward && a.chunk > 0 && schedule.inputs_predicted) {
      ready = clock[k] + t.predict_input;  // on the stage's own thread
    } else if (a.act == Act::forward && !schedule.is_first(a.chunk)) {
      ready = activations.taken(a.chunk);
    } else if (sends_error(a.act) && !schedule.is_head(a.chunk) &&
               schedule.signal_from != SignalFrom::nobody) {
      ready = errors.taken(a.chunk);
    }
    const double start = std::max(clock[k], ready);
    const double end = start + duration(a.act, t);
    clock[k] = end;
    if (duration(a.act, t) > 0) {
      timeline.stages[k].push_back({a, start, end});
    }
    if (a.act == Act::forward && !schedule.is_head(a.chunk)) {
      for (std::int32_t part = 0; part < schedule.width; ++part) {
        activations.add(schedule.behind(a.chunk, part), a.chunk, end + t.link);
      }
    } else if (a.act == Act::forward && schedule.signal_from == SignalFrom::head) {
      for (std::int32_t c = 0; c + 1 < schedule.chunks; ++c) {  // the way of the chunk behind it
        errors.add(c, 0, end + times[static_cast<std::size_t>(c + 1)].link_back);
      }
    } else if (sends_error(a.act) && !schedule.is_first(a.chunk) &&
               schedule.signal_from == SignalFrom::next) {
      const ChunkTimes& before = times[static_cast<std::size_t>(schedule.before(a.chunk))];
      // An estimate that is mixed with it is made when it comes, and the lesson follows at once.
      const double mixing = schedule.estimates_mixed ? before.predict + before.teach : 0;
      for (std::int32_t part = 0; part < schedule.width; ++part) {
        errors.add(schedule.before(a.chunk, part), a.chunk, end + t.link_back + mixing);
      }
    }
    if (a.act == Act::forward && schedule.signal_from == SignalFrom::predictor) {
      errors.add(a.chunk, 0, end + t.predict);
    }
    timeline.end = std::max(timeline.end, end);
  });
  TROUPE_CHECK(walked.stuck.empty(),
               "[simulate] a schedule that cannot finish; M = ",
               schedule.options.micro_batches);
  return timeline;
}

std::vector<std::string> draw(const Timeline& timeline, std::int32_t micro_batches, int columns) {
  std::vector<std::string> rows;
  const double scale = timeline.end > 0 ? columns / timeline.end : 0;
  for (const auto& stage : timeline.stages) {
    std::string row(static_cast<std::size_t>(columns), '.');
    for (const Interval& i : stage) {
      char letter = '!';
      const auto n = static_cast<int>((i.action.batch * micro_batches + i.action.micro_batch) % 10);
      switch (i.action.act) {
        case Act::forward:
          letter = static_cast<char>('0' + n);
          break;
        case Act::backward:
          letter = static_cast<char>('a' + n);
          break;
        case Act::input_gradient:
          letter = '=';
          break;
        case Act::weight_gradient:
          letter = '-';
          break;
        case Act::update:
          break;
      }
      // Rounded, so that equal durations look equal.
      const int first = static_cast<int>(i.start * scale + 0.5);
      const int last = std::min(columns, static_cast<int>(i.end * scale + 0.5));
      for (int c = first; c < last; ++c) {
        row[static_cast<std::size_t>(c)] = letter;
      }
      // Work that is too short to be seen takes a character that would else look idle.
      const auto at = static_cast<std::size_t>(std::min(first, columns - 1));
      if (i.end > i.start && first >= last && row[at] == '.') {
        row[at] = letter;
      }
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace troupe
