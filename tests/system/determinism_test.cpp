// The determinism contract: on the virtual clock equal order and weights, on the real clock equal
// weights, for every schedule and policy; what is measured changes nothing.
#include "runtime/schemes/policies/policy.hpp"
#include "runtime/schemes/schedules/schedule_scheme.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/harness.hpp"

#include <algorithm>

namespace determinism_test {

using namespace troupe;
using namespace troupe::test;

namespace {

/// Every combination that is legal at K = 3, and at K = 2 for the schedule that has its stages in pairs.
std::vector<std::vector<std::string>> combinations() {
  std::vector<std::vector<std::string>> all;
  for (const ScheduleScheme& schedule : schedule_schemes()) {
    if (schedule.info.name == "file") {
      continue;  // it has no rows here
    }
    const bool both_ways = schedule.info.name == "dual_pipe";
    const std::string stages = both_ways ? "pipeline.stages=2" : "pipeline.stages=3";
    const std::string filled = both_ways || schedule.info.name == "dual_pipe_v" ? "6" : "3";
    for (const PolicyScheme& policy : policy_schemes()) {
      // vertical_sync is defined at M = 1; 2BW needs a delay of at most 1, in full duplex M >= 2 (K - 1).
      const bool asynchronous = !schedule.flushed;
      std::string M = filled;
      if (policy.info.name == "vertical_sync" && asynchronous) {
        M = "1";
      } else if (policy.info.name == "double_buffered" &&
                 schedule.info.name == "async_full_duplex") {
        M = "4";
      }
      all.push_back({"pipeline.schedule=" + schedule.info.name,
                     "pipeline.weights=" + policy.info.name,
                     "pipeline.micro_batches=" + M,
                     stages});
      if (policy.info.name == "nesterov") {
        all.back().push_back("optimizer.rule=nadamw");
      }
    }
    for (const std::string part : {"correct", "rescale"}) {
      all.push_back({"pipeline.schedule=" + schedule.info.name,
                     "pipeline.weights.pipemare." + part + "=false",
                     "pipeline.micro_batches=" + filled,
                     stages});
    }
  }
  return all;
}

BoxedExperiment small(const std::vector<std::string>& with,
                      const std::vector<std::string>& more = {}) {
  std::vector<std::string> set{"pipeline.stages=3",
                               "data.batch_size=12",
                               "stop.updates=12",
                               "optimizer.learning_rate=0.005",
                               "clock.forward.gamma.shape=3",
                               "clock.input_gradient.log_normal.sigma=0.5"};
  set.insert(set.end(), with.begin(), with.end());
  set.insert(set.end(), more.begin(), more.end());
  return experiment(tiny_task("10,9,8,8,8", "relu"), set);
}

}  // namespace

TEST_CASE("sim twice gives equal weights and order; run gives the same weights, twice",
          "[system]") {
  for (const auto& with : combinations()) {
    INFO(with[0] << " " << with[1]);
    const Outcome first = run(small(with));
    REQUIRE(first.ending.exit_code == 0);
    const Outcome second = run(small(with));
    CHECK(same(second.weights, first.weights));
    CHECK(second.order == first.order);
    CHECK(second.seconds == first.seconds);
    const Outcome threads = run(small(with), {.threads = true, .lose = {}});
    CHECK(threads.ending.exit_code == 0);
    CHECK(same(threads.weights, first.weights));
    const Outcome apart =
        run(small(with, {"placement.optimizer=own"}), {.threads = true, .lose = {}});
    CHECK(same(apart.weights, first.weights));
  }
}

TEST_CASE("policies that predict take every optimizer along its own direction", "[system]") {
  for (const std::string rule : {"sgd",
                                 "nesterov",
                                 "adamw",
                                 "nadam",
                                 "adagrad",
                                 "rmsprop",
                                 "muon",
                                 "lion",
                                 "lars",
                                 "lamb",
                                 "soap",
                                 "basis_rotation"}) {
    const auto with = [&](const std::string& policy) {
      return small({"pipeline.schedule=async_one_f_one_b",
                    "pipeline.micro_batches=3",
                    "pipeline.weights=" + policy,
                    "optimizer.rule=" + rule,
                    "optimizer.weight_decay=0.1",
                    "optimizer.trust=1"});  // lars' steps are too small else to leave a trace
    };
    const std::vector<float> stashed = run(with("stash")).weights;
    for (const std::string policy :
         {"spectrain", "spectrain_paper", "xpipe", "pipeoptim", "pipemare"}) {
      INFO(rule << " " << policy);
      const Outcome first = run(with(policy));
      REQUIRE(first.ending.exit_code == 0);
      CHECK_FALSE(same(first.weights, stashed));
      CHECK(same(run(with(policy), {.threads = true, .lose = {}}).weights, first.weights));
    }
  }
}

TEST_CASE("evaluation and other measurements change no weight, and modelled time none either",
          "[system]") {
  for (const auto& with : combinations()) {
    INFO(with[0] << " " << with[1]);
    const std::vector<float> weights = run(small(with)).weights;
    const Outcome evaluated =
        run(small(with, {"record.evaluate=true", "record.evaluate_every=4", "record.gap_every=2"}));
    CHECK(same(evaluated.weights, weights));
    CHECK(evaluated.evaluations.size() == 3);
    const bool two = std::ranges::count(with, "pipeline.stages=2") > 0;
    const std::string unlike =
        two ? "clock.forward.seconds=[3,1]" : "clock.forward.seconds=[3,1,2]";
    CHECK(same(run(small(with, {unlike, "clock.link.seconds=0.5"})).weights, weights));
  }
}

TEST_CASE("evaluations on both clocks agree", "[system]") {
  const auto e = small({"pipeline.schedule=async_one_f_one_b", "pipeline.weights=spectrain"},
                       {"record.evaluate=true", "record.evaluate_every=5"});
  const Outcome virtual_clock = run(e);
  const Outcome real_clock = run(e, {.threads = true, .lose = {}});
  REQUIRE(virtual_clock.evaluations.size() == 3);  // steps 5, 10 and 12
  REQUIRE(real_clock.evaluations.size() == 3);
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(virtual_clock.evaluations[i].step == real_clock.evaluations[i].step);
    CHECK(virtual_clock.evaluations[i].loss == real_clock.evaluations[i].loss);
    CHECK(virtual_clock.evaluations[i].accuracy == real_clock.evaluations[i].accuracy);
  }
}

TEST_CASE("another seed gives another run", "[system]") {
  CHECK_FALSE(same(run(small({"seed=1"})).weights, run(small({"seed=2"})).weights));
}

}  // namespace determinism_test
