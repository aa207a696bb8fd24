// FTPipe's mixed pipe: stages with several chunks each. What is computed does not depend on who does
// it: C chunks on K stages are the same training as on C stages, bit for bit, under every schedule
// and policy; when it happens does, and follows sums made by hand.
#include "apps/plan/memory.hpp"
#include "apps/plan/plan.hpp"
#include "apps/plan/reads.hpp"
#include "runtime/schemes/policies/policy.hpp"
#include "runtime/schemes/schedules/schedule_scheme.hpp"
#include "runtime/schemes/schedules/timeline.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/harness.hpp"
#include "tests/support/text_file.hpp"

#include <algorithm>

namespace mixed_test {

using namespace troupe;
using namespace troupe::test;

namespace {

using Assignments = std::vector<std::string>;

Assignments operator+(Assignments a, const Assignments& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

const std::string kFive = tiny_task("12,10,9,8", "relu");  // five layers

/// Five chunks of a layer each, on five stages or as `stage_of` says.
const Assignments kApart{"pipeline.stages=5"};
const Assignments kMixed{"pipeline.stages=2", "pipeline.stage_of=[0,1,0,1,1]"};
const Assignments kCrossed{"pipeline.stages=3", "pipeline.stage_of=[2,0,1,2,0]"};

Outcome train(const std::string& task,
              const Assignments& assignments,
              const HarnessOptions& options = {}) {
  const Outcome outcome = run(experiment(task, assignments), options);
  INFO(outcome.ending.cause);
  REQUIRE(outcome.ending.exit_code == 0);
  REQUIRE_FALSE(outcome.weights.empty());
  return outcome;
}

std::string refusal(const Assignments& assignments) {
  const auto made = make_blueprint(experiment(kFive, assignments));
  return made ? "" : made.error().message;
}

}  // namespace

TEST_CASE("a flushed mixed pipe is plain SGD, bit for bit", "[system]") {
  const Assignments task{"stop.updates=20", "pipeline.micro_batches=4"};
  const std::vector<float> plain = delayed_sgd(experiment(kFive, task), 0);
  for (const std::string schedule : {"sequential", "gpipe", "one_f_one_b", "zb_h1"}) {
    for (const Assignments& placement : {kMixed, kCrossed}) {
      INFO(schedule << " " << placement.back());
      const Assignments all = task + placement + Assignments{"pipeline.schedule=" + schedule};
      CHECK(same(train(kFive, all).weights, plain));
      CHECK(same(train(kFive, all, {.threads = true, .lose = {}}).weights, plain));
    }
  }
  const std::vector<float> clipped =
      train(kFive, task + Assignments{"optimizer.clip_norm=0.1"}).weights;  // on one stage
  CHECK_FALSE(same(clipped, plain));
  for (const std::string schedule : {"gpipe", "zb_h1"}) {
    CHECK(same(train(kFive,
                     task + kCrossed +
                         Assignments{"optimizer.clip_norm=0.1", "pipeline.schedule=" + schedule})
                   .weights,
               clipped));
  }
}

TEST_CASE("C chunks on K stages train as C chunks on C stages, under every policy", "[system]") {
  for (const std::string schedule : {"async_one_f_one_b", "async_full_duplex"}) {
    for (const PolicyScheme& policy : policy_schemes()) {
      for (const int M : {1, 4, 8}) {
        // 2BW needs M >= K, and a delay of 1 at most; vertical_sync is defined at M = 1.
        if ((policy.info.name == "double_buffered") != (M == 8) ||
            (policy.info.name == "vertical_sync" && M > 1)) {
          continue;
        }
        Assignments all{"stop.updates=14",
                        "optimizer.learning_rate=0.005",
                        "pipeline.micro_batches=" + std::to_string(M),
                        "pipeline.schedule=" + schedule,
                        "pipeline.weights=" + policy.info.name};
        if (policy.info.name == "nesterov") {
          all.push_back("optimizer.rule=nadamw");
        }
        INFO(schedule << " " << policy.info.name << " M " << M);
        const Outcome apart = train(kFive, all + kApart);
        for (const Assignments& placement : {kMixed, kCrossed}) {
          INFO(placement.back());
          const Outcome mixed = train(kFive, all + placement);
          CHECK(same(mixed.weights, apart.weights));
          CHECK(versions(mixed, 10, false) == versions(apart, 10, false));
          CHECK(versions(mixed, 10, true) == versions(apart, 10, true));
        }
        CHECK(
            same(train(kFive, all + kMixed, {.threads = true, .lose = {}}).weights, apart.weights));
      }
    }
  }
}

TEST_CASE("the delay of a chunk is that of a pipe with C stages", "[system]") {
  const Outcome one = train(kFive,
                            kMixed + Assignments{"pipeline.schedule=async_one_f_one_b",
                                                 "pipeline.weights=stash",
                                                 "stop.updates=20",
                                                 "clock.forward.gamma.shape=2"});
  CHECK(versions(one, 12, false) == "8 9 10 11 12");  // C-1-c
  CHECK(versions(one, 12, true) == "8 9 10 11 12");
  const Outcome three = train(kFive,
                              kMixed + Assignments{"pipeline.schedule=async_one_f_one_b",
                                                   "pipeline.weights=accumulate",
                                                   "pipeline.micro_batches=4",
                                                   "stop.updates=20"});
  // ceil(max(0, C-1-c-j) / M)
  CHECK(versions(three, 12, false) ==
        "11,11,11,11 11,11,11,12 11,11,12,12 11,12,12,12 12,12,12,12");
}

TEST_CASE("evaluations of a mixed pipe see what they see on C stages", "[system]") {
  const Assignments all{"pipeline.schedule=async_one_f_one_b",
                        "pipeline.weights=spectrain",
                        "stop.updates=20",
                        "record.evaluate=true",
                        "record.evaluate_every=3"};
  const Outcome apart = train(kFive, all + kApart);
  const Outcome mixed = train(kFive, all + kMixed);
  REQUIRE(mixed.evaluations.size() == apart.evaluations.size());
  for (std::size_t i = 0; i < apart.evaluations.size(); ++i) {
    CHECK(mixed.evaluations[i].loss == apart.evaluations[i].loss);
    CHECK(mixed.evaluations[i].accuracy == apart.evaluations[i].accuracy);
  }
}

TEST_CASE("a tied parameter may have its owner and its readers on any stage", "[system]") {
  const std::string gpt =
      "model { gpt { layers: 2 width: 8 heads: 2 dropout: 0.1 tied: true } } data { batch_size: 12 "
      "text { path: '" +
      text_file() +
      "' context: 6 } } optimizer { rule: momentum learning_rate: 0.01 } record { evaluate: false "
      "gap_every: 0 }";
  for (const std::string schedule : {"gpipe", "async_one_f_one_b"}) {
    for (const char* M : {"1", "3"}) {
      INFO(schedule << " M " << M);
      const Assignments all{"stop.updates=10",
                            "pipeline.schedule=" + schedule,
                            "pipeline.weights=stash",
                            std::string("pipeline.micro_batches=") + M};
      const Outcome apart = train(gpt, all + kApart);
      // The readers beside the owner, and on another stage.
      for (const char* placement : {"[0,1,0,1,0]", "[0,1,0,0,1]"}) {
        const Assignments mixed{"pipeline.stages=2", std::string("pipeline.stage_of=") + placement};
        CHECK(same(train(gpt, all + mixed).weights, apart.weights));
      }
    }
  }
}

TEST_CASE("replicas may be mixed pipes", "[system]") {
  for (const std::string exchange : {"replicas.exchange=synchronous",
                                     "replicas.exchange.synchronous.reduction=ring",
                                     "replicas.exchange=averaging"}) {
    INFO(exchange);
    const Assignments all{"replicas.count=2",
                          exchange,
                          "pipeline.micro_batches=2",
                          "pipeline.schedule=one_f_one_b",
                          "stop.updates=12"};
    CHECK(same(train(kFive, all + kMixed).weights, train(kFive, all + kApart).weights));
  }
  // Who waits at the end for the weights of a chunk that is done still owes gradients to others.
  for (const std::string schedule : {"async_one_f_one_b", "one_f_one_b"}) {
    for (const std::string way : {"replicas.exchange=parameter_server",
                                  "replicas.rule=ssp",
                                  "replicas.rule=softsync",
                                  "replicas.exchange=synchronous",
                                  "replicas.exchange.synchronous.reduction=tree",
                                  "replicas.exchange=averaging",
                                  "replicas.exchange=wsp",
                                  "replicas.exchange=diloco"}) {
      for (const Assignments& placement : {kMixed, kCrossed}) {
        for (const char* end : {"stop.updates=40", "stop.seconds=30"}) {
          for (int seed = 1; seed <= 4; ++seed) {
            INFO(schedule << " " << way << " " << placement.back() << " " << end << " seed "
                          << seed);
            if (way.find("tree") != std::string::npos && schedule != "one_f_one_b") {
              continue;  // refused, see below
            }
            const Assignments all{"replicas.count=2",
                                  way,
                                  "pipeline.schedule=" + schedule,
                                  "pipeline.weights=stash",
                                  "optimizer.learning_rate=0.005",
                                  "clock.forward.seconds=1",
                                  "clock.forward.gamma.shape=2",
                                  "seed=" + std::to_string(seed),
                                  end};
            const Outcome outcome = train(kFive, placement + all);
            if (way.find("tree") == std::string::npos) {  // which has no servers
              check_accounts(outcome);
            }
          }
        }
      }
    }
  }
}

TEST_CASE("a mixed pipe takes the time of its busiest stage, where every cut takes longer",
          "[system]") {
  // Layers of 2, 4 and 2 s, forward and backward each, on two stages.
  const std::string three = tiny_task("9,8");
  const int N = 20;
  const auto seconds =
      [&](const std::string& forward, const std::string& half, const Assignments& more) {
        return train(three,
                     Assignments{"pipeline.stages=2",
                                 "pipeline.schedule=async_one_f_one_b",
                                 "stop.updates=" + std::to_string(N),
                                 "clock.forward.seconds=" + forward,
                                 "clock.input_gradient.seconds=" + half,
                                 "clock.weight_gradient.seconds=" + half} +
                         more)
            .seconds;
      };
  CHECK(seconds("[2,4,2]", "[1,2,1]", {"pipeline.stage_of=[0,1,0]"}) == Approx(8 * N + 6));
  CHECK(seconds("[2,6]", "[1,3]", {"pipeline.cut=[1]"}) == Approx(12 * N + 4));
  CHECK(seconds("[6,2]", "[3,1]", {"pipeline.cut=[2]"}) == Approx(12 * N));
  // By stage: 4 s are shared equally by the stage's two chunks.
  CHECK(seconds("[4,4]", "[2,2]", {"pipeline.stage_of=[0,1,0]"}) == Approx(8 * N + 6));
}

TEST_CASE("a stage sends itself nothing", "[system]") {
  // One micro-batch alone in the pipe: its work, and the link there and back.
  const auto seconds = [](const std::string& stage_of, const std::string& link) {
    return train(tiny_task("9,8,7"),
                 {"pipeline.stages=2",
                  "pipeline.schedule=sequential",
                  "pipeline.stage_of=" + stage_of,
                  "stop.updates=3",
                  "clock.forward.seconds=[1,1,1,1]",
                  "clock.input_gradient.seconds=[1,1,1,1]",
                  "clock.weight_gradient.seconds=[1,1,1,1]",
                  "clock.link.seconds=" + link})
        .seconds;
  };
  CHECK(seconds("[0,0,1,1]", "0.5") == Approx(3 * (12 + 2 * 0.5)));
  CHECK(seconds("[0,0,1,0]", "0.5") == Approx(3 * (12 + 4 * 0.5)));
  CHECK(seconds("[0,1,0,1]", "0.5") == Approx(3 * (12 + 6 * 0.5)));
  // By the sending chunk: 0 to 1, 1 to 2, 2 to 1 and 1 to 0; between 2 and 3 there is no link.
  CHECK(seconds("[0,1,0,0]", "[1,10,100,1000]") == Approx(3 * (12 + 1 + 10 + 100 + 10)));
}

TEST_CASE("virtual time of a mixed pipe is that of the independent simulation", "[system]") {
  for (const std::string schedule :
       {"sequential", "gpipe", "one_f_one_b", "zb_h1", "async_one_f_one_b", "async_full_duplex"}) {
    for (const Assignments& placement : {kMixed, kCrossed}) {
      INFO(schedule << " " << placement.back());
      const auto e = experiment(kFive,
                                placement + Assignments{"pipeline.schedule=" + schedule,
                                                        "pipeline.micro_batches=4",
                                                        "stop.updates=9",
                                                        "clock.forward.seconds=[1,2,0.5,3,0.25]",
                                                        "clock.input_gradient.seconds=1.5",
                                                        "clock.weight_gradient.seconds=1",
                                                        "clock.link.seconds=[1,2,3,4,5]"});
      const auto b = make_blueprint(e);
      REQUIRE(b);
      const Outcome outcome = run(e);
      CHECK(outcome.seconds == Approx(simulate(*b->schedule, b->times, 9).end).epsilon(1e-12));
      // Two chunks of a stage are never at work together.
      std::vector<BusyRecord> busy = outcome.busy;
      std::sort(busy.begin(), busy.end(), [](const BusyRecord& x, const BusyRecord& y) {
        return std::pair(x.actor, x.start) < std::pair(y.actor, y.start);
      });
      for (std::size_t i = 1; i < busy.size(); ++i) {
        CHECK((busy[i].actor != busy[i - 1].actor || busy[i].start >= busy[i - 1].end));
      }
    }
  }
}

TEST_CASE("plan counts a mixed pipe by its chunks", "[system]") {
  const auto made =
      make_blueprint(experiment(kFive,
                                kMixed + Assignments{"pipeline.schedule=async_one_f_one_b",
                                                     "pipeline.weights=stash",
                                                     "clock.link.seconds=1"}));
  REQUIRE(made);
  double all = 0;
  for (std::int32_t c = 0; c < 5; ++c) {
    const ChunkMemory m = memory_of(*made, c);
    CHECK(m.copies == 5 - c);
    CHECK(m.stashes == 5 - c);
    CHECK(reads_of(*made, c).forward_behind == 4 - c);
    all += m.total();
    // Chunks 3 and 4 are on one stage.
    CHECK(made->times[static_cast<std::size_t>(c)].link_back == (c == 4 ? 0 : 1));
  }
  CHECK(memory_needed(*made, Device{}) == Approx(all));
  const std::string text = describe(*made);
  CHECK(text.find("2 stages with chunks 0,2 | 1,3,4") != std::string::npos);
  std::size_t sending = 0;
  for (std::size_t at = text.find(" B/sample"); at != std::string::npos;
       at = text.find(" B/sample", at + 1)) {
    ++sending;
  }
  CHECK(sending == 3);
}

TEST_CASE("what does not fit a mixed pipe is refused with key and value", "[system]") {
  CHECK(refusal({"pipeline.stages=2", "pipeline.stage_of=[0,1,0,1,0,1]"}) ==
        "pipeline.stage_of: it has 6 chunks, and the network only 5 layers");
  CHECK(refusal({"pipeline.stages=2", "pipeline.stage_of=[0,1,0]", "pipeline.cut=[2]"}) ==
        "pipeline.cut: 3 chunks need 2 rising indices between 1 and 4");
  CHECK(refusal({"pipeline.stages=2", "pipeline.stage_of=[0,2]"}) ==
        "pipeline.stage_of: there is no stage 2; with pipeline.stages 2 they are numbered from 0 "
        "to 1");
  CHECK(refusal({"pipeline.stages=2", "pipeline.partition=mixed", "pipeline.cut=[2]"}) ==
        "pipeline.partition: mixed finds pipeline.cut and pipeline.stage_of together; there is "
        "only pipeline.cut, so set both or none, or use flops");
  CHECK(refusal({"pipeline.stages=2", "pipeline.partition=mixed", "pipeline.stage_of=[0,1,0]"}) ==
        "pipeline.partition: mixed finds pipeline.cut and pipeline.stage_of together; there is "
        "only pipeline.stage_of, so set both or none, or use flops");
  CHECK(
      refusal({"pipeline.stages=2", "pipeline.partition=profiled", "pipeline.stage_of=[0,1,0]"}) ==
      "pipeline.partition: profiled makes all chunks alike, not all stages, so that it does not "
      "go with pipeline.stage_of; use mixed, which finds both, or set pipeline.cut");
  CHECK(refusal({"pipeline.stages=2",
                 "pipeline.micro_batches=2",
                 "pipeline.partition=mixed",
                 "pipeline.schedule=interleaved"}) ==
        "pipeline.partition: mixed says which stage has which chunk, and so does "
        "pipeline.schedule interleaved; choose another schedule, or profiled");
  CHECK(refusal(kMixed + Assignments{"replicas.count=2",
                                     "replicas.exchange.synchronous.reduction=tree",
                                     "pipeline.schedule=async_one_f_one_b",
                                     "stop.updates=30"}) ==
        "replicas.exchange.synchronous.reduction: ring and tree do not go with several chunks a "
        "stage (pipeline.stage_of) under async_one_f_one_b; use server, or a flushed schedule");
  CHECK(refusal(kMixed + Assignments{"clock.forward.seconds=[1,2,3]"}) ==
        "clock.forward.seconds: one number for all stages, or one for each of the 2, or of the 5 "
        "chunks; there are 3");
}

}  // namespace mixed_test
