// Every kind of layer under every schedule, weight policy and activation policy: skips that cross
// cuts, running statistics, dropout, tied parameters.
//   - synchronous schedules over K give the same bits, tied parameters up to the order of a sum
//   - recomputing a forward gives the same bits where the backward uses its forward's weights
//   - vertical sync is SGD delayed by K - 1, tied parameters included
//   - evaluations see the statistics of their step; nothing allocates after the first run
#include "experiment.pb.h"
#include "kernels/buffer.hpp"
#include "messages/weights.hpp"
#include "runtime/schemes/policies/policy.hpp"
#include "runtime/schemes/schedules/schedule_scheme.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/harness.hpp"
#include "tests/support/text_file.hpp"

#include <cmath>

namespace networks_test {

using namespace troupe;
using namespace troupe::test;

namespace {

std::string text_data() {
  return "data { text { path: '" + text_file() + "' context: 6 } } ";
}

std::string images() {
  return "model { layers { "
         "layer { convolution { outputs: 4 stride: 3 } } layer { batch_norm {} } "
         "layer { activation { kind: relu } } layer { fork { name: 'a' } } "
         "layer { convolution { outputs: 4 activation: tanh } } "
         "layer { group_norm { groups: 2 } } layer { join { name: 'a' activation: relu } } "
         "layer { dropout { rate: 0.25 } } layer { max_pool {} } "
         "layer { average_pool { kernel: 5 } } layer { dense { outputs: 4 } } layer { fork { name: "
         "'a' } } "
         "layer { dense { outputs: 4 activation: gelu } } layer { layer_norm {} } "
         "layer { join { name: 'a' } } layer { dense {} } } } "
         "data { glyphs { limit: 240 test_limit: 24 } } ";
}

std::string gpt(bool tied) {
  return "model { gpt { layers: 1 width: 8 heads: 2 dropout: 0.1 tied: " +
         std::string(tied ? "true" : "false") + " } label_smoothing: 0.1 } " + text_data();
}

/// Heads share keys, and an expert may get more than another.
std::string llama() {
  return "model { llama { layers: 1 width: 8 heads: 4 kv_heads: 2 experts: 3 hidden: 6 balance: 0 "
         "} } " +
         text_data();
}

/// An inception block: three ways from one image, side by side; then what came before them beside that.
std::string joined_images() {
  return "model { layers { "
         "layer { convolution { outputs: 4 stride: 3 activation: silu } } layer { fork { name: 'c' "
         "} } "
         "layer { fork { name: 'a' } } layer { fork { name: 'b' } } "
         "layer { convolution { outputs: 3 kernel: 1 padding: 0 activation: gelu_erf } } "
         "layer { swap { name: 'a' } } layer { convolution { outputs: 2 activation: relu } } "
         "layer { concatenate { name: 'a' } } "
         "layer { swap { name: 'b' } } layer { convolution { outputs: 2 kernel: 5 padding: 2 } } "
         "layer { concatenate { name: 'b' } } layer { concatenate { name: 'c' } } "
         "layer { upsample {} } layer { rms_norm {} } layer { average_pool { kernel: 0 } } layer { "
         "dense {} } } } "
         "data { glyphs { limit: 240 test_limit: 24 } } ";
}

std::string lstm() {
  return "model { lstm { layers: 2 width: 6 residual: true dropout: 0.1 } } " + text_data();
}

const std::string kRest =
    "optimizer { rule: momentum learning_rate: 0.01 } stop { updates: 6 } "
    "record { evaluate: false gap_every: 0 }";

Outcome run_with(const std::string& network,
                 std::vector<std::string> set,
                 const HarnessOptions& options = {}) {
  set.insert(set.begin(), "data.batch_size=12");
  return run(experiment(network + kRest, set), options);
}

bool finite(const std::vector<float>& weights) {
  for (const float w : weights) {
    if (!std::isfinite(w)) {
      return false;
    }
  }
  return !weights.empty();
}

}  // namespace

TEST_CASE("synchronous schedules over every cut give the same bits", "[system][networks]") {
  for (const std::string& network : {images(), joined_images(), gpt(false), llama(), lstm()}) {
    INFO(network);
    const Outcome one = run_with(network, {"pipeline.stages=1", "pipeline.micro_batches=4"});
    REQUIRE(finite(one.weights));
    for (const char* schedule : {"sequential", "gpipe", "one_f_one_b", "zb_h1"}) {
      for (const char* stages : {"2", "3", "4"}) {
        INFO(schedule << " K=" << stages);
        CHECK(same(run_with(network,
                            {std::string("pipeline.stages=") + stages,
                             std::string("pipeline.schedule=") + schedule,
                             "pipeline.micro_batches=4"})
                       .weights,
                   one.weights));
      }
    }
  }
}

TEST_CASE("images that a dense layer flattens get gradients in their own shape",
          "[system][networks]") {
  for (const char* first :
       {"layer { activation {} } ",
        "layer { fork {} } layer { join { activation: relu } } ",
        "layer { fork {} } layer { batch_norm {} } layer { join {} } layer { dropout {} } "}) {
    for (const char* act : {"fifo", "recompute"}) {
      const Outcome done =
          run_with("model { layers { " + std::string(first) +
                       "layer { dense {} } } } data { glyphs { limit: 24 test_limit: 6 } } ",
                   {"pipeline.stages=2", std::string("pipeline.activations=") + act});
      INFO(first << done.ending.cause);
      CHECK(done.ending.exit_code == 0);
      CHECK(finite(done.weights));
    }
  }
}

TEST_CASE("an evaluation has the running statistics of its own step, whoever holds the weights",
          "[system][networks]") {
  const std::string task =
      "model { layers { layer { batch_norm {} } layer { dense { outputs: 8 } } layer { batch_norm "
      "{} } "
      "layer { dense {} } } } data { glyphs { limit: 48 test_limit: 6 } batch_size: 8 } "
      "stop { updates: 12 } record { evaluate_every: 1 order: false } ";
  const auto losses = [&](const std::vector<std::string>& set, bool threads) {
    std::map<std::int64_t, double> by_step;
    for (const EvaluationRecord& one :
         run(experiment(task, set), {.threads = threads}).evaluations) {
      by_step[one.step] = one.loss;
    }
    CHECK(by_step.size() == 12);
    return by_step;
  };
  const auto alone = losses({}, false);
  const std::vector<std::string> served{"replicas.exchange=synchronous"};
  CHECK(losses(served, false) == alone);
  for (int i = 0; i < 10; ++i) {  // a stage that has gone on is ahead in some of them
    CHECK(losses(served, true) == alone);
  }
  const std::vector<std::string> two{"replicas.exchange=synchronous", "replicas.count=2"};
  const auto both = losses(two, false);
  for (int i = 0; i < 10; ++i) {
    CHECK(losses(two, true) == both);
  }
}

TEST_CASE("a cut may fall between any two layers", "[system][networks]") {
  for (const std::string& network : {images(), joined_images(), llama()}) {
    const Outcome one = run_with(network, {"pipeline.stages=1"});
    const int layers = network == images() ? 16 : network == llama() ? 12 : 14;
    for (int at = 1; at < layers; ++at) {
      INFO(network << " cut at " << at);
      CHECK(
          same(run_with(network, {"pipeline.stages=2", "pipeline.cut=[" + std::to_string(at) + "]"})
                   .weights,
               one.weights));
    }
  }
}

TEST_CASE("a tied parameter is one parameter, wherever its readers are", "[system][networks]") {
  // Where owner and borrower are apart the two shares of the gradient are summed first; so over the
  // cuts that part them bits are equal, and to those of one chunk up to rounding.
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{}, {"optimizer.clip_norm=0.05"}, {"pipeline.micro_batches=4"}}) {
    const auto with = [&](const char* stages, const char* schedule) {
      std::vector<std::string> set{std::string("pipeline.stages=") + stages,
                                   std::string("pipeline.schedule=") + schedule};
      set.insert(set.end(), more.begin(), more.end());
      return set;
    };
    const Outcome one = run_with(gpt(true), with("1", "gpipe"));
    const Outcome two = run_with(gpt(true), with("2", "gpipe"));
    CHECK(relative_distance(two.weights, one.weights) < 1e-6);
    for (const char* stages : {"2", "3", "5"}) {
      for (const char* schedule : {"sequential", "one_f_one_b", "zb_h1"}) {
        INFO("K=" << stages << " " << schedule);
        CHECK(same(run_with(gpt(true), with(stages, schedule)).weights, two.weights));
      }
      CHECK(same(run_with(gpt(true), with(stages, "gpipe"), {.threads = true, .lose = {}}).weights,
                 two.weights));
    }
    CHECK(relative_distance(run_with(gpt(false), with("2", "gpipe")).weights, two.weights) > 1e-3);
  }
}

// The shard of the table is on the first stage's thread, and answers behind the job that runs there. As the head asks a
// mini-batch ahead, that costs nothing.
TEST_CASE("an answer about a tied parameter may take most of a job", "[system][networks]") {
  const std::vector<std::string> timed{"pipeline.stages=2",
                                       "pipeline.schedule=async_one_f_one_b",
                                       "pipeline.weights=stash",
                                       "clock.forward.seconds=1",
                                       "clock.input_gradient.seconds=1",
                                       "clock.weight_gradient.seconds=1"};
  const Outcome prompt = run_with(gpt(true), timed);
  int asked = 0;
  const Outcome late = run_with(
      gpt(true), timed, {.lose = {}, .meddle = [&](Agenda& agenda, ActorId to, const Message& m) {
                           const auto* pull = get_if<Pull>(&m);
                           if (!pull || !pull->slice) {
                             return false;
                           }
                           ++asked;
                           agenda.post(agenda.now() + 0.9, to, m);
                           return true;
                         }});
  CHECK(asked == 5);  // mini-batches 0 and 1 read the same step
  CHECK(same(late.weights, prompt.weights));
  CHECK(late.seconds == prompt.seconds);
}

TEST_CASE("DualPipe over every cut gives the same bits", "[system][networks]") {
  for (const std::string& network : {joined_images(), gpt(false), llama(), lstm()}) {
    INFO(network);
    const auto weights_of = [&](int stages, const std::string& more) {
      return run_with(network,
                      {"data.batch_size=16",
                       concat("pipeline.stages=", stages),
                       "pipeline.micro_batches=8",
                       "pipeline.schedule=dual_pipe",
                       more})
          .weights;
    };
    const std::vector<float> two = weights_of(2, "pipeline.activations=fifo");
    REQUIRE(finite(two));
    CHECK(same(weights_of(4, "pipeline.activations=fifo"), two));
    CHECK(same(weights_of(4, "pipeline.activations=recompute"), two));
  }
}

TEST_CASE("vertical sync is SGD delayed by K - 1 for every network", "[system][networks]") {
  for (const std::string& network :
       {images(), joined_images(), gpt(true), gpt(false), llama(), lstm()}) {
    for (const char* stages : {"2", "3"}) {
      INFO(network << " K=" << stages);
      const BoxedExperiment e = experiment(network + kRest,
                                           {"data.batch_size=12",
                                            std::string("pipeline.stages=") + stages,
                                            "pipeline.schedule=async_one_f_one_b",
                                            "pipeline.weights=vertical_sync"});
      const std::vector<float> expected = delayed_sgd(e, std::stoi(stages) - 1);
      const std::vector<float> weights = run(e).weights;
      if (network == gpt(true)) {  // the tied gradient is summed in another order
        CHECK(relative_distance(weights, expected) < 1e-6);
      } else {
        CHECK(same(weights, expected));
      }
    }
  }
}

TEST_CASE("every schedule and weight policy works with every network, recomputed or not",
          "[system][networks]") {
  const auto plain = make_schedule({.name = "async_one_f_one_b", .stages = 3});
  REQUIRE(plain);
  for (const std::string& network : {images(), joined_images(), gpt(true), llama(), lstm()}) {
    for (const ScheduleScheme& schedule : schedule_schemes()) {
      if (schedule.info.name == "file") {
        continue;  // it has no rows here
      }
      const bool both_ways = schedule.info.name == "dual_pipe";
      if (both_ways && (network == images() || network == gpt(true))) {
        continue;  // it is not for batch normalisation and tied parameters
      }
      for (const PolicyScheme& policy : policy_schemes()) {
        INFO(network << " " << schedule.info.name << " " << policy.info.name);
        const bool asynchronous = !schedule.flushed;
        std::string M = both_ways || schedule.info.name == "dual_pipe_v" ? "6" : "3";
        if (policy.info.name == "vertical_sync" && asynchronous) {
          M = "1";
        } else if (policy.info.name == "double_buffered" &&
                   schedule.info.name == "async_full_duplex") {
          M = "4";
        }
        const std::vector<std::string> set{
            both_ways ? "pipeline.stages=2" : "pipeline.stages=3",
            "pipeline.schedule=" + schedule.info.name,
            "pipeline.weights=" + policy.info.name,
            "pipeline.micro_batches=" + M,
            policy.info.name == "nesterov" ? "optimizer.rule=nadam" : "optimizer.rule=momentum"};
        const Outcome kept = run_with(network, set);
        REQUIRE(kept.ending.cause == "");
        CHECK(finite(kept.weights));
        std::vector<std::string> recomputing = set;
        recomputing.push_back("pipeline.activations=recompute");
        const Outcome recomputed = run_with(network, recomputing);
        REQUIRE(recomputed.ending.cause == "");
        CHECK(finite(recomputed.weights));
        if (!asynchronous || policy.view({.experiment = {}}, *plain)->stashes()) {
          CHECK(same(recomputed.weights, kept.weights));
        }
        CHECK(same(run_with(network, set, {.threads = true, .lose = {}}).weights, kept.weights));
      }
    }
  }
}

TEST_CASE("evaluations meet the running statistics of their step", "[system][networks]") {
  const std::vector<std::string> set{"pipeline.stages=3",
                                     "pipeline.schedule=async_one_f_one_b",
                                     "record.evaluate=true",
                                     "record.evaluate_every=2"};
  const Outcome pipelined = run_with(images(), set);
  REQUIRE(pipelined.evaluations.size() == 3);
  const Outcome threads = run_with(images(), set, {.threads = true, .lose = {}});
  REQUIRE(threads.evaluations.size() == 3);
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(threads.evaluations[i].loss == pipelined.evaluations[i].loss);
  }
  // A flushed pipeline is the same training as one stage, statistics included.
  const std::vector<std::string> flushed{
      "record.evaluate=true", "record.evaluate_every=2", "pipeline.stages=3"};
  const std::vector<std::string> alone{
      "record.evaluate=true", "record.evaluate_every=2", "pipeline.stages=1"};
  const Outcome a = run_with(images(), flushed);
  const Outcome b = run_with(images(), alone);
  REQUIRE(a.evaluations.size() == b.evaluations.size());
  for (std::size_t i = 0; i < a.evaluations.size(); ++i) {
    CHECK(a.evaluations[i].loss == b.evaluations[i].loss);
  }
  REQUIRE(a.ending.buffers.size() == 3);
  std::vector<double> cut;
  for (const auto& of_chunk : a.ending.buffers) {
    for (const Tensor& buffer : of_chunk) {
      const auto values = to_host(buffer);
      cut.insert(cut.end(), values.begin(), values.end());
    }
  }
  std::vector<double> whole;
  for (const Tensor& buffer : b.ending.buffers.at(0)) {
    const auto values = to_host(buffer);
    whole.insert(whole.end(), values.begin(), values.end());
  }
  CHECK(cut.size() == 8);  // mean and variance of four channels
  CHECK(cut == whole);
}

TEST_CASE("after a first run no tensor memory comes from the system", "[system][networks]") {
  for (const std::string& network : {images(), joined_images(), gpt(true), lstm()}) {
    const std::vector<std::string> set{
        "pipeline.stages=2", "pipeline.schedule=async_one_f_one_b", "pipeline.weights=stash"};
    run_with(network, set);
    const std::uint64_t before = BufferPool::of(Device{}).statistics().fresh;
    run_with(network, set);
    CHECK(BufferPool::of(Device{}).statistics().fresh == before);
  }
}

}  // namespace networks_test
