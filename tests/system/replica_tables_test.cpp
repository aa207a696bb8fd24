// The papers' comparisons of ways to train with several replicas, reduced: what a correct
// implementation must show. Real actors in virtual time. Accuracies are of 14x14 MNIST, 10,000
// images, an MLP 196-64-10; apps/docs/replicas.md has the whole tables.
#include "apps/run/run.hpp"
#include "experiment/clock.pb.h"
#include "messages/sections.hpp"
#include "runtime/system/time_model.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/harness.hpp"
#include "tests/support/skip.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <queue>
#include <string>
#include <vector>

namespace replica_tables_test {

using namespace troupe;
using namespace troupe::test;

namespace {

/// Gaps by version, as they were measured.
class Gaps final : public RecordSink {
 public:
  std::optional<Diverged> on(const RecordEntry& entry, double) override {
    if (const auto* applied = std::get_if<AppliedRecord>(&entry); applied && applied->gap >= 0) {
      gaps_.emplace_back(applied->applied_to, applied->gap);
    }
    return std::nullopt;
  }

  /// Mean over the versions [first, last).
  double mean(std::int64_t first, std::int64_t last) const {
    double sum = 0;
    double n = 0;
    for (const auto& [version, gap] : gaps_) {
      if (version >= first && version < last) {
        sum += gap;
        ++n;
      }
    }
    return sum / n;
  }

 private:
  std::vector<std::pair<std::int64_t, double>> gaps_;
};

Summary simulate(const std::string& text, const Options& sets, RecordSink* tee = nullptr) {
  const auto e = experiment(text, sets);
  const auto blueprint = make_blueprint(e);
  INFO((blueprint ? std::string() : blueprint.error().message));
  REQUIRE(blueprint);
  RunOptions options;
  options.virtual_clock = true;
  options.tee = tee;
  const auto result = run_experiment(*blueprint, options);
  REQUIRE(result);
  return result->summary;
}

std::string key(const std::string& name, double value) {
  return concat(name, "=", value);
}

/// One worker's mini-batch takes 1 s in the mean, with a deviation of 0.1 s; pushes and answers none.
const std::string kClock =
    "clock { forward { seconds: 1 gamma { shape: 100 } } input_gradient { seconds: 0 } "
    "weight_gradient { seconds: 0 } } pipeline { stages: 1 schedule { one_f_one_b {} } weights { "
    "latest {} } } ";

/// Nothing to learn: who waits for whom, and how late gradients are.
const std::string kNoTraining =
    kClock +
    "model { quadratic { layers: 1 } } data { none {} batch_size: 1 } optimizer { rule: sgd "
    "learning_rate: 0 momentum: 0 } record { evaluate: false order: false gap_every: 0 } ";

const std::filesystem::path kMnist = std::filesystem::path(TROUPE_SHARED_DATA) / "mnist";

bool lacks_mnist() {
  if (std::filesystem::exists(kMnist)) {
    return false;
  }
  skip("no MNIST beside the repository");
  return true;
}

/// Epochs of 312 mini-batches.
std::string training(double epochs) {
  return kClock + "model { mlp { hidden: [64] initial: he } } data { mnist { path: \"" +
         kMnist.string() +
         "\" limit: 10000 pool: 2 } batch_size: 32 } optimizer { rule: momentum learning_rate: "
         "0.005 momentum: 0.9 weight_decay: 0.0001 schedule { milestones { at: [0.5, 0.75] factor: "
         "0.1 } } } stop { epochs: " +
         std::to_string(epochs) + " } record { order: false evaluate_every: 1000000 }";
}

/// `replicas`, the first epoch's rate rising from eta / replicas.
Options crowd(std::int64_t replicas, const std::string& rule) {
  Options sets{concat("replicas.count=", replicas), "replicas.rule=" + rule};
  if (replicas > 1) {
    sets.insert(sets.end(),
                {"optimizer.warm_up=312",
                 key("optimizer.warm_up_from", 1 / static_cast<double>(replicas))});
  }
  return sets;
}

double accuracy(const Summary& summary) {
  return 100 * summary.test_accuracy.value_or(0);
}

/// Mean over three seeds.
template <class Measure>
double over_seeds(const Measure& measure) {
  double sum = 0;
  for (const char* seed : {"seed=1", "seed=2", "seed=3"}) {
    sum += measure(seed);
  }
  return sum / 3;
}

/// Seconds of 100 mini-batches of each replica where all wait for all, over those where nobody waits.
double waiting_over_not(std::int64_t replicas, const Options& more) {
  const Options sets = joined({concat("replicas.count=", replicas)}, more);
  const Summary together =
      simulate(kNoTraining, joined(sets, {"replicas.exchange=synchronous", "stop.updates=100"}));
  const Summary alone =
      simulate(kNoTraining, joined(sets, {concat("stop.updates=", 100 * replicas)}));
  return together.seconds / alone.seconds;
}

/// Seconds until R replicas under a bound on their clocks have pushed so often: a loop over
/// finished mini-batches. slow(replica, t): whether a mini-batch that begins at t takes 4 s, not 1.
template <class Slow>
double ssp_seconds(std::int64_t pushes, std::int64_t bound, const Slow& slow) {
  constexpr std::size_t kReplicas = 8;
  using Finish = std::pair<double, std::size_t>;
  std::priority_queue<Finish, std::vector<Finish>, std::greater<>> running;
  std::vector<std::int64_t> clocks(kReplicas, 0);
  std::vector<bool> held(kReplicas, false);
  const auto begin = [&](std::size_t r, double t) {
    running.push({t + (slow(r, t) ? 4 : 1), r});
  };
  for (std::size_t r = 0; r < kReplicas; ++r) {
    begin(r, 0);
  }
  double now = 0;
  for (std::int64_t i = 0; i < pushes; ++i) {
    const auto [t, r] = running.top();
    running.pop();
    now = t;
    ++clocks[r];
    held[r] = true;
    const std::int64_t slowest = *std::min_element(clocks.begin(), clocks.end());
    for (std::size_t other = 0; other < kReplicas; ++other) {
      if (held[other] && slowest >= clocks[other] - bound) {
        held[other] = false;
        begin(other, t);
      }
    }
  }
  return now;
}

}  // namespace

TEST_CASE("softsync's staleness is (R - 1) / floor(R / n), and at most 2 n among equals",
          "[system]") {
  constexpr std::int64_t kReplicas = 30;
  for (const std::int64_t n : {1, 2, 3, 4, 5, 6, 7, 10, 15, 30}) {
    const std::int64_t group = kReplicas / n;
    const std::int64_t pushes = 12000;
    const Options sets{"replicas.count=30",
                       concat("replicas.rule.softsync.n=", n),
                       concat("stop.updates=", pushes / group)};
    INFO("n " << n);
    const Summary even = simulate(kNoTraining, sets);
    const auto& staleness = even.staleness.at(0);
    const double law = static_cast<double>(kReplicas - 1) / static_cast<double>(group);
    // The first R gradients are of version 0 and less late: n / 2 too little each, at most.
    const double start = static_cast<double>(n * kReplicas) / static_cast<double>(pushes);
    CHECK(staleness.mean == Approx(law).margin(start));
    CHECK(staleness.max <= 2 * n);
    // Among machines that differ the mean stays, the bound does not hold.
    const Summary uneven = simulate(kNoTraining, joined(sets, {"clock.workers.spread=0.6"}));
    std::int64_t late = 0;
    for (const auto& [versions, count] : uneven.staleness.at(0).histogram) {
      late += versions > 2 * n ? count : 0;
    }
    CHECK(static_cast<double>(late) / static_cast<double>(pushes) > 0.01);
  }
}

TEST_CASE("a bound on clocks costs what a loop over finish times says", "[system]") {
  const std::string text =
      kNoTraining + "replicas { count: 8 rule { ssp {} } } stop { updates: 1872 }";
  for (const std::int64_t bound : {0, 1, 3, 10, 100000}) {
    const Options sets{concat("replicas.rule.ssp.bound=", bound), "clock.forward=constant"};
    INFO("bound " << bound);
    const Summary rotating =
        simulate(text, joined(sets, {"clock.workers.straggler.rotating.seconds=10"}));
    const Summary permanent =
        simulate(text, joined(sets, {"clock.workers.straggler.permanent.factor=4"}));
    CHECK(rotating.seconds == Approx(ssp_seconds(1872, bound, [](std::size_t r, double t) {
                                return static_cast<std::size_t>(t / 10) % 8 == r;
                              })).margin(1e-6));
    CHECK(permanent.seconds == Approx(ssp_seconds(1872, bound, [](std::size_t r, double) {
                                 return r == 0;
                               })).margin(1e-6));
  }
}

TEST_CASE("replicas that do not wait for each other are faster", "[system]") {
  // The mean over the largest of so many times of deviation 0.1, calculated from 50,000 draws.
  for (const auto& [replicas, law] :
       std::map<std::int64_t, double>{{4, 1.10}, {16, 1.18}, {64, 1.25}}) {
    INFO(replicas << " replicas");
    CHECK(waiting_over_not(replicas, {}) == Approx(law).margin(0.02));
  }
}

TEST_CASE("among machines that differ waiting costs the slowest one's time", "[system]") {
  // Factors of deviation 0.6. A draw's ratio is known; their mean, from 200,000 draws, is 2.45, 3.58
  // and 4.59 for 4, 16 and 64 machines, with a deviation of 1.55, 1.27 and 1.06: three standard errors
  // of the mean are allowed. (Few machines cost less than the 3.4 to 4.8 that is told of many.)
  struct Row {
    std::int64_t replicas;
    double mean;
    double deviation;
  };

  constexpr int kDraws = 8;
  for (const Row& row : {Row{4, 2.45, 1.55}, Row{16, 3.58, 1.27}, Row{64, 4.59, 1.06}}) {
    INFO(row.replicas << " machines");
    double sum = 0;
    for (int seed = 1; seed <= kDraws; ++seed) {
      const Options sets{
          "clock.forward=constant", "clock.workers.spread=0.6", concat("seed=", seed)};
      const auto e = experiment(kNoTraining, sets);
      const TimeModel times(
          sections::clock(e), {}, sections::seed(e), static_cast<std::int32_t>(row.replicas));
      double slowest = 0;
      double speeds = 0;
      for (std::int32_t r = 0; r < row.replicas; ++r) {
        slowest = std::max(slowest, times.slowness(r, 0, 0));
        speeds += 1 / times.slowness(r, 0, 0);
      }
      const double ratio = waiting_over_not(row.replicas, sets);
      CHECK(ratio == Approx(slowest * speeds / static_cast<double>(row.replicas)).epsilon(0.02));
      sum += ratio;
    }
    CHECK(sum / kDraws == Approx(row.mean).margin(3 * row.deviation / std::sqrt(kDraws)));
  }
}

TEST_CASE("DANA bears replicas that other momentum does not", "[system]") {
  if (lacks_mnist()) {
    return;
  }
  const std::string text = training(20);
  std::map<std::pair<std::string, std::int64_t>, double> table;
  for (const std::string rule : {"nag", "multi", "dana_zero", "dana_slim"}) {
    for (const std::int64_t replicas : {1, 8, 32, 64}) {
      table[{rule, replicas}] = over_seeds([&](const std::string& seed) {
        const Summary summary =
            simulate(text, joined(crowd(replicas, rule), {"stop.allow_divergence=true", seed}));
        const Summary::Server& server = summary.servers.at(0);
        CHECK(server.lag + server.in_flight_age == summary.updates * (replicas - 1));
        return accuracy(summary);
      });
      const double mean = table[{rule, replicas}];
      UNSCOPED_INFO(rule << " of " << replicas << ": " << mean);
    }
  }
  for (const std::string rule : {"nag", "multi", "dana_zero", "dana_slim"}) {
    CHECK(table[{rule, 8}] > table[{rule, 1}] - 0.3);
  }
  CHECK(table[{"nag", 32}] < table[{"nag", 1}] - 10);
  CHECK(table[{"dana_zero", 32}] > table[{"multi", 32}]);
  CHECK(table[{"nag", 64}] < 30);
  CHECK(table[{"multi", 64}] > table[{"nag", 64}] + 10);
  CHECK(table[{"dana_zero", 64}] > table[{"multi", 64}]);
  for (const std::string rule : {"dana_zero", "dana_slim"}) {
    CHECK(table[{rule, 32}] > 93.4);
    CHECK(table[{rule, 64}] > 91.5);
  }
}

TEST_CASE("the point that DANA sends is as near as without momentum", "[system]") {
  if (lacks_mnist()) {
    return;
  }
  const std::string text = training(10);  // the rate drops after 1560 and 2340 updates
  for (const std::int64_t replicas : {4, 8}) {
    const auto gap = [&](const std::string& rule, const Options& more) {
      return over_seeds([&](const std::string& seed) {
        Gaps gaps;
        const Options sets = joined(crowd(replicas, rule),
                                    {"optimizer.learning_rate=0.02", "record.gap_every=1", seed});
        simulate(text, joined(sets, more), &gaps);
        // The first steps at the new rate are left out: velocities are still of the old one.
        CHECK(gaps.mean(1600, 2340) < gaps.mean(312, 1560) / 8);
        CHECK(gaps.mean(2400, 3120) < gaps.mean(1600, 2340) / 8);
        return gaps.mean(0, 3120);
      });
    };
    const double plain = gap("asgd", {"optimizer.rule=sgd"});
    const double dana = gap("dana_zero", {});
    const double nag = gap("nag", {});
    INFO(replicas << " replicas: " << plain << ' ' << dana << ' ' << nag);
    CHECK(dana / plain > 0.7);
    CHECK(dana / plain < 1.4);
    // The reference's 2 and 8. The latter is where ratios lie, not a bound: 7.99 with a deviation of
    // 0.69 over ten seeds; 7 is 2.5 standard errors of three below. What has to hold exactly is in
    // runtime/schemes/rules_test.
    CHECK(nag / plain > (replicas == 4 ? 2 : 7));
  }
}

TEST_CASE("averaging models needs no averaged moments, and suffers when they are zeroed",
          "[system]") {
  if (lacks_mnist()) {
    return;
  }
  const std::string text = training(6);
  const auto at = [&](const std::string& state, std::int64_t period, const Options& more = {}) {
    return accuracy(simulate(text,
                             joined({"replicas.count=4",
                                     "optimizer.learning_rate=0.02",
                                     "optimizer.warm_up=78",
                                     "optimizer.warm_up_from=0.25",
                                     concat("replicas.exchange.averaging.period=", period),
                                     "replicas.exchange.averaging.state=" + state},
                                    more)));
  };
  const double kept = at("kept", 1);
  CHECK(at("averaged", 1) == Approx(kept).margin(0.3));
  CHECK(at("kept", 20) == Approx(kept).margin(0.6));
  CHECK(at("reset", 1) < kept - 2);
  CHECK(at("reset", 5) < kept - 1);
  CHECK(at("kept", 100, {"replicas.split=by_label"}) < kept - 3);
}

TEST_CASE(
    "an outer momentum with every arrival poisons asynchronous DiLoCo, a delayed one does not",
    "[system]") {
  if (lacks_mnist()) {
    return;
  }
  const std::string text =
      training(0) +
      "replicas { count: 4 exchange { diloco { period: 20 mode { asynchronous {} } } } }";
  const auto outcome = [&](const Options& more) {
    return simulate(text,
                    joined({"stop.updates=2000",
                            "optimizer.rule=adamw",
                            "optimizer.learning_rate=0.0005",
                            "optimizer.weight_decay=0",
                            "optimizer.schedule=cosine",
                            "clock.forward=constant",
                            "clock.workers.slowness=[0.58,0.75,1.51,3.33]"},
                           more));
  };
  const std::string asynchronous = "replicas.exchange.diloco.mode.asynchronous.";
  const Options same_steps{asynchronous + "dynamic_steps=false"};
  const Summary together = outcome({"replicas.exchange.diloco.mode=synchronous"});
  const Summary sgd = outcome(joined(same_steps, {asynchronous + "outer=sgd"}));
  const Summary nesterov = outcome(joined(same_steps, {asynchronous + "outer=nesterov"}));
  const Summary delayed = outcome(same_steps);
  const Summary both = outcome({});
  CHECK(together.seconds > 3 * both.seconds);
  CHECK(sgd.train_loss > nesterov.train_loss);
  CHECK(nesterov.train_loss > delayed.train_loss);
  CHECK(delayed.train_loss > both.train_loss);
  CHECK(accuracy(both) > accuracy(together) - 0.5);
}

}  // namespace replica_tables_test
