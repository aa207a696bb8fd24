// Two numbers that every gradient mixes, and two samples: what a trajectory is followed with, by hand or by a
// loop in double.
//
//   z = a x0 + b x1, loss log(1 + e^z) - y z; a and b are tensors of their own, from 0
//   sample 0: x = (1, 0.5), y = 0; sample 1: x = (-0.5, 2), y = 1. With replicas.split=by_label replica i has
//   sample i alone
#pragma once

#include "kernels/stream.hpp"
#include "runtime/data/memory.hpp"
#include "runtime/data/registry.hpp"
#include "runtime/model/layer.hpp"
#include "runtime/model/registry.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/harness.hpp"

#include <array>
#include <cmath>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace troupe::test::two_numbers {

/// (B, 2) -> (B, 2): (0, a x0 + b x1).
class TwoNumbers final : public PlainLayer {
 public:
  TwoNumbers() : PlainLayer("two") {}

  std::vector<ParameterSpec> parameters() const override {
    return {{.name = "two.a", .shape = {1}}, {.name = "two.b", .shape = {1}}};
  }

  Shape output_shape() const override { return {2}; }

  std::int64_t saved_bytes() const override { return 16; }

  Tensor transform(const Pass& pass,
                   Parameters w,
                   std::span<Tensor>,
                   const Tensor& x,
                   Saved& saved) const override {
    Tensor y = pass.stream.allocate(x.shape());
    const auto in = x.span<float>();
    const auto out = y.span<float>();
    for (std::size_t i = 0; i < in.size(); i += 2) {
      out[i] = 0;
      out[i + 1] = w[0].span<float>()[0] * in[i] + w[1].span<float>()[0] * in[i + 1];
    }
    saved = {x, {}};
    return y;
  }

  Tensor transform_gradient(const Pass&, Parameters, Saved& saved, Tensor dy, bool) const override {
    saved[1] = std::move(dy);
    return {};
  }

  void weight_gradient(Stream&, const Saved& saved, std::span<const Gradient> g) const override {
    const auto x = saved[0].span<float>();
    const auto dy = saved[1].span<float>();
    for (std::size_t p = 0; p < 2; ++p) {
      float& out = g[p].to.span<float>()[0];
      out = g[p].accumulate ? out : 0;
      for (std::size_t i = 0; i < x.size(); i += 2) {
        out += dy[i + 1] * x[i + p];
      }
    }
  }
};

/// The two samples and the network, by name.
inline bool registered() {
  static const bool done = [] {
    const MemorySamples samples{.x = {1, 0.5f, -0.5f, 2}, .labels = {0, 1}};
    const auto data =
        memory_dataset({.sample = {2}, .classes = 2, .train = samples, .test = samples});
    const bool opens =
        data && register_dataset({.info = {.name = "samples_of_two_numbers", .summary = ""},
                                  .open = [data](const DatasetContext&) {
                                    return data;
                                  }});
    return opens && register_network({.info = {.name = "network_of_two_numbers", .summary = ""},
                                      .build = [](Network& n, const NetworkContext&) {
                                        n.add(std::make_shared<TwoNumbers>());
                                        return Result<void>();
                                      }});
  }();
  return done;
}

/// Two replicas with a sample each, rate 0.2. A mini-batch takes a second.
inline Outcome train(const Options& set, const HarnessOptions& options = {}) {
  REQUIRE(registered());
  const Outcome done =
      run(experiment("data { custom { name: 'samples_of_two_numbers' } batch_size: 1 } "
                     "model { custom { name: 'network_of_two_numbers' } }",
                     joined({"replicas.count=2",
                             "replicas.split=by_label",
                             "optimizer.rule=sgd",
                             "optimizer.learning_rate=0.2",
                             "record.evaluate=false",
                             "clock.forward.seconds=[1]"},
                            set)),
          options);
  INFO(done.ending.cause);
  REQUIRE(done.ending.exit_code == 0);
  REQUIRE(done.weights.size() == 2);
  return done;
}

using Two = std::array<double, 2>;

/// Of replica `who` at w.
inline Two gradient(int who, const Two& w) {
  const Two x = who == 0 ? Two{1, 0.5} : Two{-0.5, 2};
  const double z = w[0] * x[0] + w[1] * x[1];
  const double error = 1 / (1 + std::exp(-z)) - who;
  return {error * x[0], error * x[1]};
}

/// What a replica makes of `w` in a mini-batch.
inline Two stepped(int who, const Two& w) {
  const Two g = gradient(who, w);
  return {w[0] - 0.2 * g[0], w[1] - 0.2 * g[1]};
}

/// Weights are below 2 here: some roundings of 1.2e-7.
inline void check_numbers(const Outcome& done, const Two& expected) {
  for (std::size_t p = 0; p < 2; ++p) {
    INFO("number " << p);
    CHECK(std::abs(done.weights[p] - expected[p]) < 5e-7);
  }
}

}  // namespace troupe::test::two_numbers
