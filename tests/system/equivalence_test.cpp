// E1: synchronous schedules compute the same mini-batch SGD, bit for bit, however the network is
// cut.
#include "experiment/optimizer.pb.h"
#include "runtime/schemes/optimizers/optimizer_scheme.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/harness.hpp"

namespace equivalence_test {

using namespace troupe;
using namespace troupe::test;

namespace {

const std::string kSynchronous[] = {
    "sequential", "gpipe", "one_f_one_b", "interleaved", "zb_h1", "zb_2p", "zb_v", "dual_pipe_v"};

std::string stages(int K) {
  return "pipeline.stages=" + std::to_string(K);
}

std::string micro_batches(int M) {
  return "pipeline.micro_batches=" + std::to_string(M);
}

/// Runs the task for one epoch of 32 mini-batches.
std::vector<float> train(const std::string& task, const std::vector<std::string>& assignments) {
  std::vector<std::string> all{"stop.updates=32"};
  all.insert(all.end(), assignments.begin(), assignments.end());
  const Outcome outcome = run(experiment(task, all));
  INFO(outcome.ending.cause);
  REQUIRE(outcome.ending.exit_code == 0);
  REQUIRE_FALSE(outcome.weights.empty());
  return outcome.weights;
}

}  // namespace

TEST_CASE("at equal M every synchronous schedule and every cut gives the same bits", "[system]") {
  const std::string task = tiny_task("24,20,16,16,12,12,8", "relu");
  const std::vector<float> plain =
      delayed_sgd(experiment(task, {"stop.updates=32", micro_batches(4)}), 0);
  for (const std::string& schedule : kSynchronous) {
    for (const int K : {1, 2, 3, 4}) {
      if ((schedule == "interleaved" && 4 % K != 0) || (schedule == "dual_pipe_v" && K > 2)) {
        continue;
      }
      INFO(schedule << " K " << K);
      CHECK(
          same(train(task, {"pipeline.schedule=" + schedule, stages(K), micro_batches(4)}), plain));
    }
  }
}

TEST_CASE("a schedule from a file gives the bits of every other", "[system]") {
  const std::string task = tiny_task("24,20,16,16,12,12,8", "relu");
  const std::vector<float> plain =
      delayed_sgd(experiment(task, {"stop.updates=32", micro_batches(2)}), 0);
  const std::string rows[] = {
      "0F0 0F1 . 0B0 0B1,. 1F0 1B0 1F1 1B1",                              // GPipe beside 1F1B
      "0F0 0F1 2F0 2F1 2B0 2B1 0B0 0B1,1F0 1F1 3F0 3B0 3F1 3B1 1B0 1B1",  // interleaved
      "0F0 0F1 . 0I0 0W0 0I1 0W1,. 1F0 1I0 1F1 1I1 1W0 1W1",              // zero bubble
      "0F0 0F1 3F0 3I0 3F1 (3W0;3I1)OVERLAP_F_B 3W1 0B0 0I1 0W1,1F0 2F0 1F1 2F1 2B0 1B0 "
      "2B1 1B1",                                           // V
      "0F0 1F0 0F1 1F1 1B0 1B1 0B0 0B1,2F0 2B0 2F1 2B1"};  // stages of 2 chunks and of 1
  for (const std::string& row : rows) {
    INFO(row);
    CHECK(same(
        train(task, {"pipeline.schedule.file.rows=[" + row + "]", stages(2), micro_batches(2)}),
        plain));
  }
}

TEST_CASE("the optimizer's own actor, recomputation and evaluation change no bit", "[system]") {
  const std::string task = tiny_task("24,20,16,16", "gelu");
  const std::vector<float> plain = train(task, {stages(3), micro_batches(4)});
  CHECK(same(train(task, {stages(3), micro_batches(4), "placement.optimizer=own"}), plain));
  CHECK(same(train(task, {stages(3), micro_batches(4), "pipeline.activations=recompute"}), plain));
  CHECK(same(
      train(task, {stages(3), micro_batches(4), "record.evaluate=true", "record.evaluate_every=5"}),
      plain));
  CHECK(
      same(train(task, {stages(3), micro_batches(4), "record.gap_every=3", "record.versions=true"}),
           plain));
}

TEST_CASE("every optimizer is the same on one chunk and on three", "[system]") {
  const std::string task = tiny_task("24,20,16,16", "relu");
  for (const std::string rule : {"sgd",
                                 "momentum",
                                 "nesterov",
                                 "adam",
                                 "adamw",
                                 "nadam",
                                 "nadamw",
                                 "adagrad",
                                 "rmsprop",
                                 "muon",
                                 "lion",
                                 "lars",
                                 "lamb",
                                 "soap",
                                 "basis_rotation"}) {
    INFO(rule);
    const std::vector<std::string> options{"optimizer.rule=" + rule,
                                           "optimizer.learning_rate=0.01",
                                           "optimizer.weight_decay=0.01",
                                           "optimizer.schedule=cosine",
                                           "optimizer.warm_up=5",
                                           micro_batches(2)};
    std::vector<std::string> three = options;
    three.push_back(stages(3));
    CHECK(same(train(task, three), train(task, options)));
    proto::Optimizer chosen;
    proto::OptimizerRule::Kind kind{};
    REQUIRE(proto::OptimizerRule::Kind_Parse(rule, &kind));
    chosen.set_rule(kind);
    if (optimizer_scheme(chosen).matrices) {
      continue;  // takes parameter by parameter: actors/optimizer_test, schemes/optimizers_test
    }
    std::vector<std::string> looped = options;
    looped.push_back("stop.updates=32");
    CHECK(same(train(task, options), delayed_sgd(experiment(task, looped), 0)));
  }
}

TEST_CASE("clipping by the global norm does not depend on the cut", "[system]") {
  const std::string task = tiny_task("24,20,16,16", "relu");
  const std::vector<float> one = train(task, {"optimizer.clip_norm=0.1", micro_batches(2)});
  for (const int K : {2, 3, 5}) {
    CHECK(same(train(task, {"optimizer.clip_norm=0.1", micro_batches(2), stages(K)}), one));
  }
  CHECK_FALSE(same(train(task, {micro_batches(2)}), one));  // it did clip
}

TEST_CASE("across M, gradients agree at step 0 and weights after 50 updates of a tanh network",
          "[system]") {
  const std::string task = tiny_task("24,20,16", "tanh");
  const std::vector<float> start = train(task, {"optimizer.learning_rate=0"});
  // One step of plain SGD with rate 1 is the gradient.
  const std::vector<std::string> one_step{
      "optimizer.rule=sgd", "optimizer.learning_rate=1", "stop.updates=1"};
  const auto gradient = [&](int M) {
    std::vector<std::string> with = one_step;
    with.push_back(micro_batches(M));
    std::vector<float> w = train(task, with);
    for (std::size_t i = 0; i < w.size(); ++i) {
      w[i] -= start[i];
    }
    return w;
  };
  const std::vector<float> reference = gradient(1);
  const std::vector<float> far = train(task, {"stop.updates=50"});
  for (const int M : {2, 4, 8}) {
    INFO("M " << M);
    CHECK(relative_distance(gradient(M), reference) < 1e-5);
    CHECK(relative_distance(train(task, {"stop.updates=50", micro_batches(M), stages(2)}), far) <
          1e-5);
  }
}

}  // namespace equivalence_test
