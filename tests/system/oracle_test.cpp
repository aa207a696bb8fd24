// E4: the policies against independent forms of the same algorithm.
#include "tests/support/catch.hpp"
#include "tests/support/harness.hpp"

#include <algorithm>
#include <cmath>
#include <functional>

namespace oracle_test {

using namespace troupe;
using namespace troupe::test;

namespace {

std::vector<float> weights(const proto::Experiment& e) {
  Outcome outcome = run(e);
  INFO(outcome.ending.cause);
  REQUIRE(outcome.ending.exit_code == 0);
  return outcome.weights;
}

std::string quadratic(int K, int updates, double rate) {
  return "model { quadratic { layers: " + std::to_string(K) +
         " dimensions: 3 condition: 5 } } data { batch_size: 1 none {} } "
         "optimizer { rule: momentum momentum: 0.9 learning_rate: " +
         std::to_string(rate) +
         " } "
         "pipeline { stages: " +
         std::to_string(K) +
         " schedule { async_one_f_one_b {} } } "
         "stop { updates: " +
         std::to_string(updates) + " } record { evaluate: false order: false gap_every: 0 }";
}

/// Losses by mini-batch: functions of the forward weights alone.
std::vector<double> losses(const std::string& text, const std::vector<std::string>& set) {
  const Outcome outcome = run(experiment(text, set));
  REQUIRE(outcome.ending.exit_code == 0);
  std::vector<double> all;
  for (const auto& [stamp, loss] : outcome.losses) {
    all.push_back(loss);
  }
  return all;
}

/// Relative where losses are above 1: they are stored in float32.
double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  REQUIRE(a.size() == b.size());
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    largest = std::max(largest, std::abs(a[i] - b[i]) / std::max(1.0, std::abs(b[i])));
  }
  return largest;
}

}  // namespace

TEST_CASE("vertical sync is SGD delayed by K-1, bit for bit", "[system]") {
  for (const int K : {2, 4, 6}) {
    const auto e = experiment(tiny_task("16,14,12,12,10", "relu"),
                              {"pipeline.stages=" + std::to_string(K),
                               "pipeline.schedule=async_one_f_one_b",
                               "pipeline.weights=vertical_sync",
                               "optimizer.learning_rate=0.01"});
    CHECK(same(weights(e), delayed_sgd(e, K - 1)));
    CHECK_FALSE(
        same(weights(e), delayed_sgd(e, K - 2)));  // the oracle can tell one delay from another
  }
}

TEST_CASE("2BW is SGD delayed by 1, bit for bit", "[system]") {
  for (const int K : {2, 4}) {
    for (const std::string rule : {"momentum", "adamw"}) {
      const auto e = experiment(tiny_task("16,14,12,12,10", "relu"),
                                {"pipeline.stages=" + std::to_string(K),
                                 "pipeline.micro_batches=4",
                                 "pipeline.schedule=async_one_f_one_b",
                                 "pipeline.weights=double_buffered",
                                 "optimizer.rule=" + rule,
                                 "optimizer.learning_rate=0.01"});
      CHECK(same(weights(e), delayed_sgd(e, 1)));
      CHECK_FALSE(same(weights(e), delayed_sgd(e, 0)));
    }
  }
}

TEST_CASE("error feedback adds what the update before would have been in time", "[system]") {
  for (const std::string rule : {"momentum", "adamw"}) {
    for (const int K : {2, 4}) {
      const auto with = [&](const std::string& c, const std::string& policy, int M) {
        return experiment(tiny_task("16,14,12,12,10", "relu"),
                          {"pipeline.stages=" + std::to_string(K),
                           "pipeline.micro_batches=" + std::to_string(M),
                           "pipeline.schedule=async_one_f_one_b",
                           "pipeline.weights=" + policy,
                           "pipeline.error_feedback=" + c,
                           "optimizer.rule=" + rule,
                           "optimizer.learning_rate=0.005"});
      };
      INFO(rule << " K " << K);
      const auto fed = with("1", "double_buffered", 4);
      CHECK(relative_distance(weights(fed), delayed_sgd(fed, 1, 1)) < 1e-5);
      CHECK(relative_distance(weights(fed), delayed_sgd(fed, 1)) > 1e-4);
      const auto half = with("0.5", "vertical_sync", 1);
      CHECK(relative_distance(weights(half), delayed_sgd(half, K - 1, 0.5)) < 1e-5);
    }
  }
}

TEST_CASE("with stash the last stage's gradients are in time and are not corrected", "[system]") {
  // The quadratic's stages share nothing: w of chunk k goes by w - 2u + u of the step before alone, u = eta w[t - D].
  constexpr int K = 3;
  constexpr double kRate = 0.05;
  const std::vector<float> made = weights(
      experiment(quadratic(K, 40, kRate),
                 {"optimizer.rule=sgd", "pipeline.weights=stash", "pipeline.error_feedback=1"}));
  REQUIRE(made.size() == 3 * K);
  for (int k = 0; k < K; ++k) {
    const int D = K - 1 - k;
    for (int i = 0; i < 3; ++i) {
      const double curvature = std::pow(5.0, i / 2.0);  // 1 to 5
      std::vector<double> w{1};
      double before = 0;
      for (int t = 0; t < 40; ++t) {
        const double u = kRate * curvature * w[static_cast<std::size_t>(std::max(0, t - D))];
        w.push_back(w.back() - u - (D > 0 && t > 0 ? u - before : 0));
        before = u;
      }
      CHECK(made[static_cast<std::size_t>(3 * k + i)] == Approx(w.back()).epsilon(1e-4));
    }
  }
}

TEST_CASE("with one stage and no delay every policy is plain SGD or its own look-ahead",
          "[system]") {
  const std::string task = tiny_task("16,14", "relu");
  const std::vector<float> plain = delayed_sgd(experiment(task), 0);
  for (const std::string policy : {"latest",
                                   "stash",
                                   "vertical_sync",
                                   "double_buffered",
                                   "accumulate",
                                   "spectrain",
                                   "spectrain_paper",
                                   "geometric",
                                   "xpipe",
                                   "pipeoptim",
                                   "pipemare"}) {
    INFO(policy);
    CHECK(same(weights(experiment(
                   task, {"pipeline.schedule=async_one_f_one_b", "pipeline.weights=" + policy})),
               plain));
  }
  // a = gamma^0 = 1, b = 0: v + 0 g.
  CHECK(same(
      weights(experiment(
          task, {"pipeline.schedule=async_one_f_one_b", "pipeline.weights=spike_compensation"})),
      plain));
}

TEST_CASE("geometric prediction is spike compensation on the quadratic", "[system]") {
  for (const int K : {2, 4, 8}) {
    const std::string text = quadratic(K, 200, 0.004);
    const double difference =
        largest_difference(losses(text, {"pipeline.weights=geometric"}),
                           losses(text, {"pipeline.weights=spike_compensation"}));
    INFO("K " << K);
    CHECK(difference <= 1e-6);
    CHECK(largest_difference(losses(text, {"pipeline.weights=geometric"}),
                             losses(text, {"pipeline.weights=stash"})) > 1e-3);
  }
}

TEST_CASE("one step of NWPT on one stage is Nesterov's momentum", "[system]") {
  // NWPT's gradient is taken at W - eta gamma v, which is what the one-point form of Nesterov
  // stores.
  const std::string text = quadratic(1, 300, 0.02);
  const std::vector<double> look_ahead = losses(text, {"pipeline.weights=nwpt"});
  const std::vector<double> nesterov =
      losses(text, {"optimizer.rule=nesterov", "pipeline.weights=latest"});
  CHECK(largest_difference(look_ahead, nesterov) <= 1e-6);
  CHECK(largest_difference(look_ahead, losses(text, {"pipeline.weights=latest"})) > 1e-3);
}

TEST_CASE("without momentum geometric is stash, exactly, and linear is not", "[system]") {
  const auto with = [](const std::string& policy) {
    return weights(experiment(tiny_task("16,14,12", "relu"),
                              {"pipeline.stages=4",
                               "pipeline.schedule=async_one_f_one_b",
                               "optimizer.momentum=0",
                               "pipeline.weights=" + policy}));
  };
  CHECK(same(with("geometric"), with("stash")));
  CHECK_FALSE(same(with("spectrain"), with("stash")));
}

TEST_CASE("recomputing with the stashed weights changes nothing", "[system]") {
  const auto with = [](const std::string& activations) {
    return weights(experiment(tiny_task("16,14,12", "gelu"),
                              {"pipeline.stages=4",
                               "pipeline.schedule=async_one_f_one_b",
                               "pipeline.weights=stash",
                               "pipeline.activations=" + activations}));
  };
  CHECK(same(with("recompute"), with("fifo")));
}

TEST_CASE("stash is SGD with a delay of its own for each layer", "[system]") {
  // One dimension, separable: chunk k follows w <- w - eta v, v <- gamma v + lambda w[t - d_k], so
  // its weights are those of a scalar recursion in double.
  const int K = 4;
  const int T = 120;
  const double rate = 0.01;
  const std::string text = quadratic(K, T, rate);
  const std::vector<float> w =
      weights(experiment(text, {"pipeline.weights=stash", "model.quadratic.dimensions=1"}));
  REQUIRE(w.size() == K);
  for (int k = 0; k < K; ++k) {
    const int d = K - 1 - k;
    std::vector<double> path{1.0};
    double v = 0;
    for (int t = 0; t < T; ++t) {
      v = 0.9 * v + path[static_cast<std::size_t>(std::max(0, t - d))];
      path.push_back(path.back() - rate * v);
    }
    INFO("stage " << k);
    CHECK(w[static_cast<std::size_t>(k)] == Approx(path.back()).margin(1e-5));
  }
}

namespace {

/// A chunk of the quadratic in double: w <- w - rate_t v, v <- gamma v + lambda x, where x, at which
/// the gradient is taken, is W[s] - rate_s times `factor` times v as at step s = max(0, t - delay).
struct Recursion {
  std::int64_t delay = 0;
  double factor = 0;
  double gamma = 0.9;
  std::function<double(std::int64_t)> rate{};

  double after(int updates) const {
    std::vector<double> w{1};
    std::vector<double> v{0};
    for (std::int64_t t = 0; t < updates; ++t) {
      const auto s = static_cast<std::size_t>(std::max<std::int64_t>(0, t - delay));
      const double x = w[s] - rate(static_cast<std::int64_t>(s)) * factor * v[s];
      v.push_back(gamma * v.back() + x);
      w.push_back(w.back() - rate(t) * v.back());
    }
    return w.back();
  }
};

/// The weights of the run against those of a Recursion a chunk. Errors of float32 are of the size of
/// one rounding a step of weights below 1, and shrink with the weights: 120 x 6e-8 is their sum.
void check_recursions(const std::string& policy,
                      const std::vector<std::string>& more,
                      const std::function<Recursion(int k)>& of_chunk) {
  const int K = 4;
  const int T = 120;
  const std::string to = policy.find('=') == std::string::npos ? "weights=" : "weights.";
  std::vector<std::string> set{"pipeline." + to + policy, "model.quadratic.dimensions=1"};
  set.insert(set.end(), more.begin(), more.end());
  const std::vector<float> w = weights(experiment(quadratic(K, T, 0.01), set));
  REQUIRE(w.size() == K);
  for (int k = 0; k < K; ++k) {
    INFO(policy << " stage " << k);
    CHECK(w[static_cast<std::size_t>(k)] == Approx(of_chunk(k).after(T)).epsilon(0).margin(1e-5));
  }
}

double constant(std::int64_t) {
  return 0.01;
}

}  // namespace

// The gradient of the quadratic is taken at the forward's weights, so these are about forwards;
// layerwise_test is about backwards.
TEST_CASE("on four stages each prediction is its own recursion", "[system]") {
  const auto delay = [](int k) {
    return std::int64_t{3 - k};
  };
  check_recursions("nwpt", {}, [&](int k) {
    return Recursion{.delay = delay(k), .factor = 0.9, .rate = constant};
  });
  for (const std::string policy : {"spectrain", "pipeoptim", "xpipe.horizon=updates"}) {
    // Whose horizon is min(t, delay): what it is at the start is of no matter, as v[0] = 0.
    check_recursions(policy, {}, [&](int k) {
      return Recursion{
          .delay = delay(k), .factor = static_cast<double>(delay(k)), .rate = constant};
    });
  }
  check_recursions("spectrain_paper", {}, [&](int k) {
    return Recursion{
        .delay = delay(k), .factor = static_cast<double>(delay(k) + k / 2), .rate = constant};
  });
  // Of four micro-batches the first reads one step back, but on the last stage, and predicts for
  // all.
  const std::vector<std::string> four{"pipeline.micro_batches=4", "data.batch_size=4"};
  check_recursions("xpipe.horizon=updates", four, [](int k) {
    const int d = k < 3 ? 1 : 0;
    return Recursion{.delay = d, .factor = static_cast<double>(d), .rate = constant};
  });
  // By position: of XpipeAdam's expressions in Python, for one and for four micro-batches.
  check_recursions("xpipe", {}, [&](int k) {
    return Recursion{.delay = delay(k), .factor = k == 0 ? 3.0 : 2.0, .rate = constant};
  });
  check_recursions("xpipe", four, [](int k) {
    return Recursion{.delay = k < 3 ? 1 : 0, .factor = k == 0 ? 2.0 : 1.0, .rate = constant};
  });
}

TEST_CASE("PipeMare's rescaled rates are those of a recursion", "[system]") {
  check_recursions(
      "pipemare",
      {"pipeline.weights.pipemare.anneal=50", "pipeline.weights.pipemare.correct=false"},
      [](int k) {
        const std::int64_t d = 3 - k;
        return Recursion{.delay = d, .rate = [d](std::int64_t t) {
                           const double p = 1 - std::min(1.0, static_cast<double>(t) / 50);
                           return d > 1 ? 0.01 / std::pow(static_cast<double>(d), p) : 0.01;
                         }};
      });
}

}  // namespace oracle_test
