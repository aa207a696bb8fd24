#include "apps/plan/forecast.hpp"

#include "runtime/schemes/timeline.hpp"

#include <algorithm>

namespace troupe {

Forecast forecast(const Blueprint& b) {
  const Schedule& schedule = *b.schedule;
  const std::int64_t filled = schedule.options.synchronous_batches + 2 * schedule.delay_max + 8;
  constexpr std::int64_t kMore = 8;
  const double first = simulate(schedule, b.times, filled).end;
  const double period = (simulate(schedule, b.times, filled + kMore).end - first) / kMore;
  double busy = 0;  // of all stages, a mini-batch
  for (const ChunkTimes& t : b.times) {
    busy += schedule.options.micro_batches * (t.forward + t.input_gradient + t.weight_gradient) +
            t.update;
  }
  const auto idle = [&](double batches, double end) {
    const double all = end * schedule.options.stages;
    return all > 0 ? std::max(0.0, 1 - batches * busy / all) : 0.0;
  };
  Forecast p{.period = period, .idle_steady = idle(1, period), .idle_run = idle(1, period)};
  if (b.batches > 0) {
    const double end = b.batches <= filled
                           ? simulate(schedule, b.times, b.batches).end
                           : first + static_cast<double>(b.batches - filled) * period;
    p.idle_run = idle(static_cast<double>(b.batches), end);
  }
  return p;
}

}  // namespace troupe
