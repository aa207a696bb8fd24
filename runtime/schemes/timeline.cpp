#include "runtime/schemes/timeline.hpp"

#include <algorithm>
#include <map>
#include <tuple>

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

Timeline simulate(const Schedule& schedule,
                  const std::vector<ChunkTimes>& times,
                  std::int64_t batches) {
  using Key = std::tuple<std::int32_t, std::int64_t, std::int32_t>;
  std::map<Key, double> activation;  // when the input of (chunk, b, j) is there
  std::map<Key, double> error;
  Timeline timeline;
  timeline.stages.resize(schedule.stages.size());
  std::vector<std::uint64_t> next(schedule.stages.size());
  std::vector<double> clock(schedule.stages.size());
  const auto& micro_batches = schedule.options.micro_batches;
  std::int64_t left = static_cast<std::int64_t>(schedule.chunks) * batches;
  for (bool moved = true; moved && left > 0;) {
    moved = false;
    for (std::size_t k = 0; k < next.size(); ++k) {
      for (int beyond = 0; beyond < 1000;) {
        const Action a = schedule.stages[k].at(next[k]);
        if (a.batch >= batches) {
          ++next[k];
          ++beyond;
          continue;
        }
        beyond = 0;
        const Key key{a.chunk, a.batch, a.micro_batch};
        const ChunkTimes& t = times[static_cast<std::size_t>(a.chunk)];
        double ready = 0;
        double duration = 0;
        if (a.act == Act::forward && a.chunk > 0) {
          const auto found = activation.find(key);
          if (found == activation.end()) {
            break;
          }
          ready = found->second;
        }
        if ((a.act == Act::backward || a.act == Act::input_gradient) &&
            a.chunk + 1 < schedule.chunks) {
          const auto found = error.find(key);
          if (found == error.end()) {
            break;
          }
          ready = found->second;
        }
        switch (a.act) {
          case Act::forward:
            duration = t.forward;
            break;
          case Act::backward:
            duration = t.input_gradient + t.weight_gradient;
            break;
          case Act::input_gradient:
            duration = t.input_gradient;
            break;
          case Act::weight_gradient:
            duration = t.weight_gradient;
            break;
          case Act::update:
            duration = t.update;
            --left;
            break;
        }
        const double start = std::max(clock[k], ready);
        const double end = start + duration;
        clock[k] = end;
        if (duration > 0) {
          timeline.stages[k].push_back({a, start, end});
        }
        if (a.act == Act::forward) {
          activation[{a.chunk + 1, a.batch, a.micro_batch}] = end + t.link;
        } else if (a.act == Act::backward || a.act == Act::input_gradient) {
          error[{a.chunk - 1, a.batch, a.micro_batch}] = end + t.link_back;
        }
        timeline.end = std::max(timeline.end, end);
        ++next[k];
        moved = true;
      }
    }
  }
  TROUPE_CHECK(left == 0, "[simulate] a schedule that cannot finish; M = ", micro_batches);
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
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace troupe
