#include "apps/plan/zero_bubble.hpp"

#include "apps/cli/text.hpp"
#include "apps/plan/forecast.hpp"
#include "apps/plan/memory.hpp"
#include "kernels/wording.hpp"
#include "runtime/record/progress.hpp"
#include "runtime/schemes/schedules/automatic.hpp"

#include <algorithm>

namespace troupe {
namespace {

bool one_chunk_each(const Schedule& s) {
  return s.width == 1 && s.copies.empty() && s.chunks == s.options.stages &&
         std::is_sorted(s.placement.begin(), s.placement.end()) &&
         s.signal_from == SignalFrom::next && !s.estimates_mixed && !s.inputs_predicted;
}

/// How many micro-batches each stage may keep.
std::vector<std::int64_t> stashes_in(const Blueprint& b, double memory) {
  std::vector<std::int64_t> most;
  for (std::int32_t c = 0; c < b.schedule->chunks; ++c) {
    const ChunkMemory m = memory_of(b, c);
    const double all = b.schedule->options.micro_batches;
    const double always = m.total() - static_cast<double>(m.stashes) * m.stash;
    const double fit = memory > 0 && m.stash > 0 ? (memory - always) / m.stash : all;
    most.push_back(static_cast<std::int64_t>(std::clamp(fit, 0.0, all)));
  }
  return most;
}

}  // namespace

Result<ZeroBubble> zero_bubble(const Blueprint& b,
                               const std::vector<ChunkTimes>& times,
                               double memory) {
  if (!one_chunk_each(*b.schedule)) {
    return usage_error(
        "--zero-bubble: it orders the work of stages that have one chunk each and learn by "
        "backpropagation");
  }
  const AutomaticOptions options{.times = times,
                                 .micro_batches = b.schedule->options.micro_batches,
                                 .stashes = stashes_in(b, memory)};
  auto found = automatic_zero_bubble(options);
  if (!found) {
    return usage_error("--memory: {}", found.error().message);
  }
  Blueprint timed = b;
  timed.times = times;
  const Forecast own = forecast(timed);
  timed.schedule = std::make_shared<const Schedule>(*found);
  const Forecast ordered = forecast(timed);
  std::int64_t held = 0;
  for (std::int32_t c = 0; c < found->chunks; ++c) {
    held = std::max(held, memory_of(timed, c).stashes);
  }
  return ZeroBubble{
      .schedule = *std::move(found),
      .words =
          fill_in("zero bubble {} a mini-batch, {} idle; {}: {}, {} idle; {} micro-batches held "
                  "by a stage at most\n",
                  duration(ordered.period),
                  percent(ordered.idle_steady),
                  b.schedule->options.name,
                  duration(own.period),
                  percent(own.idle_steady),
                  held)};
}

}  // namespace troupe
