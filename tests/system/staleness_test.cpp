// E6-E8: what stale weights cost a deep network (eight layers on eight stages, delays 7 to 0), what
// momentum adds to the cost, how much of it each policy gives back, and what becomes of a pipeline
// that loses its activations.
//
// The tables are printed. Seeds are 1 to 4; every seed has its own weights, data and teacher.
#include "tests/support/catch.hpp"
#include "tests/support/harness.hpp"

#include <array>
#include <cmath>
#include <cstdio>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

using namespace troupe;
using namespace troupe::test;

namespace {

constexpr int kSeeds = 4;
constexpr int kChunks = 8;

using BySeed = std::array<double, kSeeds>;

double mean(const BySeed& values) {
  double sum = 0;
  for (const double v : values) {
    sum += v;
  }
  return sum / kSeeds;
}

/// The sample deviation.
double spread(const BySeed& values) {
  double sum = 0;
  for (const double v : values) {
    sum += std::pow(v - mean(values), 2);
  }
  return std::sqrt(sum / (kSeeds - 1));
}

template <typename... Values>
std::string line(const char* format, Values... values) {
  std::array<char, 256> text{};
  std::snprintf(text.data(), text.size(), format, values...);
  return text.data();
}

std::string number(double value) {
  return line("%.17g", value);
}

constexpr const char* kTanh = "mlp { hidden: [48,48,48,48,48,48,48] activation: tanh }";
constexpr const char* kSelu = "snn { hidden: [48,48,48,48,48,48,48] }";
constexpr const char* kClasses = "teacher { inputs: 32 outputs: 10 hidden: 32 train: 32000 }";
constexpr const char* kValues =
    "teacher { inputs: 32 outputs: 10 hidden: 32 values: true train: 32000 }";

/// What is trained, but for the rate and the momentum. No sample is seen twice.
struct Task {
  const char* model;
  const char* data;
  int batch_size;
  int updates;
};

/// One kind of run, on all seeds.
struct Runs {
  BySeed loss{};       // mean training loss of the last quarter; infinite where a run diverged
  BySeed first{};      // loss of the first mini-batch: of the untrained network
  BySeed test_loss{};  // at the end, at the newest weights
  BySeed accuracy{};
  std::array<double, kChunks> gap{};  // RMS over seeds and the last half of the run
  std::vector<std::vector<float>> weights;
};

/// `how`: "sync" is 1F1B with a flush, else a weight policy of asynchronous 1F1B.
Runs train(const Task& task,
           const std::string& how,
           double momentum,
           double rate,
           std::vector<std::string> assignments = {}) {
  const std::string text =
      "model { " + std::string(task.model) +
      " } data { batch_size: " + std::to_string(task.batch_size) + " " + task.data +
      " } optimizer { rule: momentum } pipeline { stages: 8 } stop { updates: " +
      std::to_string(task.updates) +
      " allow_divergence: true } record { evaluate: false evaluate_every: 1000000 order: false "
      "gap_every: 0 }";
  assignments.push_back("optimizer.momentum=" + number(momentum));
  assignments.push_back("optimizer.learning_rate=" + number(rate));
  if (how == "sync") {
    assignments.push_back("pipeline.schedule=one_f_one_b");
  } else {
    assignments.push_back("pipeline.schedule=async_one_f_one_b");
    assignments.push_back("pipeline.weights=" + how);
  }
  assignments.emplace_back();
  Runs runs;
  std::array<int, kChunks> gaps{};
  for (std::size_t i = 0; i < kSeeds; ++i) {
    assignments.back() = "seed=" + std::to_string(i + 1);
    Outcome outcome = run(experiment(text, assignments));
    runs.first[i] = outcome.mean_loss(0, 1);
    runs.loss[i] = outcome.diverged() ? std::numeric_limits<double>::infinity()
                                      : outcome.mean_loss(task.updates * 3 / 4, task.updates);
    if (!outcome.evaluations.empty()) {
      runs.test_loss[i] = outcome.evaluations.back().loss;
      runs.accuracy[i] = outcome.evaluations.back().accuracy;
    }
    for (const AppliedRecord& record : outcome.applied) {
      if (record.gap >= 0 && record.stamp.batch >= task.updates / 2) {
        const auto chunk = static_cast<std::size_t>(record.stamp.chunk);
        runs.gap.at(chunk) += record.gap * record.gap;
        ++gaps.at(chunk);
      }
    }
    runs.weights.push_back(std::move(outcome.weights));
  }
  for (std::size_t chunk = 0; chunk < kChunks; ++chunk) {
    runs.gap[chunk] = gaps[chunk] > 0 ? std::sqrt(runs.gap[chunk] / gaps[chunk]) : 0;
  }
  return runs;
}

/// The best of the rates for the synchronous run; it must not be the first or the last of them.
double best_synchronous(const Task& task,
                        double momentum,
                        const std::vector<double>& rates,
                        std::string& table) {
  std::size_t best = 0;
  double lowest = std::numeric_limits<double>::infinity();
  table += "synchronous, by rate:";
  for (std::size_t i = 0; i < rates.size(); ++i) {
    const Runs runs = train(task, "sync", momentum, rates[i]);
    table += line("  %g: %.4f +- %.4f", rates[i], mean(runs.loss), spread(runs.loss));
    if (mean(runs.loss) < lowest) {
      lowest = mean(runs.loss);
      best = i;
    }
  }
  table += line("; best %g\n", rates[best]);
  CHECK(best > 0);
  CHECK(best + 1 < rates.size());
  return rates[best];
}

/// The share of the gap between latest and sync that the policy closes: of the means over seeds.
double closed(const std::map<std::string, Runs>& runs, const std::string& policy) {
  const double latest = mean(runs.at("latest").loss);
  return (latest - mean(runs.at(policy).loss)) / (latest - mean(runs.at("sync").loss));
}

/// The same, seed by seed.
BySeed closed_by_seed(const std::map<std::string, Runs>& runs, const std::string& policy) {
  BySeed shares{};
  for (std::size_t i = 0; i < kSeeds; ++i) {
    const double latest = runs.at("latest").loss[i];
    shares[i] = (latest - runs.at(policy).loss[i]) / (latest - runs.at("sync").loss[i]);
  }
  return shares;
}

std::map<std::string, Runs> compare(const Task& task,
                                    const std::vector<std::string>& policies,
                                    double momentum,
                                    double rate,
                                    std::string& table) {
  std::map<std::string, Runs> all;
  for (const std::string& policy : policies) {
    all[policy] =
        train(task, policy, momentum, rate, {"record.gap_every=7", "record.evaluate=true"});
  }
  table += line(
      "momentum %g, rate %g: training loss of the last quarter, test loss at the end, "
      "share of the gap closed (seed by seed)\n",
      momentum,
      rate);
  for (const std::string& policy : policies) {
    const Runs& runs = all.at(policy);
    const BySeed shares = closed_by_seed(all, policy);
    table += line("  %-19s %.4f +- %.4f  %.4f +- %.4f  %5.1f %% (%.0f %.0f %.0f %.0f)\n",
                  policy.c_str(),
                  mean(runs.loss),
                  spread(runs.loss),
                  mean(runs.test_loss),
                  spread(runs.test_loss),
                  100 * closed(all, policy),
                  100 * shares[0],
                  100 * shares[1],
                  100 * shares[2],
                  100 * shares[3]);
  }
  table +=
      "distance from the weights of the forward to those of the update, over that of stash, "
      "by delay 7 to 1\n";
  for (const std::string& policy : policies) {
    if (policy == "sync" || policy == "latest" || policy == "stash") {
      continue;
    }
    table += line("  %-19s", policy.c_str());
    for (std::size_t chunk = 0; chunk + 1 < kChunks; ++chunk) {
      table += line(" %.2f", all.at(policy).gap[chunk] / all.at("stash").gap[chunk]);
    }
    table += "\n";
  }
  return all;
}

}  // namespace

TEST_CASE("E6: momentum makes staleness expensive", "[system]") {
  const Task task{kTanh, kValues, 64, 400};

  struct Found {
    double best = 0;     // rate with the lowest loss
    double lowest = 0;   // that loss
    double largest = 0;  // stable rate: where the network ends better than untrained
  };

  std::map<std::pair<std::string, double>, Found> found;
  std::string table = "loss of the last quarter, mean over seeds, by rate\n";
  for (const auto& [momentum, first] :
       std::map<double, double>{{0.0, 1. / 32}, {0.9, 1. / 512}, {0.95, 1. / 1024}}) {
    for (const std::string how : {"sync", "latest"}) {
      Found f;
      f.lowest = std::numeric_limits<double>::infinity();
      table += line("  momentum %-4g %-6s", momentum, how.c_str());
      for (double rate = first;; rate *= 2) {
        const Runs runs = train(task, how, momentum, rate);
        table += line("  2^%.0f: %.3f", std::log2(rate), mean(runs.loss));
        if (!(mean(runs.loss) < mean(runs.first))) {
          break;
        }
        f.largest = rate;
        if (mean(runs.loss) < f.lowest) {
          f.lowest = mean(runs.loss);
          f.best = rate;
        }
      }
      table += line("; best 2^%.0f, largest stable 2^%.0f (untrained %.3f)\n",
                    std::log2(f.best),
                    std::log2(f.largest),
                    mean(train({kTanh, kValues, 64, 1}, how, momentum, first).first));
      CHECK(f.best > first);  // not at the edge of what was looked at
      found[{how, momentum}] = f;
    }
  }
  for (const double momentum : {0.9, 0.95}) {
    const auto fall = [&](const std::string& how, double Found::*rate) {
      return found.at({how, 0.0}).*rate / (found.at({how, momentum}).*rate);
    };
    table += line(
        "  from momentum 0 to %g the best rate falls %g times (sync) and %g times "
        "(latest), the largest stable one %g and %g times\n",
        momentum,
        fall("sync", &Found::best),
        fall("latest", &Found::best),
        fall("sync", &Found::largest),
        fall("latest", &Found::largest));
    CHECK(fall("latest", &Found::best) >= 4 * fall("sync", &Found::best));
    CHECK(fall("latest", &Found::largest) >= 4 * fall("sync", &Found::largest));
    // Each at its own best rate: momentum costs latest, not sync.
    CHECK(found.at({"latest", momentum}).lowest > 1.2 * found.at({"latest", 0.0}).lowest);
    CHECK(found.at({"sync", momentum}).lowest < found.at({"sync", 0.0}).lowest);
  }

  table += "  at the tiny rate (1 - momentum) / 128:";
  std::vector<double> tiny;
  for (const double momentum : {0.0, 0.9, 0.95}) {
    for (const std::string how : {"sync", "latest"}) {
      tiny.push_back(mean(train(task, how, momentum, (1 - momentum) / 128).loss));
      table += line("  %.4f", tiny.back());
    }
    CHECK(tiny.back() == Approx(tiny[tiny.size() - 2]).epsilon(0.005));
    CHECK(tiny.back() == Approx(tiny.front()).epsilon(0.02));
  }
  WARN(table);
}

TEST_CASE("E7: prediction closes a third of the gap to the synchronous run", "[system]") {
  const Task task{kTanh, kClasses, 32, 1000};
  std::string table;
  const double rate = best_synchronous(task, 0.9, {0.01, 0.014, 0.02, 0.028, 0.04}, table);
  const auto runs = compare(task,
                            {"sync",
                             "latest",
                             "stash",
                             "spectrain",
                             "spectrain_paper",
                             "geometric",
                             "spike_compensation",
                             "pipeoptim",
                             "nwpt"},
                            0.9,
                            rate,
                            table);
  WARN(table);
  for (const std::string policy :
       {"spectrain", "spectrain_paper", "geometric", "spike_compensation"}) {
    INFO(policy);
    CHECK(closed(runs, policy) >= 0.3);
    for (const double share : closed_by_seed(runs, policy)) {
      CHECK(share > 0);
    }
  }
  // A true gradient, but as late.
  CHECK(closed(runs, "stash") < 0.3);
  // For pure noise the ratios would be from 0.75 at delay 7 to 0.45 at delay 1.
  for (std::size_t chunk = 0; chunk + 1 < kChunks; ++chunk) {
    for (const std::string policy : {"spectrain", "geometric"}) {
      INFO(policy << " chunk " << chunk);
      CHECK(runs.at(policy).gap[chunk] < runs.at("stash").gap[chunk]);
    }
  }
}

TEST_CASE("E7: without momentum there is nothing to predict along", "[system]") {
  const Task task{kTanh, kClasses, 32, 1000};
  std::string table;
  const double rate = best_synchronous(task, 0, {0.1, 0.14, 0.2, 0.28, 0.4}, table);
  const auto runs =
      compare(task, {"sync", "latest", "stash", "spectrain", "geometric"}, 0, rate, table);
  WARN(table);
  // The last gradient is mostly noise: d times it is farther than d steps, sqrt(d + 1) times if
  // there were nothing else.
  CHECK(closed(runs, "spectrain") < 0);
  for (std::size_t chunk = 0; chunk + 1 < kChunks; ++chunk) {
    INFO("chunk " << chunk);
    CHECK(runs.at("spectrain").gap[chunk] > runs.at("stash").gap[chunk]);
  }
  const double farthest = runs.at("spectrain").gap[0] / runs.at("stash").gap[0];
  CHECK(farthest > 1.5);
  CHECK(farthest < std::sqrt(8.) * 1.1);
  // The geometric rule knows: its horizon is gamma + gamma^2 + ... = 0.
  for (std::size_t i = 0; i < kSeeds; ++i) {
    CHECK(same(runs.at("geometric").weights[i], runs.at("stash").weights[i]));
  }
}

TEST_CASE("E8: without its own activations a backward teaches nothing", "[system]") {
  const Task task{kSelu, kClasses, 32, 1000};
  std::string table = "test accuracy at the end, newest weights\n";
  for (const double rate : {0.001, 0.003}) {
    const auto accuracy = [&](const std::string& how, const std::string& activations) {
      const Runs runs = train(
          task, how, 0.9, rate, {"record.evaluate=true", "pipeline.activations=" + activations});
      table += line("  rate %g %-6s %-9s %.4f +- %.4f, training loss %.4f +- %.4f\n",
                    rate,
                    how.c_str(),
                    activations.c_str(),
                    mean(runs.accuracy),
                    spread(runs.accuracy),
                    mean(runs.loss),
                    spread(runs.loss));
      return runs.accuracy;
    };
    const BySeed sync = accuracy("sync", "fifo");
    const BySeed fifo = accuracy("latest", "fifo");
    const BySeed recompute = accuracy("latest", "recompute");
    const BySeed overwrite = accuracy("latest", "overwrite");
    for (std::size_t i = 0; i < kSeeds; ++i) {
      INFO("rate " << rate << " seed " << i + 1);
      CHECK(overwrite[i] < 0.6 * fifo[i]);
    }
    CHECK(std::abs(mean(recompute) - mean(fifo)) < 0.03);
    if (rate == 0.001) {
      CHECK(std::abs(mean(fifo) - mean(sync)) < 0.02);
    }
  }
  WARN(table);
}
