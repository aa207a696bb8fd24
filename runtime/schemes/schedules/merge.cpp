// Several chunks on a stage (FTPipe's mixed pipe, Eliad et al. 2021): their sequences, merged.
#include "runtime/schemes/schedules/compose.hpp"
#include "runtime/schemes/schedules/timeline.hpp"

#include <algorithm>
#include <limits>

namespace troupe::schedules {
namespace {

struct Started {
  Action action;
  double start;  // an update's: of the action before it
};

/// The actions of a chunk's first `batches` mini-batches, with their times in `timeline`.
std::vector<Started> started(const Schedule& schedule,
                             const Timeline& timeline,
                             std::int32_t chunk,
                             std::int64_t batches) {
  const auto at = static_cast<std::size_t>(chunk);
  std::vector<Started> all;
  auto interval = timeline.stages[at].begin();
  for (std::uint64_t i = 0;; ++i) {
    const Action action = schedule.stages[at].at(i);
    if (action.batch >= batches) {
      continue;
    }
    if (action.act == Act::update) {
      all.push_back({action, all.back().start});
      if (action.batch + 1 == batches) {
        return all;
      }
    } else {
      all.push_back({action, (interval++)->start});
    }
  }
}

}  // namespace

std::vector<Sequence> merge(const Schedule& deep,
                            const std::vector<std::int32_t>& placement,
                            std::int32_t stages) {
  // A flushed mini-batch is like the next, and ends before it begins. Where nothing is flushed,
  // all have the same distance from the next as soon as the pipe is full: then comes a period.
  const std::int64_t settled =
      deep.flushed ? 0 : deep.options.synchronous_batches + 2 * deep.delay_max + 2;
  const std::int64_t batches = deep.flushed ? 1 : settled + 2;
  const std::vector<ChunkTimes> alike(
      placement.size(), {.forward = 1, .input_gradient = 0.5, .weight_gradient = 0.5});
  const Timeline timeline = simulate(deep, alike, batches);
  double begin = 0;
  double end = std::numeric_limits<double>::infinity();
  for (const Interval& i : timeline.stages.front()) {
    if (i.action.act == Act::forward && i.action.micro_batch == 0 && !deep.flushed) {
      begin = i.action.batch == settled ? i.start : begin;
      end = i.action.batch == settled + 1 ? i.start : end;
    }
  }
  std::vector<std::vector<Started>> by_stage(static_cast<std::size_t>(stages));
  for (std::int32_t c = deep.chunks - 1; c >= 0; --c) {  // those near the loss go first
    auto& all = by_stage[static_cast<std::size_t>(placement[static_cast<std::size_t>(c)])];
    const std::vector<Started> own = started(deep, timeline, c, batches);
    all.insert(all.end(), own.begin(), own.end());
  }
  std::vector<Sequence> sequences;
  for (std::vector<Started>& all : by_stage) {
    std::ranges::stable_sort(all,
                             [](const Started& a, const Started& b) { return a.start < b.start; });
    Sequence& sequence = sequences.emplace_back();
    for (const Started& s : all) {
      if (s.start < end) {
        (s.start < begin ? sequence.prologue : sequence.period).push_back(s.action);
      }
    }
  }
  return sequences;
}

}  // namespace troupe::schedules
