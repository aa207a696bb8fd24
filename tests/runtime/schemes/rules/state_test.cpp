// What a Step keeps, and what it may write to.
#include "runtime/schemes/optimizers/optimizer_step.hpp"
#include "tests/runtime/schemes/rules/steps.hpp"

namespace state_test {

using namespace troupe;
using namespace troupe::test;

TEST_CASE("the last handle of the weights is written over, others never", "[schemes]") {
  Stream stream{Device{}};
  for (const char* rule : {"asgd",
                           "heavy_ball",
                           "nag",
                           "multi",
                           "ssp",
                           "dana_zero",
                           "dana_slim",
                           "lwp",
                           "smega2",
                           "ormo",
                           "dual_averaging"}) {
    INFO(rule);
    const auto step = step_of(four({std::string("replicas.rule=") + rule}));
    for (const bool shared : {false, true}) {
      Tensor base = normal_tensor(stream, 1, {kElements});
      const float* buffer = base.data<float>();
      const Values before = to_host(base);
      const Tensor reader = shared ? base : Tensor();
      Update update{.base = std::move(base), .contributions = {}, .rate = 0.1, .reaches = {}};
      update.contributions.push_back(
          {.rate = 0.1, .values = {normal_tensor(stream, 2, {kElements})}, .read = reader});
      const Updated updated = step->apply(stream, std::move(update));
      CHECK((updated.next.data<float>() == buffer) == !shared);
      if (shared) {
        CHECK(to_host(reader) == before);
      }
    }
  }
}

TEST_CASE("predictions are made of the server's own step", "[schemes]") {
  Stream stream{Device{}};
  const auto step = step_of(four({"replicas.rule=heavy_ball"}));
  const Tensor g = normal_tensor(stream, 2, {kElements});
  Update update{.base = normal_tensor(stream, 1, {kElements}),
                .contributions = {},
                .rate = 0.1,
                .next_rate = 0.05,
                .reaches = {{ReachKind::linear, 3}}};
  update.contributions.push_back({.values = {g}, .read = {}});
  const Updated updated = step->apply(stream, std::move(update));
  REQUIRE(updated.predictions.size() == 1);
  Values expected = to_host(updated.next);
  const Values v = to_host(g);
  each(v, [&](std::size_t j) { expected[j] -= 3 * 0.05 * v[j]; });
  check_close("prediction", to_host(updated.predictions[0]), expected, kRounding);
}

TEST_CASE("a step says how much it keeps", "[schemes]") {
  const std::vector<std::pair<std::string, std::int64_t>> rows{{"asgd", 1},
                                                               {"nag", 1},
                                                               {"multi", 4},
                                                               {"adagrad", 1},
                                                               {"ssp", 0},
                                                               {"dana_zero", 5},
                                                               {"dana_slim", 0},
                                                               {"lwp", 1},
                                                               {"smega2", 2},
                                                               {"ormo", 1},
                                                               {"dual_averaging", 2}};
  for (const auto& [rule, tensors] : rows) {
    INFO(rule);
    CHECK(step_of(four({"replicas.rule=" + rule}))->state_tensors() == tensors);
  }
  CHECK(step_of(four({"optimizer.rule=adam"}))->state_tensors() == 2);
  CHECK(step_of(four({"optimizer.rule=muon"}))->state_tensors() == 2);  // 15 of 1 and 22 of 2
}

TEST_CASE("moments can be handed over, and forgotten", "[schemes]") {
  Stream stream{Device{}};
  const proto::Experiment e = experiment({"optimizer.rule=adam"});
  const auto fresh = [&] {
    return OptimizerStep(ChunkOptimizer(e, Rate(e.optimizer(), 0), 0, 0),
                         {.pieces = {{0, 0, {kElements}, false}}, .slice_sizes = {kElements}});
  };
  const auto step = [&](OptimizerStep& o, std::uint64_t seed) {
    Weights base;
    base.push_back({.values = normal_tensor(stream, 1, {kElements})});
    return to_host(
        o.apply(
             stream, base, {normal_tensor(stream, seed, {kElements})}, {.rate = 0.1, .reaches = {}})
            .next.front()
            .values);
  };
  OptimizerStep a = fresh();
  CHECK(a.moments(0).empty());
  const Values first = step(a, 2);
  REQUIRE(a.moments(0).size() == 2);
  OptimizerStep b = fresh();
  step(b, 3);
  b.set_moments(0, a.moments(0));
  const Values m = to_host(a.moments(0)[0]);
  CHECK(to_host(b.moments(0)[0]) == m);
  CHECK_THROWS_WITH(b.set_moments(0, {a.moments(0)[0]}), says("adam keeps 2 moments, not 1"));
  a.reset();
  CHECK(step(a, 2) == first);  // the correction of the bias begins anew, too
}

}  // namespace state_test
