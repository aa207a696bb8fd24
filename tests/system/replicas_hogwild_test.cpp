// Replicas on one buffer.
//   - one replica is plain training, bit for bit, for every optimizer
//   - several learn on threads; on the virtual clock the run is exactly repeatable
//   - a gradient's staleness is the R - 1 updates of the others
//   - the run's weights and evaluations are the buffer's, whoever has finished
//   - who dies leaves the others at work
#include "apps/run/run.hpp"
#include "experiment/optimizer.pb.h"
#include "messages/sections.hpp"
#include "messages/weights.hpp"
#include "runtime/schemes/optimizers/rate.hpp"
#include "runtime/system/agenda.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/harness.hpp"

#include <algorithm>
#include <numeric>

namespace replicas_hogwild_test {

using namespace troupe;
using namespace troupe::test;

namespace {

using Settings = std::vector<std::string>;

const Settings kSlowBackward{
    "clock.forward.seconds=1", "clock.input_gradient.seconds=0", "clock.weight_gradient.seconds=0"};

Settings with(Settings set, const Settings& more) {
  set.insert(set.end(), more.begin(), more.end());
  return set;
}

BoxedExperiment plain(const Settings& more) {
  return experiment(tiny_task("10,9,8"), more);
}

BoxedExperiment hogwild(int replicas, const Settings& more = {}) {
  const std::string R = std::to_string(replicas);
  return plain(with({"replicas.exchange=hogwild",
                     "replicas.count=" + R,
                     "stop.updates=" + std::to_string(40 * replicas)},
                    more));
}

/// Dies of its n-th message.
class Failing final : public Machine {
 public:
  Failing(std::unique_ptr<Machine> inner, int after) : inner_(std::move(inner)), left_(after) {}

  void on(Message message, double now, Effects& effects) override {
    if (left_ == 0) {
      throw std::runtime_error("a kernel failed");
    }
    --left_;
    inner_->on(std::move(message), now, effects);
  }

  std::string waits_for() const override { return inner_->waits_for(); }

 private:
  std::unique_ptr<Machine> inner_;
  int left_;
};

void let_fail(Cast& cast, const std::string& name, int after) {
  Cast::Member& victim = member(cast, name);
  victim.machine = std::make_unique<Failing>(std::move(victim.machine), after);
}

}  // namespace

TEST_CASE("one replica is plain training, bit for bit", "[system]") {
  for (const Settings& pipeline :
       {Settings{},
        Settings{"pipeline.stages=2", "pipeline.micro_batches=2"},
        Settings{"pipeline.stages=3", "pipeline.schedule=async_one_f_one_b"}}) {
    for (const std::string rule : {"sgd", "momentum", "nesterov", "adamw", "adagrad", "muon"}) {
      INFO(rule << " " << (pipeline.empty() ? "" : pipeline.back()));
      const Settings set = with(
          pipeline,
          {"optimizer.rule=" + rule, "optimizer.learning_rate=0.02", "optimizer.clip_norm=0.5"});
      const Outcome expected = run(plain(set));
      REQUIRE(expected.ending.exit_code == 0);
      for (const std::string add : {"atomic", "racy"}) {
        const Settings by = with(set, {"replicas.exchange.hogwild.add=" + add});
        const Outcome outcome = run(hogwild(1, by));
        REQUIRE(outcome.ending.exit_code == 0);
        CHECK(outcome.ending.step == 40);
        CHECK(same(outcome.weights, expected.weights));
        CHECK(same(run(hogwild(1, by), {.threads = true}).weights, expected.weights));
      }
    }
  }
}

TEST_CASE("several replicas learn on threads", "[system]") {
  for (const int R : {2, 4}) {
    for (const std::string add : {"atomic", "racy"}) {
      for (const Settings& pipeline :
           {Settings{}, Settings{"pipeline.stages=2", "pipeline.schedule=async_one_f_one_b"}}) {
        INFO(R << " replicas, " << add << (pipeline.empty() ? "" : ", stages"));
        const Outcome outcome = run(hogwild(R,
                                            with(pipeline,
                                                 {"replicas.exchange.hogwild.add=" + add,
                                                  "stop.updates=" + std::to_string(200 * R),
                                                  "optimizer.learning_rate=0.02",
                                                  "record.evaluate=true",
                                                  "record.evaluate_every=100"})),
                                    {.threads = true});
        REQUIRE(outcome.ending.exit_code == 0);
        CHECK(outcome.ending.step == 200 * R);
        CHECK(outcome.mean_loss(180, 200) < 0.8 * outcome.mean_loss(0, 10));
        REQUIRE(!outcome.evaluations.empty());
        CHECK(outcome.evaluations.back().step == 200 * R);
        CHECK(outcome.evaluations.back().loss < 0.8 * outcome.mean_loss(0, 10));
        CHECK(outcome.applied.size() ==
              static_cast<std::size_t>(200 * R) * (pipeline.empty() ? 1 : 2));
        for (const AppliedRecord& update : outcome.applied) {
          for (const Read& read : update.reads) {
            CHECK(read.forward_version <= update.applied_to);
          }
        }
      }
    }
  }
}

TEST_CASE("on the virtual clock the run is repeatable, watched or not", "[system]") {
  for (const Settings& pipeline :
       {Settings{}, Settings{"pipeline.stages=3", "pipeline.schedule=async_one_f_one_b"}}) {
    const Settings set =
        with(pipeline, {"clock.forward.gamma.shape=3", "optimizer.learning_rate=0.01"});
    const Outcome first = run(hogwild(4, set));
    REQUIRE(first.ending.exit_code == 0);
    const Outcome second = run(hogwild(4, set));
    CHECK(same(second.weights, first.weights));
    CHECK(second.order == first.order);
    const Outcome watched =
        run(hogwild(4, with(set, {"record.evaluate=true", "record.evaluate_every=28"})));
    CHECK(same(watched.weights, first.weights));
    CHECK(watched.seconds == first.seconds);
    CHECK(watched.evaluations.size() == 6);
    std::int64_t step = 0;
    for (const EvaluationRecord& evaluation : watched.evaluations) {
      CHECK(evaluation.step == (step = std::min<std::int64_t>(step + 28, 160)));
    }
  }
}

TEST_CASE("a gradient is as stale as the others' updates since its copy", "[system]") {
  constexpr int kR = 4;
  constexpr int kN = 40;
  const auto accounts = [&](const Settings& clock) {
    const Outcome outcome = run(hogwild(kR, clock));
    REQUIRE(outcome.ending.exit_code == 0);
    // Every update of the buffer is somebody's, and each finds all before it.
    std::vector<std::int64_t> applied_to;
    std::vector<std::int64_t> lags;
    for (const AppliedRecord& update : outcome.applied) {
      applied_to.push_back(update.applied_to);
      lags.push_back(update.applied_to - update.reads.front().forward_version);
    }
    std::sort(applied_to.begin(), applied_to.end());
    std::vector<std::int64_t> all(kR * kN);
    std::iota(all.begin(), all.end(), 0);
    CHECK(applied_to == all);
    return lags;
  };
  // At equal speeds they take turns: after the first round everybody waits for R - 1 others.
  const std::vector<std::int64_t> equal = accounts(kSlowBackward);
  for (std::size_t i = 0; i < equal.size(); ++i) {
    CHECK(equal[i] == std::min<std::int64_t>(static_cast<std::int64_t>(i), kR - 1));
  }
  // Otherwise on average, whatever the speeds: each update makes R - 1 others one older, while all
  // are at work; a replica that has finished is in nobody's way.
  const std::vector<std::int64_t> drawn =
      accounts(with(kSlowBackward, {"clock.forward.gamma.shape=3"}));
  const double mean = static_cast<double>(std::accumulate(drawn.begin(), drawn.end(), 0LL)) /
                      static_cast<double>(drawn.size());
  CHECK(mean <= kR - 1);
  CHECK(mean > 0.8 * (kR - 1));
  CHECK(*std::max_element(drawn.begin(), drawn.end()) > kR - 1);
}

TEST_CASE("the run's weights are the buffer's after everybody's last update", "[system]") {
  // Replica 0, which evaluates, is done ten times as early as the other.
  const BoxedExperiment e = hogwild(
      2,
      with(kSlowBackward,
           {"clock.workers.slowness=[1,10]", "record.evaluate=true", "record.evaluate_every=20"}));
  std::map<std::int64_t, std::int64_t> read;  // by evaluation: version
  std::int64_t pinned = 0;
  const Outcome outcome = run(e, {.lose = [&](ActorId, const Message& message) {
                                if (const auto* pull = get_if<Pull>(&message)) {
                                  pinned = pull->pinned ? pull->view.step : 0;
                                } else if (const auto* reply = get_if<PullReply>(&message)) {
                                  if (pinned > 0) {
                                    read[pinned] = reply->weights.front().version;
                                  }
                                }
                                return false;
                              }});
  REQUIRE(outcome.ending.exit_code == 0);
  CHECK(outcome.seconds == 400);
  CHECK(outcome.ending.step == 80);
  REQUIRE(read.contains(80));
  CHECK(read.at(80) == 80);
  for (const std::int64_t step : {20, 40, 60}) {
    INFO("step " << step);
    REQUIRE(read.contains(step));
    CHECK(read.at(step) >= step);
    CHECK(read.at(step) <= step + 2);
  }
  // Replica 1's last update was made at what it had read then; without it the weights are others.
  const Outcome alone = run(hogwild(1, kSlowBackward));
  CHECK(distance(alone.weights, outcome.weights) > 1e-3);
}

TEST_CASE("who dies leaves the others at work", "[system]") {
  for (const bool threads : {false, true}) {
    for (const std::string victim : {"stage-0.0", "stage-2.1", "optimizer-1.0", "source-0"}) {
      for (const std::string evaluate : {"true", "false"}) {
        INFO(victim << (threads ? " on threads" : " on the virtual clock") << " " << evaluate);
        const Outcome outcome = run(hogwild(3,
                                            {"pipeline.stages=2",
                                             "record.evaluate=" + evaluate,
                                             "record.evaluate_every=12",
                                             "optimizer.learning_rate=0.01"}),
                                    {.threads = threads, .recast = [&](Cast& cast) {
                                       let_fail(cast, victim, 30);
                                     }});
        INFO(outcome.ending.cause);
        REQUIRE(outcome.ending.exit_code == 0);
        const int gone = victim[victim.find('-') + 1] - '0';
        REQUIRE(outcome.lost.size() == 1);
        CHECK(outcome.lost.front().replica == gone);
        std::map<std::int32_t, int> updates;  // by replica, of both chunks
        for (const AppliedRecord& update : outcome.applied) {
          ++updates[update.stamp.replica];
        }
        for (std::int32_t r = 0; r < 3; ++r) {
          CHECK((r == gone ? updates[r] < 80 : updates[r] == 80));
        }
        CHECK(outcome.ending.step >= 80);
        CHECK(outcome.ending.step < 120);
        CHECK(!outcome.weights.empty());
        if (evaluate == "true") {
          REQUIRE(!outcome.evaluations.empty());
          CHECK(outcome.evaluations.back().step == outcome.ending.step);
        }
      }
    }
  }
}

TEST_CASE("where all die the run is lost", "[system]") {
  const Outcome outcome = run(hogwild(2), {.recast = [](Cast& cast) {
                                let_fail(cast, "stage-0.0", 30);
                                let_fail(cast, "stage-1.0", 50);
                              }});
  CHECK(outcome.ending.exit_code == 5);
  CHECK(outcome.ending.cause == "stage-1.0 is lost: a kernel failed");
}

TEST_CASE("a limit of seconds, a met target and an interrupt end all replicas", "[system]") {
  const Outcome timed = run(hogwild(3, with(kSlowBackward, {"stop.updates=0", "stop.seconds=20"})));
  REQUIRE(timed.ending.exit_code == 0);
  CHECK(timed.ending.step >= 60);
  CHECK(timed.ending.step <= 90);  // what was admitted finishes
  for (const bool threads : {false, true}) {
    const Outcome met = run(hogwild(3,
                                    {"stop.updates=0",
                                     "stop.target_accuracy=0.3",
                                     "record.evaluate=true",
                                     "record.evaluate_every=15"}),
                            {.threads = threads});
    REQUIRE(met.ending.exit_code == 0);
    CHECK(met.ending.step % 15 == 0);
  }
  bool told = false;
  const Outcome halted = run(hogwild(3, with(kSlowBackward, {"stop.updates=3000"})),
                             {.meddle = [&](Agenda& agenda, ActorId, const Message&) {
                               if (!std::exchange(told, true)) {
                                 agenda.post(50, 1, Halt{});  // to the director
                               }
                               return false;
                             }});
  CHECK(halted.ending.exit_code == 0);
  CHECK(halted.ending.step >= 150);
  CHECK(halted.ending.step < 210);
}

TEST_CASE("the rate follows the updates of all", "[system]") {
  const Outcome outcome = run(hogwild(4, with(kSlowBackward, {"optimizer.warm_up=100"})));
  REQUIRE(outcome.ending.exit_code == 0);
  const BoxedExperiment e = plain({"optimizer.warm_up=100"});
  const Rate rate(sections::optimizer(e), 160);
  for (const AppliedRecord& update : outcome.applied) {
    CHECK(update.rate == rate.at(update.reads.front().forward_version));
  }
}

TEST_CASE("what has no meaning is refused", "[system]") {
  const auto refusal = [](const proto::Experiment& e, bool virtual_clock) {
    const auto b = make_blueprint(e);
    if (!b) {
      return b.error().message;
    }
    RunOptions options;
    options.virtual_clock = virtual_clock;
    const auto result = run_experiment(*b, options);
    return result ? std::string() : result.error().message;
  };
  CHECK(refusal(hogwild(2), true).empty());
  CHECK(refusal(hogwild(2), false).empty());
  CHECK(refusal(hogwild(2, {"record.order=true"}), true).empty());
  CHECK_THAT(refusal(hogwild(2, {"record.order=true"}), false), says("record.order"));
  CHECK_THAT(refusal(hogwild(4, {"stop.updates=3"}), true), says("replicas.count: 4 is more than"));
}

}  // namespace replicas_hogwild_test
