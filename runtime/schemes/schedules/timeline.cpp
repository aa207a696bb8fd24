#include "runtime/schemes/schedules/timeline.hpp"

#include "kernels/check.hpp"
#include "runtime/schemes/schedules/walk.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace troupe {

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

/// Times at which a chunk has something from its neighbour, by micro-batch.
using MicroBatchNumber = std::pair<std::int64_t, std::int32_t>;
using Arrivals = std::vector<std::map<MicroBatchNumber, double>>;

MicroBatchNumber number_of(const Action& a) {
  return {a.batch, a.micro_batch};
}

/// When the input of the action is there. It is taken away.
double taken(Arrivals& arrivals, const Action& a) {
  return arrivals[static_cast<std::size_t>(a.chunk)].extract(number_of(a)).mapped();
}

/// Each part of a section, whose first chunk is `first`, has something at `time`; all there is when the last of it comes.
void to_parts(Arrivals& arrivals,
              const Schedule& schedule,
              std::int32_t first,
              const Action& a,
              double time) {
  for (std::int32_t chunk = first; chunk < first + schedule.width; ++chunk) {
    double& last = arrivals[static_cast<std::size_t>(chunk)][number_of(a)];
    last = std::max(last, time);
  }
}

/// Times at which chunks with alternates have their steps.
class Steps {
 public:
  explicit Steps(const Schedule& schedule)
      : s_(schedule), done_(static_cast<std::size_t>(schedule.chunks)) {}

  /// When the weights that the forward `a` reads are there.
  double of(const Action& a) const {
    return s_.copies_of(a.chunk) == 1 || a.natural == 0
               ? 0
               : all_of(a.chunk).at(a.natural / s_.round_of(a.chunk) - 1);
  }

  /// The update `a` has ended.
  void count(const Action& a, double end) {
    double& last = done_[static_cast<std::size_t>(a.chunk)][a.batch / s_.round_of(a.chunk)];
    last = std::max(last, end);
  }

 private:
  const std::map<std::int64_t, double>& all_of(std::int32_t chunk) const {
    return done_[static_cast<std::size_t>(chunk)];
  }

  const Schedule& s_;
  std::vector<std::map<std::int64_t, double>> done_;  // by chunk and update: of its last alternate
};

bool sends_error(Act act) {
  return act == Act::backward || act == Act::input_gradient;
}

}  // namespace

Timeline simulate(const Schedule& schedule,
                  const std::vector<ChunkTimes>& times,
                  std::int64_t batches) {
  Arrivals activations(static_cast<std::size_t>(schedule.chunks));
  Arrivals errors(static_cast<std::size_t>(schedule.chunks));
  Steps steps(schedule);
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
      ready = taken(activations, a);
    } else if (sends_error(a.act) && !schedule.is_head(a.chunk) &&
               schedule.signal_from != SignalFrom::nobody) {
      ready = taken(errors, a);
    }
    if (a.act == Act::forward) {
      ready = std::max(ready, steps.of(a));
    }
    // Of a chunk's alternates, the last of each round makes the update.
    const bool kept = a.act == Act::update && schedule.is_share(a);
    const double start = std::max(clock[k], ready);
    const double end = start + (kept ? 0 : duration(a.act, t));
    clock[k] = end;
    if (a.act == Act::update && schedule.copies_of(a.chunk) > 1) {
      steps.count(a, end);
    }
    if (end > start) {
      timeline.stages[k].push_back({a, start, end});
    }
    if (a.act == Act::forward && !schedule.is_head(a.chunk)) {
      to_parts(activations, schedule, schedule.behind(a.chunk), a, end + t.link);
    } else if (a.act == Act::forward && schedule.signal_from == SignalFrom::head) {
      for (std::size_t c = 0; c + 1 < errors.size(); ++c) {
        errors[c][number_of(a)] = end + times[c + 1].link_back;  // the way of the chunk behind it
      }
    } else if (sends_error(a.act) && !schedule.is_first(a.chunk) &&
               schedule.signal_from == SignalFrom::next) {
      const ChunkTimes& before = times[static_cast<std::size_t>(schedule.before(a.chunk))];
      // An estimate that is mixed with it is made when it comes, and the lesson follows at once.
      const double mixing = schedule.estimates_mixed ? before.predict + before.teach : 0;
      to_parts(errors, schedule, schedule.before(a.chunk), a, end + t.link_back + mixing);
    }
    if (a.act == Act::forward && schedule.signal_from == SignalFrom::predictor) {
      errors[static_cast<std::size_t>(a.chunk)][number_of(a)] = end + t.predict;
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
