#include "apps/plan/forecast.hpp"

#include "runtime/schemes/schedules/timeline.hpp"

#include <algorithm>
#include <numeric>
#include <vector>

namespace troupe {

namespace {

/// Seconds of a mini-batch that chunk `c`'s predictors take of its stage's thread: estimates, lessons, where
/// they have any, and updates.
double predictors_work(const Blueprint& b, std::size_t c) {
  const auto plan = predictor_plan(b.experiment);
  const ChunkTimes& t = b.times[c];
  const std::int32_t M = b.schedule->options.micro_batches;
  double seconds = 0;
  if (c < b.predictors.size()) {  // a head learns while it answers
    seconds += M * (t.predict + (plan->head ? 0 : t.teach)) + t.update;
  }
  if (c > 0 && !b.input_predictors.empty()) {
    seconds += M * (t.predict_input + t.teach_input) + t.update;
  }
  return seconds;
}

/// What each stage's thread has to do for a mini-batch, in seconds.
std::vector<double> stage_work(const Blueprint& b) {
  std::vector<double> work(b.schedule->stages.size());
  for (std::size_t c = 0; c < b.times.size(); ++c) {
    const ChunkTimes& t = b.times[c];
    work[static_cast<std::size_t>(b.schedule->stage_of(static_cast<std::int32_t>(c)))] +=
        b.schedule->options.micro_batches * (t.forward + t.input_gradient + t.weight_gradient) +
        t.update + predictors_work(b, c);
  }
  return work;
}

}  // namespace

Forecast forecast(const Blueprint& b) {
  const Schedule& schedule = *b.schedule;
  const std::int64_t filled = schedule.options.synchronous_batches + 2 * schedule.delay_max + 8;
  std::int64_t more = 8;  // whole rounds of all copies
  for (const std::int32_t copies : schedule.copies) {
    more = std::lcm<std::int64_t>(more, copies);
  }
  const double first = simulate(schedule, b.times, filled).end;
  const std::vector<double> work = stage_work(b);
  // The timeline has no lessons, and no estimates beside other work. Where there are some the busiest
  // thread says how fast the pipe can be, if it is slower than the locks are.
  const double period =
      std::max((simulate(schedule, b.times, filled + more).end - first) / static_cast<double>(more),
               b.predictors.empty() ? 0 : *std::max_element(work.begin(), work.end()));
  const double busy = std::accumulate(work.begin(), work.end(), 0.0);  // a mini-batch
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
