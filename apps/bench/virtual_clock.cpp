// The virtual clock by itself: jobs compute nothing (hollow.hpp). Messages a second, and how a run's costs grow with what it
// is made of.
#include "apps/bench/benches.hpp"
#include "apps/bench/hollow.hpp"
#include "apps/bench/watch.hpp"
#include "apps/bench/workload.hpp"
#include "apps/topologies/cast.hpp"
#include "experiment/clock.pb.h"
#include "messages/sections.hpp"
#include "runtime/system/agenda.hpp"

#include <malloc.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace troupe {
namespace {

constexpr double kSlow = 20;  // seconds of one size, after which no larger one is tried

/// What grows, and an experiment of that size.
struct Axis {
  const char* what;
  std::vector<std::int64_t> sizes;
  std::function<std::string(std::int64_t size)> parts;  // textproto of model, pipeline, replicas
};

struct Cost {
  double start = 0;    // seconds until the first message
  double bytes = 0;    // of memory then
  double message = 0;  // seconds
};

double bytes_in_use() {
  const struct mallinfo2 now = ::mallinfo2();
  return static_cast<double>(now.uordblks + now.hblkhd);
}

std::string pipeline(std::int64_t layers, std::int64_t stages) {
  return concat("model { quadratic { layers: ",
                layers,
                " } } pipeline { stages: ",
                stages,
                " schedule { async_one_f_one_b {} } weights { latest {} } } ");
}

std::string replicas(std::int64_t count, std::int64_t shards) {
  return concat("replicas { count: ", count, " shards: ", shards, " rule { asgd {} } } ");
}

const std::vector<Axis>& axes() {
  static const std::vector<Axis> all{
      {"workers",
       {16, 64, 256, 1024, 4096},
       [](std::int64_t n) {
         return pipeline(1, 1) + replicas(n, 1);
       }},
      {"stages",
       {4, 16, 64, 256, 512},
       [](std::int64_t n) {
         return pipeline(n, n);
       }},
      {"shards",
       {1, 4, 16, 64},
       [](std::int64_t n) {
         return pipeline(64, 1) + replicas(16, n);
       }},
      {"layers",
       {16, 64, 256, 1024},
       [](std::int64_t n) {
         return pipeline(n, 4);
       }},
  };
  return all;
}

/// A run of so many updates.
Cost cost_of(const std::string& parts, std::int64_t updates, std::uint64_t& delivered) {
  Cost cost;
  const double before = bytes_in_use();
  Blueprint b;
  Cast cast;
  cost.start = thread_seconds_of([&] {
    b = bench_blueprint(concat(parts,
                               "data { batch_size: 1 none {} } optimizer { rule: sgd "
                               "learning_rate: 0.001 } stop { updates: ",
                               updates,
                               " } record { evaluate: false order: false gap_every: 0 } clock { "
                               "forward { seconds: 1 gamma {} } }"));
    cast = build_cast(b);
  });
  cost.bytes = bytes_in_use() - before;
  hollow_out(cast);
  Nowhere records;
  const TimeModel times(sections::clock(b.experiment), b.times, 1);
  Agenda agenda(cast, times, records, nullptr);
  const double spent = thread_seconds_of([&] { agenda.run(); });
  delivered = agenda.delivered();
  cost.message = spent / static_cast<double>(delivered);
  return cost;
}

/// The least of some runs, each of which takes about `seconds`.
Cost best_cost(const std::string& parts, std::int64_t updates, double seconds) {
  std::uint64_t delivered = 0;
  Cost best = cost_of(parts, updates, delivered);
  const double once = best.message * static_cast<double>(delivered);
  const auto more = static_cast<std::int64_t>(static_cast<double>(updates) * seconds / once);
  for (int round = 0; round < turns(seconds, 3) && best.start + once < kSlow; ++round) {
    const Cost cost = cost_of(parts, std::max(updates, more), delivered);
    best.start = std::min(best.start, cost.start);
    best.bytes = std::min(best.bytes, cost.bytes);
    best.message = round == 0 ? cost.message : std::min(best.message, cost.message);
  }
  return best;
}

/// p where the cost grows as size^p, by least squares over the larger half of the sizes.
double exponent(const std::vector<std::int64_t>& sizes,
                const std::vector<Cost>& costs,
                double Cost::*of) {
  const std::size_t first = std::min(costs.size() / 2, costs.size() - 2);
  double n = 0, x = 0, y = 0, xx = 0, xy = 0;
  for (std::size_t i = first; i < costs.size(); ++i) {
    const double at = std::log(static_cast<double>(sizes[i]));
    const double value = std::log(std::max(costs[i].*of, 1e-12));
    n += 1;
    x += at;
    y += value;
    xx += at * at;
    xy += at * value;
  }
  return (n * xy - x * y) / (n * xx - x * x);
}

Row grows(const Axis& axis, double seconds) {
  std::vector<Cost> costs;
  for (const std::int64_t size : axis.sizes) {
    costs.push_back(best_cost(axis.parts(size), size + 50, seconds / 20));
    if (costs.back().start > kSlow || (costs.size() > 1 && is_quick(seconds))) {
      break;
    }
  }
  const auto both = [&](const char* format, double Cost::*of, double unit) {
    return number(format, unit * costs.front().*of) + " to " +
           number(format, unit * costs.back().*of);
  };
  const auto grown = [&](double Cost::*of) {
    return number("%.2f", exponent(axis.sizes, costs, of));
  };
  return {concat(axis.what, ", ", axis.sizes.front(), " to ", axis.sizes[costs.size() - 1]),
          both("%.2f", &Cost::message, 1e6) + " us a message",
          "start " + both("%.2g", &Cost::start, 1e3) + " ms, memory " +
              both("%.2g", &Cost::bytes, 1e-6) + " MB",
          "exponents " + grown(&Cost::message) + ", " + grown(&Cost::start) + ", " +
              grown(&Cost::bytes),
          "n log n"};
}

}  // namespace

Rows costs_by_size(double seconds) {
  Rows rows;
  for (const Axis& axis : axes()) {
    rows.push_back(grows(axis, seconds));
  }
  return rows;
}

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
    const TimeModel times(sections::clock(b.experiment), b.times, 1);
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
