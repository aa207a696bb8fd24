// Numbers worked out by hand from the papers' formulas; nothing here calls what it checks for them.
#include "runtime/schemes/optimizers/chunk_optimizer.hpp"

#include "experiment.pb.h"
#include "kernels/functors/update.hpp"
#include "messages/experiment.hpp"
#include "tests/support/catch.hpp"

#include <cmath>

namespace chunk_optimizer_test {

using namespace troupe;

namespace {

ChunkOptimizer optimizer(const std::vector<std::string>& assignments,
                         std::int64_t delay = 0,
                         std::int64_t synchronous = 0) {
  proto::Experiment e;
  for (const std::string& assignment : assignments) {
    REQUIRE(set_value(e, assignment));
  }
  REQUIRE(resolve(e));
  return {e, Rate(e.optimizer(), 0), delay, synchronous};
}

/// Of update t at `rate`.
UpdateScalars scalars(const ChunkOptimizer& of, std::int64_t t, double rate, double& carried) {
  return of.scalars(of.numbers(t, rate), carried);
}

/// float32 of a number that is right to 7 digits.
Approx about(double value) {
  return Approx(value).epsilon(2e-7);
}

}  // namespace

TEST_CASE("what every kernel has is the experiment's", "[schemes]") {
  double carried = 1;
  const UpdateScalars s = scalars(optimizer({"optimizer.weight_decay=0.25",
                                             "optimizer.momentum=0.5",
                                             "optimizer.beta2=0.75",
                                             "optimizer.epsilon=0.125"}),
                                  7,
                                  0.0625,
                                  carried);
  CHECK(s.rate == 0.0625f);
  CHECK(s.decay == 0.25f);
  CHECK(s.gamma == 0.5f);
  CHECK(s.beta2 == 0.75f);
  CHECK(s.epsilon == 0.125f);
}

// Here beta1 = 7/8 and beta2 = 63/64, which float32 has exactly.
TEST_CASE("Adam's moments are divided by 1 - beta^t", "[schemes]") {
  for (const std::string name : {"adam", "adamw", "muon"}) {
    const ChunkOptimizer adam = optimizer(
        {"optimizer.rule=" + name, "optimizer.momentum=0.875", "optimizer.beta2=0.984375"});
    double carried = 1;
    CHECK(scalars(adam, 1, 1, carried).m_scale == about(8));
    CHECK(scalars(adam, 1, 1, carried).v_scale == about(64));
    CHECK(scalars(adam, 3, 1, carried).m_scale == about(512.0 / (512 - 343)));
    CHECK(scalars(adam, 3, 1, carried).v_scale == about(262144.0 / (262144 - 250047)));
  }
}

TEST_CASE("NAdam's share of gradient and momentum follow mu_t = beta1 (1 - 0.96^(0.004 t) / 2)",
          "[schemes]") {
  // g: (1 - mu_t) / (1 - mu_1 ... mu_t); m: mu_(t+1) / (1 - mu_1 ... mu_(t+1)); beta1 = 0.9.
  for (const std::string name : {"nadam", "nadamw"}) {
    const ChunkOptimizer nadam =
        optimizer({"optimizer.rule=" + name, "optimizer.momentum=0.9", "optimizer.beta2=0.984375"});
    double carried = 1;
    const UpdateScalars first = scalars(nadam, 1, 1, carried);
    CHECK(first.g_scale == about(1));
    CHECK(first.m_scale == about(0.5645177835538823));
    CHECK(first.v_scale == about(64));
    const UpdateScalars second = scalars(nadam, 2, 1, carried);
    CHECK(second.g_scale == about(0.689556696194273));
    CHECK(second.m_scale == about(0.49540873998397283));
    const UpdateScalars third = scalars(nadam, 3, 1, carried);
    CHECK(third.g_scale == about(0.6049606718067801));
    CHECK(third.m_scale == about(0.46958103219847463));
    CHECK(third.v_scale == about(262144.0 / (262144 - 250047)));
  }
}

TEST_CASE("spike compensation: a = gamma^d, b = 1 + gamma + ... + gamma^(d-1)", "[schemes]") {
  double carried = 1;
  const std::vector<std::string> with{"pipeline.weights=spike_compensation",
                                      "optimizer.momentum=0.9"};
  const UpdateScalars late = scalars(optimizer(with, 3), 5, 1, carried);
  CHECK(late.a == about(0.729));
  CHECK(late.b == about(2.71));
  const UpdateScalars current = scalars(optimizer(with, 0), 5, 1, carried);
  CHECK(current.a == 1);
  CHECK(current.b == 0);
}

TEST_CASE("PipeMare divides the rate by delay^p, p falling from 1 to 0 after the synchronous part",
          "[schemes]") {
  const std::vector<std::string> with{"pipeline.weights.pipemare.anneal=10",
                                      "optimizer.learning_rate=0.5"};
  const ChunkOptimizer late = optimizer(with, 4, 5);
  CHECK(late.rate(0) == 0.5);
  CHECK(late.rate(4) == 0.5);
  CHECK(late.rate(5) == Approx(0.125).epsilon(1e-12));
  CHECK(late.rate(10) == Approx(0.25).epsilon(1e-12));  // p = 1/2
  CHECK(late.rate(15) == Approx(0.5).epsilon(1e-12));
  CHECK(late.rate(1000) == Approx(0.5).epsilon(1e-12));
  CHECK(optimizer(with, 1).rate(0) == 0.5);
  CHECK(optimizer(with, 0).rate(0) == 0.5);
  CHECK(optimizer({"pipeline.weights.pipemare.rescale=false", "optimizer.learning_rate=0.5"}, 4)
            .rate(0) == 0.5);
}

TEST_CASE("PipeMare smooths the displacement by D over one delay", "[schemes]") {
  const ChunkOptimizer late = optimizer({"pipeline.weights.pipemare.decay=0.125"}, 3);
  CHECK(late.displacement());
  CHECK(late.displacement_decay() == Approx(0.5).epsilon(1e-12));
  CHECK_FALSE(optimizer({"pipeline.weights=pipemare"}, 0).displacement());
  CHECK_FALSE(optimizer({"pipeline.weights.pipemare.correct=false"}, 3).displacement());
  CHECK_FALSE(optimizer({"pipeline.weights=stash"}, 3).displacement());
}

TEST_CASE("a reach is rate x horizon along the direction, or fades, or goes back", "[schemes]") {
  const ChunkOptimizer r = optimizer({"optimizer.momentum=0.9"});
  CHECK(r.factor({}, 1, 0.5) == 0);
  CHECK(r.factor({ReachKind::linear, 3}, 1, 0.5) == 1.5);
  CHECK(r.factor({ReachKind::geometric, 1}, 1, 0.5) == Approx(0.45).epsilon(1e-12));
  CHECK(r.factor({ReachKind::geometric, 3}, 1, 0.5) ==
        Approx(1.2195).epsilon(1e-12));  // 0.5 (0.9 + 0.81 + 0.729)
  CHECK(r.factor({ReachKind::displacement, -3}, 1, 0.5) == 3);
}

// FTPipe's prediction for Adam (pipe/weight_prediction/adam.py, msnag), run step by step in Python for
// gradients 0.5, -1, 0.25, beta1 0.9, beta2 0.99: (w - w_hat) / (eta x direction).
TEST_CASE("geometric fades Adam's momentum and not its second moment", "[schemes]") {
  const std::vector<std::vector<double>> by_update{
      {0.6682138040747659, 1.6041153508165447, 2.7625943268431965},
      {0.770878291848388, 1.931403520972758, 3.443559276524052},
      {0.8168911436995805, 2.0972906525133013, 3.8241313757655666}};
  for (const char* name : {"adam", "adamw"}) {
    const ChunkOptimizer of = optimizer({concat("optimizer.rule=", name),
                                         "pipeline.weights=geometric",
                                         "optimizer.momentum=0.9",
                                         "optimizer.beta2=0.99"});
    for (std::size_t t = 0; t < by_update.size(); ++t) {
      const auto at = [&](std::int32_t h) {
        return of.factor({ReachKind::geometric, h}, static_cast<std::int64_t>(t) + 1, 1);
      };
      INFO(name << " " << t);
      CHECK(at(1) == Approx(by_update[t][0]).epsilon(1e-6));
      CHECK(at(3) == Approx(by_update[t][1]).epsilon(1e-6));
      CHECK(at(7) == Approx(by_update[t][2]).epsilon(1e-6));
    }
  }
}

// Both moments are weighted means, so of a gradient that never changes they are that gradient and
// its square after any number of steps: each adds two roundings of 2^-24 to a mean and none that
// stays. 1 - 0.999 is off by 1.3e-5 in float32, which must not be seen.
TEST_CASE("Adam's bias corrections belong to the moments that the kernel keeps", "[schemes]") {
  for (const char* beta2 : {"0.9", "0.95", "0.99", "0.999", "0.9999"}) {
    for (const char* name : {"adam", "adamw", "nadam"}) {
      INFO(name << " " << beta2);
      const ChunkOptimizer of = optimizer({concat("optimizer.rule=", name),
                                           "optimizer.momentum=0.9",
                                           concat("optimizer.beta2=", beta2)});
      double carried = 1;
      UpdateElement element{.w = 1, .g = 0.375f};
      for (int t = 1; t <= 20; ++t) {
        const UpdateScalars s = scalars(of, t, 0.001, carried);
        detail::adam_moments(s, element.g, element);
        const double tolerance = (2 * t + 2) * std::ldexp(1.0, -24);
        CHECK(std::abs(element.v * s.v_scale / (0.375 * 0.375) - 1) <= tolerance);
        if (name != std::string("nadam")) {  // whose scale looks ahead
          CHECK(std::abs(element.m * s.m_scale / 0.375 - 1) <= tolerance);
        }
      }
    }
  }
}

}  // namespace chunk_optimizer_test
