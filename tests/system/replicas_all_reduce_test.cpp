// Replicas that add up their gradients among themselves, by a ring or a tree, or by one sum for all of them.
//   - all ranks hold the same bits after every step; twice, and on threads, the same bits again
//   - it is synchronous training by a server, and one replica with R times the batch, up to rounding
//   - clipping is by the norm of the mean gradient; tied parameters are added first
//   - bytes and virtual time follow the formulas
//   - who dies takes the run with him
#include "apps/run/run.hpp"
#include "experiment.pb.h"
#include "messages/peers.hpp"
#include "messages/weights.hpp"
#include "runtime/system/agenda.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/harness.hpp"
#include "tests/support/plain_mean.hpp"
#include "tests/support/text_file.hpp"

#include <bit>
#include <cmath>
#include <cstring>
#include <map>
#include <tuple>

namespace replicas_all_reduce_test {

using namespace troupe;
using namespace troupe::test;

namespace {

using Settings = std::vector<std::string>;

BoxedExperiment small(int replicas, const std::string& how, const Settings& more = {}) {
  Settings set{"replicas.count=" + std::to_string(replicas),
               "replicas.exchange.synchronous.reduction=" + how,
               "stop.updates=12",
               "clock.forward.gamma.shape=3",
               "clock.exchange.seconds=0.001",
               "clock.exchange.log_normal.sigma=1"};
  set.insert(set.end(), more.begin(), more.end());
  return experiment(tiny_task("10,9"), set);
}

/// R times the batch, one replica.
BoxedExperiment large(int replicas, const Settings& more = {}) {
  Settings set{"data.batch_size=" + std::to_string(16 * replicas), "stop.updates=12"};
  set.insert(set.end(), more.begin(), more.end());
  return experiment(tiny_task("10,9"), set);
}

bool equal(const Weights& a, const Weights& b) {
  for (std::size_t s = 0; s < a.size(); ++s) {
    const auto x = a[s].values.span<float>();
    const auto y = b[s].values.span<float>();
    if (x.size() != y.size() || std::memcmp(x.data(), y.data(), 4 * x.size()) != 0) {
      return false;
    }
  }
  return a.size() == b.size();
}

/// Runs on the virtual clock and compares what the replicas' stages are given, step by step.
struct Compared {
  Outcome outcome;
  std::int64_t equal_steps = 0;
  std::int64_t unequal_steps = 0;
};

Compared compare_replicas(const proto::Experiment& e, HarnessOptions options = {}) {
  Compared compared;
  // By step and chunk; a borrowed slice comes alone.
  std::map<std::tuple<std::int64_t, std::int32_t, std::size_t>, Weights> first;
  options.lose = [&](ActorId, const Message& message) {
    if (const auto* reply = get_if<PullReply>(&message)) {
      const auto [known, fresh] = first.insert(
          {{reply->weights.front().step, reply->chunk, reply->weights.size()}, reply->weights});
      if (!fresh) {
        ++(equal(known->second, reply->weights) ? compared.equal_steps : compared.unequal_steps);
      }
    }
    return false;
  };
  compared.outcome = run(e, options);
  return compared;
}

}  // namespace

TEST_CASE("all replicas hold the same bits after every step", "[system]") {
  for (const std::string how : {"ring", "tree"}) {
    for (const int R : {2, 3, 5, 8}) {
      INFO(how << " of " << R);
      const Compared one = compare_replicas(small(R, how));
      REQUIRE(one.outcome.ending.exit_code == 0);
      CHECK(one.unequal_steps == 0);
      CHECK(one.equal_steps == 12 * (R - 1));
      const Compared pipelines = compare_replicas(small(
          R,
          how,
          {"pipeline.stages=3", "pipeline.schedule=async_one_f_one_b", "pipeline.weights=stash"}));
      REQUIRE(pipelines.outcome.ending.exit_code == 0);
      CHECK(pipelines.unequal_steps == 0);
      CHECK(pipelines.equal_steps > 12 * (R - 1));
    }
  }
}

TEST_CASE("sim twice gives equal weights and order, threads the same weights", "[system]") {
  for (const std::string how : {"ring", "tree"}) {
    for (const int R : {2, 5}) {
      for (const Settings& pipeline :
           {Settings{},
            Settings{"pipeline.stages=2", "pipeline.micro_batches=2", "placement.optimizer=own"},
            Settings{"pipeline.stages=3",
                     "pipeline.schedule=async_one_f_one_b",
                     "pipeline.weights=spectrain",
                     "optimizer.rule=adamw",
                     "optimizer.learning_rate=0.01"}}) {
        INFO(how << " of " << R << " " << (pipeline.empty() ? "" : pipeline[0]));
        const BoxedExperiment e = small(R, how, pipeline);
        const Outcome first = run(e);
        REQUIRE(first.ending.exit_code == 0);
        const Outcome second = run(e);
        CHECK(same(second.weights, first.weights));
        CHECK(second.order == first.order);
        CHECK(same(run(e, {.threads = true}).weights, first.weights));
        Settings evaluated = pipeline;
        evaluated.insert(evaluated.end(), {"record.evaluate=true", "record.evaluate_every=3"});
        const Outcome watched = run(small(R, how, evaluated));
        CHECK(same(watched.weights, first.weights));
        CHECK(watched.evaluations.size() == 4);
      }
    }
  }
}

// Sums in another order differ by some roundings of 2^-24 a step, which tanh does not amplify much in
// 12 steps; a wrong mean or a lost gradient is off by 1e-2 and more.
constexpr double kRounding = 1e-5;

TEST_CASE("it is synchronous training by a server, and one large batch", "[system]") {
  for (const int R : {2, 4, 8}) {
    const std::vector<float> batch = run(large(R)).weights;
    for (const std::string how : {"server", "ring", "tree"}) {
      INFO(how << " of " << R);
      const Outcome outcome = run(small(R, how));
      REQUIRE(outcome.ending.exit_code == 0);
      CHECK(relative_distance(outcome.weights, batch) < kRounding);
    }
  }
  CHECK(relative_distance(run(small(2, "ring")).weights, run(large(4)).weights) > 1e-3);
}

TEST_CASE("an all-reduce of one replica is none", "[system]") {
  CHECK(same(run(small(1, "ring")).weights, run(large(1)).weights));
}

TEST_CASE("clipping is by the norm of the mean gradient", "[system]") {
  for (const Settings& cut : {Settings{"optimizer.clip_norm=0.05"},
                              Settings{"optimizer.clip_norm=0.05", "pipeline.stages=3"}}) {
    const std::vector<float> batch = run(large(4, cut)).weights;
    CHECK(relative_distance(batch, run(large(4)).weights) > 1e-3);  // it bites
    for (const std::string how : {"ring", "tree"}) {
      INFO(how);
      const Compared clipped = compare_replicas(small(4, how, cut));
      CHECK(clipped.unequal_steps == 0);
      CHECK(relative_distance(clipped.outcome.weights, batch) < kRounding);
    }
  }
}

TEST_CASE("shares of a tied parameter are added before the sum over replicas", "[system]") {
  const auto gpt = [&](const Settings& more) {
    Settings set{"stop.updates=6", "pipeline.stages=2"};
    set.insert(set.end(), more.begin(), more.end());
    return experiment(
        "model { gpt { layers: 1 width: 8 heads: 2 dropout: 0 tied: true } } data { batch_size: 4 "
        "text { path: '" +
            text_file() +
            "' context: 6 } } optimizer { rule: sgd learning_rate: 0.1 } record { evaluate: false "
            "order: false }",
        set);
  };
  const std::vector<float> batch = run(gpt({"data.batch_size=12"})).weights;
  for (const std::string how : {"ring", "tree"}) {
    INFO(how);
    const Compared tied = compare_replicas(
        gpt({"replicas.count=3", "replicas.exchange.synchronous.reduction=" + how}));
    REQUIRE(tied.outcome.ending.exit_code == 0);
    CHECK(tied.unequal_steps == 0);
    CHECK(relative_distance(tied.outcome.weights, batch) < kRounding);
  }
}

TEST_CASE("virtual time follows the formulas of latency and bandwidth", "[system]") {
  constexpr double kForward = 1;
  constexpr double kLatency = 0.01;
  constexpr int kSteps = 12;
  const auto seconds = [&](int R, const std::string& how, double bandwidth) {
    return run(experiment(tiny_task("10,9"),
                          {"replicas.count=" + std::to_string(R),
                           "replicas.exchange.synchronous.reduction=" + how,
                           "stop.updates=12",
                           "clock.forward.seconds=1",
                           "clock.input_gradient.seconds=0",
                           "clock.weight_gradient.seconds=0",
                           "clock.exchange.seconds=0.01",
                           "clock.bandwidth=" + std::to_string(bandwidth)}))
        .seconds;
  };
  const auto b = make_blueprint(large(1));
  REQUIRE(b);
  const double bytes = 4.0 * static_cast<double>(b->chunks.front()->layout().slice_sizes.front());
  const double rate = 1e6;
  for (const int R : {2, 4, 8}) {
    INFO(R << " replicas");
    const double depth = std::bit_width(static_cast<unsigned>(R)) - 1;
    for (const double bandwidth : {0.0, rate}) {
      const double way = bandwidth > 0 ? bytes / bandwidth : 0;  // of the whole vector
      const double hop = kLatency + way;
      // Segments are whole elements: the largest is up to one longer than S / R.
      const double uneven = bandwidth > 0 ? 4 / bandwidth * 2 * (R - 1) * kSteps : 0;
      CHECK(std::abs(seconds(R, "ring", bandwidth) -
                     kSteps * (kForward + 2 * (R - 1) * (kLatency + way / R))) <= uneven + 1e-9);
      // The run ends with the root, the server's with the server: the last way down is not waited for.
      CHECK(seconds(R, "tree", bandwidth) ==
            Approx(kSteps * (kForward + 2 * depth * hop) - depth * hop).epsilon(1e-9));
      CHECK(seconds(R, "server", bandwidth) ==
            Approx(kSteps * (kForward + 2 * hop) - hop).epsilon(1e-9));
    }
  }
}

TEST_CASE("a ring's replica sends 2 (R-1)/R of its gradient a step", "[system]") {
  for (const std::string how : {"ring", "tree"}) {
    for (const int R : {2, 3, 8}) {
      INFO(how << " of " << R);
      const auto b = make_blueprint(small(R, how, {"pipeline.stages=2"}));
      REQUIRE(b);
      std::int64_t bytes = 0;
      for (const auto& chunk : b->chunks) {
        for (const std::int64_t size : chunk->layout().slice_sizes) {
          bytes += 4 * size;
        }
      }
      RunOptions options;
      options.virtual_clock = true;
      const auto result = run_experiment(*b, options);
      REQUIRE(result);
      CHECK(result->exit_code == 0);
      CHECK(result->summary.bytes_sent == 12 * 2 * (R - 1) * bytes);  // all R together
      CHECK(result->summary.updates == 12);
      CHECK(result->summary.samples == 12 * 16 * R);
    }
  }
}

TEST_CASE("through codecs all replicas hold the same bits, too, twice and on threads",
          "[system][codecs]") {
  for (const std::string how : {"ring", "tree"}) {
    for (const std::string codec :
         {"=fp16", "=bf16", ".random_k.density=0.2", ".powersgd.rank=2"}) {
      for (const int R : {2, 5}) {
        for (const Settings& pipeline : {Settings{},
                                         Settings{"pipeline.stages=3",
                                                  "pipeline.schedule=async_one_f_one_b",
                                                  "pipeline.weights=stash",
                                                  "optimizer.clip_norm=0.5"}}) {
          INFO(how << " of " << R << " " << codec << " " << pipeline.size());
          Settings set = pipeline;
          set.push_back("replicas.codec.up" + codec);
          const BoxedExperiment e = small(R, how, set);
          const Compared one = compare_replicas(e);
          REQUIRE(one.outcome.ending.exit_code == 0);
          CHECK(one.unequal_steps == 0);
          CHECK(one.equal_steps >= 12 * (R - 1));
          const Outcome again = run(e);
          CHECK(same(again.weights, one.outcome.weights));
          CHECK(again.order == one.outcome.order);
          CHECK(same(run(e, {.threads = true}).weights, one.outcome.weights));
        }
      }
    }
  }
}

TEST_CASE("a codec that leaves nothing out is none in an all-reduce", "[system][codecs]") {
  for (const std::string how : {"ring", "tree"}) {
    const std::vector<float> plain = run(small(4, how)).weights;
    const auto coded = [&](const std::string& codec) {
      return relative_distance(run(small(4, how, {"replicas.codec.up" + codec})).weights, plain);
    };
    CHECK(coded(".random_k.density=1") == 0);
    CHECK(coded(".powersgd.rank=16") == 0);  // no matrix would be smaller
    CHECK(coded("=fp16") < 1e-3);
    CHECK(coded("=fp16") > 0);
    CHECK(coded("=bf16") < 1e-2);
  }
}

TEST_CASE("bytes and virtual time of an all-reduce are those of the codec's messages",
          "[system][codecs]") {
  const auto b = make_blueprint(large(1));
  REQUIRE(b);
  const std::int64_t n = b->chunks.front()->layout().slice_sizes.front();
  const std::int64_t k = std::llround(0.1 * static_cast<double>(n));
  constexpr int kSteps = 12;
  for (const std::string how : {"ring", "tree"}) {
    for (const int R : {2, 4}) {
      const auto ran = [&](const std::string& codec) {
        const auto made =
            make_blueprint(experiment(tiny_task("10,9"),
                                      {"replicas.count=" + std::to_string(R),
                                       "replicas.exchange.synchronous.reduction=" + how,
                                       "replicas.codec.up" + codec,
                                       "stop.updates=12",
                                       "clock.forward.seconds=1",
                                       "clock.input_gradient.seconds=0",
                                       "clock.weight_gradient.seconds=0",
                                       "clock.bandwidth=1e4"}));
        REQUIRE(made);
        RunOptions options;
        options.virtual_clock = true;
        const auto result = run_experiment(*made, options);
        REQUIRE(result);
        REQUIRE(result->exit_code == 0);
        return result->summary;
      };
      INFO(how << " of " << R);
      // A segment's message has an even number of halves: a segment of an odd number has one more.
      const std::int64_t segments = how == "ring" ? R : 1;
      const auto half = ran("=fp16");
      // A tree's run ends with its root: messages that are still to be passed on down are not.
      const std::int64_t unsent = how == "tree" ? R - 1 : 0;
      CHECK(half.bytes_sent >= (kSteps * 2 * (R - 1) - unsent) * 2 * n);
      CHECK(half.bytes_sent <= kSteps * 2 * (R - 1) * 2 * (n + segments));
      CHECK(ran(".random_k.density=0.1").bytes_sent == kSteps * 2 * (R - 1) * 4 * k);
      const double depth = how == "ring" ? 2.0 * (R - 1) / R : 2.0 * std::log2(R);
      const double plain = ran("=none").seconds - kSteps;
      CHECK(plain == Approx(kSteps * depth * 4 * static_cast<double>(n) / 1e4).epsilon(0.1));
      CHECK(half.seconds - kSteps == Approx(plain / 2).epsilon(0.05));
      CHECK(ran(".random_k.density=0.1").seconds - kSteps == Approx(plain / 10).epsilon(0.1));
    }
  }
}

TEST_CASE("a limit of seconds, and a met target, end all replicas at one step", "[system]") {
  for (const bool threads : {false, true}) {
    const BoxedExperiment e = small(3,
                                    "ring",
                                    {"stop.updates=0",
                                     "stop.target_accuracy=0.3",
                                     "record.evaluate=true",
                                     "record.evaluate_every=5",
                                     "pipeline.stages=2",
                                     "pipeline.schedule=async_one_f_one_b"});
    const Outcome met = run(e, {.threads = threads});
    REQUIRE(met.ending.exit_code == 0);
    CHECK(met.ending.step % 5 == 0);
  }
  const Outcome timed =
      run(small(3, "tree", {"stop.updates=0", "stop.seconds=20", "clock.forward.seconds=1"}));
  REQUIRE(timed.ending.exit_code == 0);
  CHECK(timed.ending.step > 3);
  CHECK(timed.ending.step < 20);
  CHECK(same(timed.weights,
             run(small(3, "tree", {"stop.updates=" + std::to_string(timed.ending.step)})).weights));
}

TEST_CASE("who dies takes the run with him, and the run says why", "[system]") {
  for (const bool threads : {false, true}) {
    const Outcome outcome = run(small(3, "ring", {"pipeline.stages=2"}),
                                {.threads = threads, .recast = [](Cast& cast) {
                                   auto& machine = member(cast, "stage-2.1").machine;
                                   machine = failing_at(std::move(machine), 5);
                                 }});
    CHECK(outcome.ending.exit_code == 5);
    CHECK(outcome.ending.cause ==
          "stage-2.1 is lost: a kernel failed; it is of replica 2, and an all-reduce needs all of "
          "them");
  }
}

TEST_CASE("a part of another segment than is due is a bug", "[system]") {
  const auto another = [](Agenda& agenda, ActorId to, const Message& message) {
    const auto* part = get_if<GradientPart>(&message);
    if (!part || part->stamp.batch < 3) {
      return false;
    }
    GradientPart wrong = *part;
    ++wrong.segment;
    agenda.post(agenda.now(), to, wrong);
    return true;
  };
  const Outcome outcome = run(small(3, "ring"), {.meddle = another});
  CHECK(outcome.ending.exit_code == 5);
  CHECK(outcome.ending.cause.find("of the gradient of mini-batch 3 came where") !=
        std::string::npos);
}

TEST_CASE("a part that comes twice is counted once", "[system]") {
  const std::vector<float> once = run(small(3, "ring")).weights;
  const auto twice = [](Agenda& agenda, ActorId to, const Message& message) {
    if (holds_alternative<GradientPart>(message)) {
      agenda.post(agenda.now(), to, message);
      agenda.post(agenda.now() + 5, to, message);  // long after
    }
    return false;
  };
  CHECK(same(run(small(3, "ring"), {.meddle = twice}).weights, once));
}

// -- one sum for all replicas (reduction nccl), with loops on the CPU in the place of NCCL

/// A ring's experiment, played by shards whose gradients are summed by one job.
HarnessOptions in_group(bool threads = false) {
  return {
      .threads = threads, .redesign = [](Blueprint& b) {
        b.experiment->mutable_replicas()->mutable_exchange()->mutable_synchronous()->set_reduction(
            proto::Synchronous::nccl);
        b.group_mean = plain_mean;
      }};
}

TEST_CASE("with one sum for all replicas the run is that of a ring, up to rounding", "[system]") {
  for (const int R : {2, 3, 5}) {
    for (const Settings& pipeline :
         {Settings{},
          Settings{"optimizer.clip_norm=0.05", "pipeline.stages=3"},
          Settings{"pipeline.stages=2", "pipeline.micro_batches=2", "placement.optimizer=own"},
          Settings{"pipeline.stages=3",
                   "pipeline.schedule=async_one_f_one_b",
                   "pipeline.weights=stash",
                   "record.evaluate=true",
                   "record.evaluate_every=3"}}) {
      INFO(R << " " << (pipeline.empty() ? "" : pipeline[0]));
      const BoxedExperiment e = small(R, "ring", pipeline);
      const Outcome ring = run(e);
      const Compared compared = compare_replicas(e, in_group());
      REQUIRE(compared.outcome.ending.exit_code == 0);
      CHECK(compared.unequal_steps == 0);
      CHECK(compared.equal_steps >= 12 * (R - 1));
      CHECK(relative_distance(compared.outcome.weights, ring.weights) < kRounding);
      CHECK(compared.outcome.evaluations.size() == ring.evaluations.size());
      const Outcome threads = run(e, in_group(true));
      REQUIRE(threads.ending.exit_code == 0);
      CHECK(same(threads.weights, compared.outcome.weights));
    }
  }
}

TEST_CASE("who dies takes a run with one sum for all replicas with him", "[system]") {
  for (const std::string dies : {"stage-0.0", "stage-1.0"}) {
    for (const bool threads : {false, true}) {
      HarnessOptions options = in_group(threads);
      options.recast = [&](Cast& cast) {
        auto& machine = member(cast, dies).machine;
        machine = failing_at(std::move(machine), 5);
      };
      const Outcome outcome = run(small(2, "ring"), options);
      CHECK(outcome.ending.exit_code == 5);
      CHECK_THAT(outcome.ending.cause, Catch::Contains(dies));
    }
  }
}

}  // namespace replicas_all_reduce_test
