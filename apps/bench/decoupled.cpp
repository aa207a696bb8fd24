#include "apps/bench/benches.hpp"
#include "apps/bench/watch.hpp"
#include "apps/topologies/cast.hpp"
#include "runtime/system/threads.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace troupe {
namespace {

/// Mini-batches after which the first module is as far ahead as it may be.
constexpr std::int64_t kFilled = 12;

/// Keeps when each mini-batch was applied at the last of the modules to apply it.
class LastModule final : public RecordSink {
 public:
  std::optional<Diverged> on(const RecordEntry& entry, double now) override {
    if (const auto* applied = std::get_if<AppliedRecord>(&entry)) {
      double& at = applied_at_[applied->stamp.batch];
      at = std::max(at, now);
    }
    return std::nullopt;
  }

  double per_batch(std::int64_t first, std::int64_t last) const {
    return (applied_at_.at(last) - applied_at_.at(first)) / static_cast<double>(last - first);
  }

 private:
  std::map<std::int64_t, double> applied_at_;  // by mini-batch
};

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
             " } record { evaluate: false order: false gap_every: 0 }"));
  Cast cast = build_cast(b);
  LastModule watch;
  const Ending ending = run_on_threads(cast, watch, {});
  TROUPE_CHECK(ending.exit_code == 0, ending.cause);
  return watch.per_batch(kFilled - 1, kFilled + batches - 1);
}

Row unlocked_against_locked(const Modules& modules, double seconds) {
  const double once = seconds_of_a_batch(modules, "none {}", 5);
  const auto batches = std::max<std::int64_t>(10, std::llround(seconds / 10 / once));
  std::vector<double> ratios;
  std::vector<double> rates;
  for (int round = 0; round < turns(seconds, 7); ++round) {
    const double locked = seconds_of_a_batch(modules, "none {}", batches);
    const double unlocked = seconds_of_a_batch(modules, modules.unlocked, batches);
    ratios.push_back(locked / unlocked);
    rates.push_back(128 / unlocked);
  }
  const auto [least, most] = std::minmax_element(ratios.begin(), ratios.end());
  return {concat("two modules, ", modules.what),
          number("%.0f samples/s", median(rates)),
          "backpropagation, where they take turns",
          number("%.2f x", median(ratios)) + number(" (%.2f", *least) + number(" to %.2f)", *most),
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
