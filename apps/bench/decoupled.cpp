#include "apps/bench/benches.hpp"
#include "apps/bench/watch.hpp"
#include "apps/bench/workload.hpp"
#include "apps/topologies/cast.hpp"
#include "runtime/system/threads.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

namespace troupe {
namespace {

/// Mini-batches after which the first module is as far ahead as it may be.
constexpr std::int64_t kFilled = 12;

struct Modules {
  const char* what;
  const char* model;     // textproto of an experiment's model; input 28x28x1
  const char* cut;       // where the second module begins
  const char* unlocked;  // textproto of an experiment's decoupled
};

/// Seconds of a mini-batch under the sequential schedule: under backpropagation the stages take turns.
double seconds_of_a_batch(const Modules& modules,
                          const std::string& decoupled,
                          std::int64_t batches) {
  const Blueprint b = bench_blueprint(
      concat("model { ",
             modules.model,
             " } data { batch_size: 128 glyphs { limit: 2048 test_limit: 10 } } "
             "optimizer { rule: momentum learning_rate: 0.001 } pipeline { stages: 2 cut: ",
             modules.cut,
             " schedule { sequential {} } weights { latest {} } } decoupled { ",
             decoupled,
             " } stop { updates: ",
             kFilled + batches,
             " }",
             kBenchRecord));
  Cast cast = build_cast(b);
  Watch watch(Watch::Of::last_to_apply);
  const Ending ending = run_on_threads(cast, watch, {});
  TROUPE_CHECK(ending.exit_code == 0, ending.cause);
  return watch.per_batch(kFilled - 1, kFilled + batches - 1);
}

Row unlocked_against_locked(const Modules& modules, double seconds) {
  const double once = seconds_of_a_batch(modules, "none {}", 5);
  const std::int64_t batches = as_many_as_fit(seconds / 10, once, 10);
  Rounds rounds;
  for (int round = 0; round < turns(seconds, 7); ++round) {
    const double locked = seconds_of_a_batch(modules, "none {}", batches);
    const double unlocked = seconds_of_a_batch(modules, modules.unlocked, batches);
    rounds.add(128 / unlocked, locked / unlocked);
  }
  return {concat("two modules, ", modules.what),
          number("%.0f samples/s", rounds.rate()),
          "backpropagation, where they take turns",
          rounds.ratio_and_range("%.2f x", " (%.2f", " to %.2f)"),
          ">= 1.7 x"};
}

}  // namespace

Rows decoupled_stages(double seconds) {
  constexpr const char* kMlp =
      "mlp { hidden: [512, 512, 512, 512, 512, 512, 512, 512, 512, 512, 512, 512] }";
  constexpr const char* kCnn =
      "layers { layer { convolution { outputs: 16 } } layer { activation {} } layer { max_pool {} "
      "} layer { convolution { outputs: 32 } } layer { activation {} } layer { max_pool {} } layer "
      "{ convolution { outputs: 64 } } layer { activation {} } layer { convolution { outputs: 64 } "
      "} layer { activation {} } layer { dense {} } }";
  const Modules all[] = {{"MLP, local losses", kMlp, "6", "local_loss {}"},
                         {"MLP, synthetic gradients", kMlp, "6", "synthetic { conditioned: true }"},
                         {"MLP, synthetic gradients and inputs",
                          kMlp,
                          "6",
                          "synthetic { conditioned: true unlocked: true }"},
                         {"CNN, local losses", kCnn, "6", "local_loss {}"},
                         {"CNN, heads of their own", kCnn, "6", "greedy { pool: 4 }"}};
  Rows rows;
  for (const Modules& modules : all) {
    rows.push_back(unlocked_against_locked(modules, seconds));
  }
  return rows;
}

}  // namespace troupe
