// DualPipe (pipeline.schedule=dual_pipe): against a loop over mini-batches that knows no stages, bit for bit; in time and in
// memory.
#include "actors/pipeline/optimizer.hpp"
#include "kernels/elementwise.hpp"
#include "messages/experiment.hpp"
#include "messages/sections.hpp"
#include "runtime/data/batch.hpp"
#include "runtime/schemes/optimizers/optimizer_step.hpp"
#include "runtime/schemes/optimizers/rate.hpp"
#include "runtime/schemes/policies/policy.hpp"
#include "runtime/schemes/schedules/timeline.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/harness.hpp"

#include <algorithm>
#include <cmath>

namespace dual_pipe_test {

using namespace troupe;
using namespace troupe::test;

namespace {

BoxedExperiment task(int K, int M, const Options& more = {}) {
  return experiment(tiny_task("10,9,8,8,8,7,7"),
                    joined({concat("pipeline.stages=", K),
                            concat("pipeline.micro_batches=", M),
                            "pipeline.schedule=dual_pipe",
                            "data.batch_size=48",
                            "optimizer.learning_rate=0.1",
                            "stop.updates=12"},
                           more));
}

Outcome trained(const proto::Experiment& e, bool threads = false) {
  Outcome outcome = run(e, {.threads = threads, .lose = {}});
  INFO(outcome.ending.cause);
  REQUIRE(outcome.ending.exit_code == 0);
  return outcome;
}

/// The gradients of the micro-batches first, first + 2, ..., added up in this order and divided by the number of all.
std::vector<Tensor> half_of_gradient(Stream& stream,
                                     const Blueprint& b,
                                     const Chunk& network,
                                     const Weights& weights,
                                     std::int64_t batch,
                                     std::int32_t first) {
  const std::int32_t M = b.schedule->options.micro_batches;
  BatchOrder order(b.data->size(Split::train), b.sizes, sections::seed(b.experiment));
  const Pass pass{.stream = stream, .seed = sections::seed(b.experiment)};
  std::vector<Tensor> sum;
  for (std::int32_t m = first; m < M; m += 2) {
    const auto samples =
        gather_batch(stream, *b.data, Split::train, order.indices(batch, m, M), order.epoch(batch));
    ForwardPass forward =
        network.forward(pass, weights, {}, Bundle{{"x", samples.x}}, samples.target, true);
    const InputGradient error = network.input_gradient(pass, weights, std::move(forward.stash), {});
    sum = network.weight_gradient(stream, error.deltas, std::move(sum), m + 2 < M ? 1 : M).gradient;
  }
  return sum;
}

/// What the loop makes of `e`: even and odd micro-batches are added up apart, then the two sums.
std::vector<float> by_loop(const proto::Experiment& e) {
  BoxedExperiment whole = e;
  for (const char* set : {"pipeline.stages=1", "pipeline.schedule=sequential"}) {
    REQUIRE(set_value(*whole, set));
  }
  const auto b = make_blueprint(whole);
  REQUIRE(b);
  const Chunk& network = *b->chunks.front();
  Stream stream{Device{}};
  OptimizerStep step(ChunkOptimizer(whole, rate_of(*b), 0, 0), slice_layout(network.layout()));
  Weights weights;
  for (Tensor& slice : network.initial_slices(stream, sections::seed(whole))) {
    weights.push_back({.values = std::move(slice)});
  }
  for (std::int64_t batch = 0; batch < b->batches; ++batch) {
    const std::vector<Tensor> even = half_of_gradient(stream, *b, network, weights, batch, 0);
    std::vector<Tensor> both = half_of_gradient(stream, *b, network, weights, batch, 1);
    for (std::size_t s = 0; s < both.size(); ++s) {
      add(stream, both[s], even[s], ActivationKind::none, both[s]);
    }
    weights = step.apply(stream, weights, std::move(both), {.rate = 0.1, .reaches = {}}).next;
  }
  std::vector<float> all;
  for (const auto& [spec, slice, offset] : network.layout().entries) {
    const float* const values = weights[slice].values.data<float>() + offset;
    all.insert(all.end(), values, values + spec.shape.elements());
  }
  return all;
}

std::string refusal(const proto::Experiment& e) {
  const auto made = make_blueprint(e);
  return made ? "" : made.error().message;
}

}  // namespace

TEST_CASE("DualPipe trains as a loop that adds up even and odd micro-batches apart, bit for bit",
          "[system]") {
  for (const int K : {2, 4, 6}) {
    for (const int M : {12, 16}) {
      for (const char* rule : {"sgd", "momentum"}) {
        INFO("K " << K << " M " << M << " " << rule);
        const BoxedExperiment e = task(K, M, {std::string("optimizer.rule=") + rule});
        const Outcome virtual_clock = trained(e);
        CHECK(same(virtual_clock.weights, by_loop(e)));
        CHECK(same(trained(e, true).weights, virtual_clock.weights));
      }
    }
  }
}

TEST_CASE("DualPipe's bits depend on no times, no evaluations and no recomputation", "[system]") {
  for (const int K : {2, 4}) {
    const std::vector<float> plain = trained(task(K, 8)).weights;
    const Outcome varied = trained(task(K,
                                        8,
                                        {"clock.forward.gamma.shape=3",
                                         "clock.input_gradient.log_normal.sigma=0.5",
                                         "clock.link.seconds=[0.25]",
                                         "record.evaluate=true",
                                         "record.evaluate_every=5"}));
    CHECK(same(varied.weights, plain));
    CHECK(varied.evaluations.size() == 3);
    CHECK(same(trained(task(K, 8, {"pipeline.activations=recompute"})).weights, plain));
    CHECK(same(trained(task(K, 8, {"optimizer.clip_norm=1000"})).weights, plain));
  }
}

TEST_CASE("DualPipe goes with every weight policy, which has nothing to do", "[system]") {
  const std::vector<float> plain = trained(task(4, 8)).weights;
  std::size_t tried = 0;
  for (const PolicyScheme& policy : policy_schemes()) {
    INFO(policy.info.name);
    const BoxedExperiment e = task(4, 8, {"pipeline.weights=" + policy.info.name});
    if (refusal(e).empty()) {
      ++tried;
      const Outcome outcome = trained(e);
      CHECK(outcome.ending.cause == "");
      // Two do something without a delay, too: a step by a momentum of its own, and a distance that follows from the stage.
      const bool acts = policy.info.name == "nwpt" || policy.info.name == "spectrain_paper";
      CHECK(same(outcome.weights, plain) == !acts);
    }
  }
  CHECK(tried >= 8);
}

TEST_CASE("replicas of DualPipe learn the same on both clocks", "[system]") {
  for (const char* exchange : {"synchronous", "averaging"}) {
    const BoxedExperiment e = task(
        2, 4, {"replicas.count=2", concat("replicas.exchange=", exchange), "data.batch_size=8"});
    CHECK(same(trained(e, true).weights, trained(e).weights));
  }
}

TEST_CASE("DualPipe takes the time of its closed form, and what the simulation says", "[system]") {
  const auto seconds = [](int K, int M, double f, double b, double w, const Options& more = {}) {
    const BoxedExperiment e = task(K,
                                   M,
                                   joined({concat("clock.forward.seconds=", f),
                                           concat("clock.input_gradient.seconds=", b),
                                           concat("clock.weight_gradient.seconds=", w),
                                           "stop.updates=3"},
                                          more));
    const auto made = make_blueprint(e);
    REQUIRE(made);
    const double time = trained(e).seconds;
    CHECK(time == Approx(simulate(*made->schedule, made->times, 3).end).epsilon(1e-12));
    return time;
  };
  for (const int K : {2, 4, 6}) {
    for (const int M : {12, 16}) {
      CHECK(seconds(K, M, 1, 1, 1) == Approx(3 * (3 * M + (K / 2 - 1) * 1)));
      CHECK(seconds(K, M, 1.25, 1, 0.75) == Approx(3 * (3 * M + (K / 2 - 1) * 1.5)));
    }
  }
  seconds(4, 8, 1, 2, 0.5, {"clock.link.seconds=0.125"});
}

TEST_CASE("each stage of DualPipe keeps K + 1 micro-batches, of two whole chunks", "[system]") {
  for (const int K : {2, 4, 6}) {
    const Outcome outcome = trained(task(K, 12));
    for (int k = 0; k < K; ++k) {
      CHECK(outcome.stashes_max.at(k) == K + 1);
    }
  }
}

TEST_CASE("what DualPipe is not for is refused", "[system]") {
  CHECK(refusal(task(3, 6)) ==
        "pipeline.schedule: dual_pipe pairs the stages that are as far from either end, so "
        "pipeline.stages (3) must be even");
  for (const int M : {6, 9}) {
    CHECK_THAT(refusal(task(4, M)), says("must be even and at least twice pipeline.stages (4)"));
  }
  CHECK_THAT(refusal(task(2, 4, {"pipeline.width=2"})), says("dual_pipe is for whole chunks"));
  CHECK_THAT(refusal(task(2, 4, {"pipeline.copies=[1,1]"})), says("pipeline.copies: "));
  CHECK_THAT(refusal(task(2, 4, {"pipeline.stage_of=[0,1]"})), says("pipeline.stage_of: "));
}

}  // namespace dual_pipe_test
