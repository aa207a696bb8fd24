#include "apps/bench/benches.hpp"
#include "apps/bench/hollow.hpp"
#include "apps/bench/watch.hpp"
#include "apps/topologies/cast.hpp"
#include "experiment.pb.h"
#include "runtime/system/agenda.hpp"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace troupe {

Row virtual_clock(double seconds) {
  std::vector<double> rates;
  std::int64_t updates = 200;
  for (int round = 0; round < 4; ++round) {
    Blueprint b = bench_blueprint(
        "model { quadratic { layers: 64 } } data { batch_size: 1 none {} } optimizer { rule: sgd "
        "learning_rate: 0.001 } pipeline { stages: 64 schedule { async_one_f_one_b {} } weights { "
        "latest {} } } stop { updates: " +
        std::to_string(updates) +
        " } record { evaluate: false gap_every: 0 } clock { forward { seconds: 1 gamma {} } "
        "input_gradient { seconds: 1 gamma {} } weight_gradient { seconds: 1 } }");
    Cast cast = build_cast(b);
    hollow_out(cast);
    Nowhere records;
    const TimeModel times(b.experiment.clock(), b.times, 1);
    Agenda agenda(cast, times, records, nullptr);
    const double spent = thread_seconds_of([&] { agenda.run(); });
    const double rate = static_cast<double>(agenda.delivered()) / spent;
    if (round > 0) {
      rates.push_back(rate);
    }
    updates = std::max<std::int64_t>(
        100, static_cast<std::int64_t>(static_cast<double>(updates) / spent * seconds / 4));
  }
  return {"virtual clock, 64 workers, empty compute",
          number("%.2f M messages/s", median(rates) / 1e6),
          "",
          "",
          ">= 2.5 M/s"};
}

}  // namespace troupe
