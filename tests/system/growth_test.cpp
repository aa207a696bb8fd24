// Mini-batches that grow during a run: the same as a loop over the same samples, on either clock, and
// what Smith et al. (2018) say of them.
#include "apps/run/run.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/harness.hpp"

#include <cmath>

namespace growth_test {

using namespace troupe;
using namespace troupe::test;

namespace {

/// 7 epochs of 103 samples: 12 at a time, then 18 from within the third epoch on, then 27. Dropout
/// tells samples apart by their number.
const std::string kTask =
    "model { layers { layer { dense { outputs: 11 activation: tanh } } layer { dropout { rate: 0.3 "
    "} } "
    "layer { dense { outputs: 9 activation: relu } } layer { dense { outputs: 8 activation: tanh } "
    "} "
    "layer { dropout {} } layer { dense {} } } } data { batch_size: 12 teacher { inputs: 6 "
    "outputs: 5 "
    "hidden: 8 train: 103 test: 20 } growth { at: [0.37, 0.7] factor: 1.5 } } "
    "optimizer { rule: momentum learning_rate: 0.05 } stop { epochs: 7 } "
    "record { evaluate: false order: false }";

std::vector<std::string> with(std::vector<std::string> first,
                              const std::vector<std::string>& more) {
  first.insert(first.end(), more.begin(), more.end());
  return first;
}

}  // namespace

TEST_CASE("growing mini-batches train as a plain loop over the same samples, however cut",
          "[system]") {
  const std::vector<float> plain = delayed_sgd(experiment(kTask, {"pipeline.micro_batches=3"}), 0);
  const std::vector<float> constant =
      delayed_sgd(experiment(kTask, {"pipeline.micro_batches=3", "data.growth.at=[]"}), 0);
  CHECK_FALSE(same(plain, constant));
  for (const std::string schedule : {"gpipe", "one_f_one_b", "zb_h1"}) {
    for (const std::string stages : {"1", "3"}) {
      INFO(schedule << " " << stages);
      const std::vector<std::string> set{
          "pipeline.micro_batches=3", "pipeline.schedule=" + schedule, "pipeline.stages=" + stages};
      const Outcome first = run(experiment(kTask, set));
      REQUIRE(first.ending.exit_code == 0);
      CHECK(same(first.weights, plain));
      CHECK(same(run(experiment(kTask, set), {.threads = true, .lose = {}}).weights, plain));
      // Dropout meets the same samples again.
      CHECK(same(run(experiment(kTask, with(set, {"pipeline.activations=recompute"}))).weights,
                 plain));
    }
  }
}

TEST_CASE("growing mini-batches are repeatable where schedules are asynchronous", "[system]") {
  for (const std::string weights : {"stash", "spectrain", "latest"}) {
    INFO(weights);
    const std::vector<std::string> set{"pipeline.micro_batches=3",
                                       "pipeline.schedule=async_one_f_one_b",
                                       "pipeline.stages=3",
                                       "pipeline.weights=" + weights};
    const Outcome first = run(experiment(kTask, set));
    const Outcome second = run(experiment(kTask, set));
    REQUIRE(first.ending.exit_code == 0);
    CHECK(same(second.weights, first.weights));
    CHECK(second.order == first.order);
    CHECK(same(run(experiment(kTask, set), {.threads = true, .lose = {}}).weights, first.weights));
  }
}

TEST_CASE("growth by 1 changes no bit", "[system]") {
  const std::vector<std::string> set{"pipeline.stages=3", "pipeline.schedule=async_one_f_one_b"};
  CHECK(same(run(experiment(kTask, with(set, {"data.growth.factor=1"}))).weights,
             run(experiment(kTask, with(set, {"data.growth.at=[]"}))).weights));
}

TEST_CASE("a summary counts the samples of growing mini-batches", "[system]") {
  struct Losses final : RecordSink {
    std::vector<std::pair<double, std::int64_t>> of;  // sum, samples

    std::optional<Diverged> on(const RecordEntry& entry, double) override {
      if (const auto* loss = std::get_if<LossRecord>(&entry)) {
        of.emplace_back(to_host(loss->result)[0], loss->samples);
      }
      return {};
    }
  } losses;

  const auto b = make_blueprint(experiment(kTask));
  REQUIRE(b);
  const auto result = run_experiment(*b,
                                     {.virtual_clock = true,
                                      .directory = {},
                                      .progress = nullptr,
                                      .terminal = false,
                                      .interrupts = {},
                                      .tee = &losses});
  REQUIRE(result);
  // Epochs of 8 mini-batches of 12: 2.59 of them end within the third, after 5. Then 18 a time: 2 more
  // in that epoch, 5 in each of the next, and 27 a time from epoch 4.9 on: not before the sixth, of 3.
  CHECK(result->summary.updates == 2 * 8 + 5 + 2 + 2 * 5 + 2 * 3);
  CHECK(result->summary.epochs == 7);
  CHECK(result->summary.samples == 21 * 12 + 12 * 18 + 6 * 27);
  REQUIRE(losses.of.size() == 39);
  std::int64_t samples = 0;
  double last_epoch = 0;
  for (std::size_t i = 0; i < losses.of.size(); ++i) {
    samples += losses.of[i].second;
    last_epoch += i >= 36 ? losses.of[i].first : 0;
  }
  CHECK(samples == result->summary.samples);
  CHECK(result->summary.train_loss == Approx(last_epoch / 81).epsilon(1e-12));
}

TEST_CASE("a mini-batch takes modelled time by its size, unless seconds are given", "[system]") {
  // 96 of 96 samples are seen in each epoch, whatever the size, so equal epochs take equal time.
  const std::vector<std::string> set{"data.teacher.train=96",
                                     "data.growth.at=[0.5]",
                                     "data.growth.factor=4",
                                     "stop.epochs=4",
                                     "clock.flops=1e6"};
  const double grown = run(experiment(kTask, set)).seconds;
  const double plain = run(experiment(kTask, with(set, {"data.growth.at=[]"}))).seconds;
  CHECK(grown > 0);
  CHECK(grown == Approx(plain).epsilon(1e-9));
  const std::vector<std::string> given = with(set,
                                              {"clock.forward.seconds=1",
                                               "clock.input_gradient.seconds=1",
                                               "clock.weight_gradient.seconds=1"});
  CHECK(run(experiment(kTask, given)).seconds == Approx(3 * (2 * 8 + 2 * 2)).epsilon(1e-12));
}

TEST_CASE("milestones are shares of the run's epochs", "[system]") {
  const auto b = make_blueprint(experiment(
      kTask, {"optimizer.schedule.milestones.at=[0.37,0.7]", "optimizer.learning_rate=1"}));
  REQUIRE(b);
  const Rate rate = rate_of(*b);
  CHECK(rate.at(20) == 1);
  CHECK(rate.at(21) == 0.1);  // where mini-batches grow, too
  CHECK(rate.at(32) == 0.1);
  CHECK(rate.at(33) == Approx(0.01));
}

// E12 (a) at a size for a test. By the paper the two runs follow the same curve in expectation, and
// their difference is that of two runs with other noise: of 1,000 test samples at 90 % accuracy the
// difference of two independent ones has a deviation of sqrt(2 * 0.9 * 0.1 / 1000) = 1.3 %.
TEST_CASE("batches five times as large do what rates a fifth as large do, in fewer updates",
          "[system]") {
  const std::string task =
      "model { mlp { hidden: [32] } } data { batch_size: 16 glyphs { limit: 2500 test_limit: 1000 "
      "} } "
      "optimizer { rule: momentum learning_rate: 0.01 } stop { epochs: 10 } "
      "record { order: false gap_every: 0 }";
  const Outcome decay = run(experiment(task,
                                       {"optimizer.schedule.milestones.at=[0.4,0.6,0.8]",
                                        "optimizer.schedule.milestones.factor=0.2"}));
  const Outcome growth =
      run(experiment(task, {"data.growth.at=[0.4,0.6,0.8]", "data.growth.factor=5"}));
  const Outcome half = run(experiment(task, {"stop.epochs=4"}));
  CHECK(decay.ending.step == 10 * 156);
  CHECK(growth.ending.step == 4 * 156 + 2 * 31 + 2 * 6 + 2 * 1);
  const double by_decay = decay.evaluations.back().accuracy;
  const double by_growth = growth.evaluations.back().accuracy;
  CAPTURE(by_decay, by_growth, half.evaluations.back().accuracy);
  CHECK(std::abs(by_decay - by_growth) < 0.026);
  CHECK(by_growth > half.evaluations.back().accuracy);
}

}  // namespace growth_test
