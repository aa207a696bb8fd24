// Policies whose backward reads other weights than its forward, against a hand-written loop over a
// small network in double. One layer a stage, so that a layer's delay is its stage's and the weights
// that an error passes on its way back are seen in the layers before.
#include "experiment/data.pb.h"
#include "kernels/stream.hpp"
#include "messages/sections.hpp"
#include "runtime/data/batch.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/harness.hpp"

#include <algorithm>
#include <cmath>
#include <functional>

namespace layerwise_test {

using namespace troupe;
using namespace troupe::test;

namespace {

using Values = std::vector<double>;

constexpr int kStages = 4;
constexpr std::int64_t kWidths[kStages + 1] = {12, 9, 8, 7, 5};
constexpr int kUpdates = 60;
constexpr double kRate = 0.05;
constexpr double kGamma = 0.9;

BoxedExperiment task(const std::string& policy, const std::vector<std::string>& more = {}) {
  const std::string to = policy.find('=') == std::string::npos ? "weights=" : "weights.";
  std::vector<std::string> set{"pipeline.stages=4",
                               "pipeline.schedule=async_one_f_one_b",
                               "pipeline." + to + policy,
                               "stop.updates=" + std::to_string(kUpdates)};
  set.insert(set.end(), more.begin(), more.end());
  return experiment(tiny_task("9,8,7", "tanh"), set);
}

/// What a pass reads: W[step] - velocity steps * rate * v[step] - displacement steps * delta[step].
struct Look {
  std::int64_t step = 0;
  double velocity = 0;
  double displacement = 0;
};

struct Policy {
  std::function<Look(std::int64_t b, std::int64_t d, int k)> forward;
  std::function<Look(std::int64_t b, std::int64_t d, int k)> backward;
  double decay = 0;          // PipeMare's D
  bool compensates = false;  // spike compensation's step
};

/// A dense layer; `w` (outputs, inputs), then the bias.
struct Layer {
  std::int64_t inputs, outputs, delay;
  std::vector<Values> w, v, delta;  // by step

  Values at(const Look& look) const {
    const auto s = static_cast<std::size_t>(look.step);
    Values out = w[s];
    for (std::size_t i = 0; i < out.size(); ++i) {
      out[i] -= look.velocity * kRate * v[s][i] + look.displacement * delta[s][i];
    }
    return out;
  }

  void update(const Values& gradient, const Policy& policy) {
    const double decay = policy.decay;
    const double faded = policy.compensates ? std::pow(kGamma, static_cast<double>(delay)) : 1;
    const double spike = (1 - faded) / (1 - kGamma);
    const double keep = delay > 0 ? std::pow(decay, 1.0 / static_cast<double>(delay)) : 0;
    Values next = w.back();
    Values velocity = v.back();
    Values smoothed = delta.back();
    for (std::size_t i = 0; i < next.size(); ++i) {
      velocity[i] = kGamma * velocity[i] + gradient[i];
      next[i] -= kRate * (faded * velocity[i] + spike * gradient[i]);
      smoothed[i] = keep * smoothed[i] - (1 - keep) * kRate * velocity[i];
    }
    w.push_back(std::move(next));
    v.push_back(std::move(velocity));
    delta.push_back(std::move(smoothed));
  }
};

/// y = x W^T + b, (rows, outputs)
Values dense(const Layer& layer, const Values& w, const Values& x, std::size_t rows) {
  const auto in = static_cast<std::size_t>(layer.inputs);
  const auto out = static_cast<std::size_t>(layer.outputs);
  Values y(rows * out);
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t o = 0; o < out; ++o) {
      y[r * out + o] = w[out * in + o];
      for (std::size_t i = 0; i < in; ++i) {
        y[r * out + o] += x[r * in + i] * w[o * in + i];
      }
    }
  }
  return y;
}

Values softmax_less_labels(Values y, const Tensor& labels, std::size_t classes) {
  const auto rows = y.size() / classes;
  for (std::size_t r = 0; r < rows; ++r) {
    double sum = 0;
    for (std::size_t c = 0; c < classes; ++c) {
      sum += y[r * classes + c] = std::exp(y[r * classes + c]);
    }
    for (std::size_t c = 0; c < classes; ++c) {
      const bool right = labels.span<std::int32_t>()[r] == static_cast<std::int32_t>(c);
      y[r * classes + c] = (y[r * classes + c] / sum - right) / static_cast<double>(rows);
    }
  }
  return y;
}

/// All parameters in layer order after kUpdates, in float32.
std::vector<float> by_hand(const proto::Experiment& e, const Policy& policy) {
  auto made = make_blueprint(e);
  REQUIRE(made);
  const std::vector<float> start = run(task("latest", {"optimizer.learning_rate=0"})).weights;
  std::vector<Layer> layers;
  auto next = start.begin();
  for (int k = 0; k < kStages; ++k) {
    Layer layer{.inputs = kWidths[k],
                .outputs = kWidths[k + 1],
                .delay = kStages - 1 - k,
                .w = {},
                .v = {},
                .delta = {}};
    const auto size = static_cast<std::size_t>(layer.outputs * (layer.inputs + 1));
    layer.w.emplace_back(next, next + static_cast<std::ptrdiff_t>(size));
    layer.v.emplace_back(size);
    layer.delta.emplace_back(size);
    next += static_cast<std::ptrdiff_t>(size);
    layers.push_back(std::move(layer));
  }
  REQUIRE(next == start.end());

  Stream stream{Device{}};
  BatchOrder order(
      made->data->size(Split::train), sections::data(e).batch_size(), sections::seed(e));
  const auto rows = static_cast<std::size_t>(sections::data(e).batch_size());
  for (std::int64_t b = 0; b < kUpdates; ++b) {
    const Batch batch =
        gather_batch(stream, *made->data, Split::train, order.indices(b, 0, 1), order.epoch(b));
    std::vector<Values> inputs{to_host(batch.x)};  // of each layer
    for (int k = 0; k < kStages; ++k) {
      const Layer& layer = layers[static_cast<std::size_t>(k)];
      Values y = dense(layer, layer.at(policy.forward(b, layer.delay, k)), inputs.back(), rows);
      if (k + 1 < kStages) {
        std::transform(y.begin(), y.end(), y.begin(), [](double z) { return std::tanh(z); });
      }
      inputs.push_back(std::move(y));
    }
    Values error = softmax_less_labels(inputs.back(), batch.target, kWidths[kStages]);
    for (int k = kStages - 1; k >= 0; --k) {
      Layer& layer = layers[static_cast<std::size_t>(k)];
      const Values w = layer.at(policy.backward(b, layer.delay, k));
      const Values& x = inputs[static_cast<std::size_t>(k)];
      const auto in = static_cast<std::size_t>(layer.inputs);
      const auto out = static_cast<std::size_t>(layer.outputs);
      Values gradient(w.size());
      Values before(rows * in);
      for (std::size_t r = 0; r < rows; ++r) {
        for (std::size_t o = 0; o < out; ++o) {
          const double dy = error[r * out + o];
          gradient[out * in + o] += dy;
          for (std::size_t i = 0; i < in; ++i) {
            gradient[o * in + i] += dy * x[r * in + i];
            before[r * in + i] += dy * w[o * in + i];
          }
        }
      }
      for (std::size_t i = 0; i < before.size(); ++i) {
        before[i] *= 1 - x[i] * x[i];  // tanh's; of no use below the first layer
      }
      layer.update(gradient, policy);
      error = std::move(before);
    }
  }
  std::vector<float> all;
  for (const Layer& layer : layers) {
    all.insert(all.end(), layer.w.back().begin(), layer.w.back().end());
  }
  return all;
}

// Rounding: 60 updates of weights around 1 and a gradient of some 16 rows, each to 6e-8: 1e-5 is far
// above, and what another View makes of the weights (checked below) is far above that.
constexpr double kTolerance = 1e-5;

std::int64_t natural(std::int64_t b, std::int64_t d) {
  return std::max<std::int64_t>(0, b - d);
}

Look delayed(std::int64_t b, std::int64_t d, int) {
  return {.step = natural(b, d)};
}

Look newest(std::int64_t b, std::int64_t, int) {
  return {.step = b};
}

Look predicted(std::int64_t b, std::int64_t d, int) {
  return {.step = natural(b, d), .velocity = static_cast<double>(std::min(b, d))};
}

}  // namespace

TEST_CASE("latest and pipeoptim go back through the newest weights", "[system]") {
  const Policy latest{.forward = delayed, .backward = newest};
  const Policy pipeoptim{.forward = predicted, .backward = newest};
  const std::vector<float> of_latest = run(task("latest")).weights;
  const std::vector<float> of_pipeoptim = run(task("pipeoptim")).weights;
  CHECK(distance(of_latest, by_hand(task("latest"), latest)) < kTolerance);
  CHECK(distance(of_pipeoptim, by_hand(task("pipeoptim"), pipeoptim)) < kTolerance);
  CHECK(distance(of_latest, of_pipeoptim) > 100 * kTolerance);
  // The same forwards, another backward.
  CHECK(distance(of_pipeoptim, run(task("spectrain")).weights) > 100 * kTolerance);
}

TEST_CASE("the paper's SpecTrain predicts twice, by its own horizons", "[system]") {
  const Policy paper{.forward =
                         [](std::int64_t b, std::int64_t d, int k) {
                           return Look{.step = natural(b, d),
                                       .velocity = static_cast<double>(std::min(b, d) + k / 2)};
                         },
                     .backward =
                         [](std::int64_t b, std::int64_t, int k) {
                           return Look{.step = b, .velocity = static_cast<double>(k / 2)};
                         }};
  const auto e = task("spectrain_paper");
  CHECK(distance(run(e).weights, by_hand(e, paper)) < kTolerance);
  CHECK(distance(run(e).weights, run(task("spectrain")).weights) > 100 * kTolerance);
}

TEST_CASE("XPipe predicts in both passes, by position", "[system]") {
  constexpr double kForward[] = {3, 2, 2, 2};  // XpipeAdam's expressions for m = 1, N = 4
  constexpr double kBackward[] = {0, 0, 1, 1};
  const Policy paper{.forward =
                         [&](std::int64_t b, std::int64_t d, int k) {
                           return Look{.step = natural(b, d), .velocity = kForward[k]};
                         },
                     .backward =
                         [&](std::int64_t b, std::int64_t, int k) {
                           return Look{.step = b, .velocity = kBackward[k]};
                         }};
  const auto e = task("xpipe");
  CHECK(distance(run(e).weights, by_hand(e, paper)) < kTolerance);
  const std::vector<float> by_updates = run(task("xpipe.horizon=updates")).weights;
  CHECK(distance(run(e).weights, by_updates) > 100 * kTolerance);
  CHECK(same(by_updates, run(task("pipeoptim")).weights));  // of one micro-batch
}

TEST_CASE("spike compensation goes without a stash, and with a prediction", "[system]") {
  const auto check = [](const char* options, const Policy& policy) {
    INFO(options);
    const auto e = task(options);
    const std::vector<float> got = run(e).weights;
    CHECK(distance(got, by_hand(e, policy)) < kTolerance);
    CHECK(distance(got, run(task("spike_compensation")).weights) > 100 * kTolerance);
  };
  check("spike_compensation.stash=false",
        {.forward = delayed, .backward = newest, .compensates = true});
  check("spike_compensation.predict=true",
        {.forward = predicted, .backward = predicted, .compensates = true});
  const auto e =
      task("spike_compensation.predict=true", {"pipeline.weights.spike_compensation.stash=false"});
  const Policy both{.forward = predicted, .backward = newest, .compensates = true};
  CHECK(distance(run(e).weights, by_hand(e, both)) < kTolerance);
}

TEST_CASE("PipeMare goes back through weights reconstructed by the smoothed displacement",
          "[system]") {
  const Policy pipemare{.forward = delayed,
                        .backward =
                            [](std::int64_t b, std::int64_t d, int) {
                              return Look{.step = b,
                                          .displacement = static_cast<double>(std::min(b, d))};
                            },
                        .decay = 0.3};
  const auto e =
      task("pipemare",
           {"pipeline.weights.pipemare.rescale=false", "pipeline.weights.pipemare.decay=0.3"});
  const std::vector<float> corrected = run(e).weights;
  CHECK(distance(corrected, by_hand(e, pipemare)) < kTolerance);
  CHECK(distance(corrected, run(task("latest")).weights) > 100 * kTolerance);
  // Without T1 and T2 nothing of PipeMare is left.
  CHECK(same(run(task("pipemare",
                      {"pipeline.weights.pipemare.rescale=false",
                       "pipeline.weights.pipemare.correct=false"}))
                 .weights,
             run(task("latest")).weights));
}

}  // namespace layerwise_test
