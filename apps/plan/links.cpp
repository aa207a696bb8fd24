#include "apps/plan/links.hpp"

#include "apps/cli/text.hpp"
#include "apps/plan/forecast.hpp"
#include "apps/run/real_clock.hpp"
#include "experiment/clock.pb.h"
#include "kernels/wording.hpp"
#include "messages/sections.hpp"
#include "runtime/record/progress.hpp"
#include "runtime/schemes/exchanges/exchange.hpp"

#include <algorithm>

namespace troupe {
namespace {

/// A link is told of from here on: the run then trains a thousand mini-batches and more before its first update.
constexpr double kMiniBatches = 1000;

struct SlowLink {
  std::string ends;
  std::string keys;
  double seconds = 0;  // of the largest message, on the slowest of these links
};

SlowLink link_nobody_waits_for(const Blueprint& b) {
  const proto::Clock& clock = sections::clock(b.experiment);
  const bool far = groups_of(b.experiment) > 0;
  if (!far && !(b.link && b.link->never_waits())) {
    return {};
  }
  std::int64_t numbers = 0;
  for (const auto& chunk : b.chunks) {
    const auto& slices = chunk->layout().slice_sizes;
    numbers = std::max(numbers, *std::max_element(slices.begin(), slices.end()));
  }
  const auto& latency = (far ? clock.between_servers() : clock.exchange()).seconds();
  const double bandwidth = far ? clock.bandwidth_between_servers() : clock.bandwidth();
  return {.ends = far ? "a group's server and the global one" : "a replica and a server",
          .keys = far ? "clock.between_servers, clock.bandwidth_between_servers"
                      : "clock.exchange, clock.bandwidth",
          .seconds = (latency.empty() ? 0 : *std::max_element(latency.begin(), latency.end())) +
                     (bandwidth > 0 ? 4.0 * static_cast<double>(numbers) / bandwidth : 0)};
}

/// Seconds between two mini-batches of the fastest replica, by the modelled times.
double shortest_period(const Blueprint& b) {
  const TimeModel times = time_model_of(b);
  double fastest = times.slowness(0, 0, 0);
  for (std::int32_t r = 1; r < sections::replica_count(b.experiment); ++r) {
    fastest = std::min(fastest, times.slowness(r, 0, 0));
  }
  return forecast(b).period * fastest;
}

}  // namespace

std::string links_warning(const Blueprint& b) {
  const SlowLink link = link_nobody_waits_for(b);
  const double period = link.seconds > 0 ? shortest_period(b) : 0;
  if (link.seconds <= kMiniBatches * period || link.seconds == 0) {
    return "";
  }
  return fill_in(
      "warning    on the virtual clock a message between {} takes {}{};\n           nobody waits "
      "for it, and the run's updates are counted behind it ({})\n",
      link.ends,
      duration(link.seconds),
      period > 0 ? concat(", as long as ", short_number(link.seconds / period), " mini-batches")
                 : ", while a mini-batch takes no time",
      link.keys);
}

}  // namespace troupe
