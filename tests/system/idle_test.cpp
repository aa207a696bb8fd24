// What a stage's time went to: work, or waiting for a thing that has a name. On the virtual clock
// the account is exact.
#include "apps/run/run.hpp"
#include "apps/topologies/cast.hpp"
#include "messages/evaluation.hpp"
#include "messages/pipeline.hpp"
#include "messages/weights.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/harness.hpp"

#include <deque>
#include <numeric>

namespace idle_test {

using namespace troupe;
using namespace troupe::test;

namespace {

using Catch::Matchers::WithinAbs;

constexpr double kExact = 1e-9;  // shares

enum : std::size_t { kData, kActivation, kError, kWeights };

BoxedExperiment timed(const std::vector<std::string>& more) {
  std::vector<std::string> set{"clock.forward.seconds=1",
                               "clock.input_gradient.seconds=1",
                               "clock.weight_gradient.seconds=1",
                               "record.evaluate=false",
                               "record.gap_every=0"};
  set.insert(set.end(), more.begin(), more.end());
  return experiment(tiny_task("6,6,6,6,6"), set);
}

Summary simulated(const proto::Experiment& e, const std::function<void(Cast&)>& recast = {}) {
  auto blueprint = make_blueprint(e);
  REQUIRE(blueprint);
  RunOptions options{.virtual_clock = true, .directory = {}, .interrupts = {}, .recast = recast};
  const auto result = run_experiment(*blueprint, options);
  REQUIRE(result);
  REQUIRE(result->exit_code == 0);
  return result->summary;
}

/// A source whose loader needs `seconds` for each micro-batch.
class SlowLoader final : public Machine {
 public:
  SlowLoader(std::unique_ptr<Machine> source, double seconds)
      : source_(std::move(source)), seconds_(seconds) {}

  void on(Message message, double now, Effects& fx) override {
    if (holds_alternative<Alarm>(message)) {
      fx.sends.push_back(std::move(loaded_.front()));
      loaded_.pop_front();
      busy_ = false;
    } else {
      source_->on(std::move(message), now, fx);
      for (std::size_t i = 0; i < fx.sends.size();) {
        if (holds_alternative<Activation>(fx.sends[i].message)) {
          loaded_.push_back(std::move(fx.sends[i]));
          fx.sends.erase(fx.sends.begin() + static_cast<std::ptrdiff_t>(i));
        } else {
          ++i;
        }
      }
    }
    if (!busy_ && !loaded_.empty()) {
      busy_ = true;
      fx.wake(now + seconds_);
    }
  }

  std::string waits_for() const override { return source_->waits_for(); }

 private:
  std::unique_ptr<Machine> source_;
  double seconds_;
  std::deque<Effects::Send> loaded_;
  bool busy_ = false;
};

}  // namespace

// Stage k of K waits k forwards and k backwards for an activation, K-1-k of both for an error, each
// mini-batch; behind its last backward it has nothing to wait for.
TEST_CASE("the bubble of a flushed pipeline is told by its reasons", "[idle]") {
  const int K = 3;
  const int M = GENERATE(1, 4);
  const std::string schedule = GENERATE("gpipe", "one_f_one_b");
  const int N = 5;
  CAPTURE(schedule, M);
  const Summary s = simulated(timed({"pipeline.stages=3",
                                     "pipeline.micro_batches=" + std::to_string(M),
                                     "pipeline.schedule=" + schedule,
                                     "stop.updates=5"}));
  const double all = N * (M + K - 1) * 3.0;
  CHECK_THAT(s.seconds, WithinAbs(all, kExact));
  REQUIRE(s.idle.size() == K);
  for (int k = 0; k < K; ++k) {
    CAPTURE(k);
    const IdleTimes& idle = s.idle.at(k);
    CHECK_THAT(s.busy.at(k), WithinAbs(N * M * 3.0 / all, kExact));
    CHECK(idle[kData] == 0);
    CHECK(idle[kWeights] == 0);
    CHECK_THAT(idle[kActivation], WithinAbs((N * 3.0 * k - 2.0 * k) / all, kExact));
    CHECK_THAT(idle[kError], WithinAbs(N * 3.0 * (K - 1 - k) / all, kExact));
  }
}

// An optimizer with a thread of its own keeps its stage waiting; several chunks a stage share one account.
TEST_CASE("work and waits are the whole run with an optimizer apart and with several chunks",
          "[idle]") {
  const bool apart = GENERATE(true, false);
  CAPTURE(apart);
  const Summary s =
      simulated(timed({"pipeline.stages=2",
                       apart ? "placement.optimizer=own" : "pipeline.stage_of=[0,1,0]",
                       "pipeline.schedule=async_one_f_one_b",
                       "clock.update.seconds=0.75",
                       "stop.updates=7"}));
  const IdleTimes& idle = s.idle.at(0);
  const double known = s.busy.at(0) + std::accumulate(idle.begin(), idle.end(), 0.0);
  // The last update is behind the stage's last wait, where it is another thread's.
  CHECK_THAT(known, WithinAbs(apart ? 1 - 0.75 / s.seconds : 1, kExact));
  CHECK((idle[kWeights] > 0) == apart);
}

// The thread of a stage that waits is free for evaluations, which take time on the real clock.
TEST_CASE("a stage that evaluates is not idle", "[idle]") {
  const bool overtaken = GENERATE(false, true);  // by the data, before the evaluation's end is told
  CAPTURE(overtaken);
  auto blueprint = make_blueprint(timed({"stop.updates=2"}));
  REQUIRE(blueprint);
  Cast cast = build_cast(*blueprint);
  Machine& stage = *member(cast, "stage-0").machine;
  Stream stream(Device{});
  const NamedTensor x{"x", stream.allocate({1, 1})};
  std::vector<WaitRecord> waits;
  std::vector<Run> runs;
  const auto tell = [&](Message message, double now) {
    Effects fx;
    stage.on(std::move(message), now, fx);
    for (const RecordEntry& record : fx.records) {
      if (const auto* wait = std::get_if<WaitRecord>(&record)) {
        waits.push_back(*wait);
      }
    }
    std::move(fx.runs.begin(), fx.runs.end(), std::back_inserter(runs));
    for (const Effects::Send& send : fx.sends) {  // the shard answers at once
      if (const auto* pull = get_if<Pull>(&send.message)) {
        Effects more;
        stage.on(PullReply{.request = pull->request,
                           .chunk = 0,
                           .weights = Weights(1, Slice{.step = pull->view.step})},
                 now,
                 more);
        for (const RecordEntry& record : more.records) {
          if (const auto* wait = std::get_if<WaitRecord>(&record)) {
            waits.push_back(*wait);
          }
        }
        std::move(more.runs.begin(), more.runs.end(), std::back_inserter(runs));
      }
    }
  };
  const auto data = [&](double now) {
    tell(Labels{.stamp = {}, .labels = x.tensor}, now);
    tell(Activation{.stamp = {}, .bundle = {x}}, now);
  };
  tell(Start{}, 0);
  tell(MarkBatch{.step = 0, .index = 0, .chunk = 0, .bundle = {x}, .labels = x.tensor}, 1);
  REQUIRE(runs.size() == 1);
  CHECK(runs.back().lane == Lane::mark);
  if (overtaken) {
    data(4);
    tell(Ran<ForwardPass>{Lane::mark, {}}, 4);
  } else {
    tell(Ran<ForwardPass>{Lane::mark, {}}, 4);
    data(6);
  }
  REQUIRE(runs.size() == 2);
  CHECK(runs.back().lane == Lane::sequence);
  double idle = 0;
  for (const WaitRecord& wait : waits) {
    CHECK(wait.want == Want::data);
    idle += wait.end - wait.start;
  }
  CHECK(idle == (overtaken ? 1 : 3));
}

// The first stage is the last to finish; its updates run on its own thread, so that no second of
// them is idle.
TEST_CASE("work and waits of the first stage are the whole run", "[idle]") {
  const std::string schedule = GENERATE(
      "sequential", "gpipe", "one_f_one_b", "zb_h1", "async_one_f_one_b", "async_full_duplex");
  const std::string weights = GENERATE("latest", "stash", "spectrain");
  CAPTURE(schedule, weights);
  std::vector<std::string> set{"pipeline.stages=3",
                               "pipeline.schedule=" + schedule,
                               "clock.update.seconds=0.75",
                               "clock.link.seconds=0.25",
                               "stop.updates=7"};
  if (weights != "latest" && schedule.starts_with("async")) {
    set.push_back("pipeline.weights=" + weights);
    set.emplace_back("optimizer.momentum=0.9");
  }
  const Summary s = simulated(timed(set));
  REQUIRE(s.idle.size() == 3);
  const IdleTimes& idle = s.idle.at(0);
  CHECK_THAT(s.busy.at(0) + std::accumulate(idle.begin(), idle.end(), 0.0), WithinAbs(1, kExact));
  CHECK(idle[kWeights] == 0);
  for (const auto& [stage, shares] : s.idle) {
    CHECK(s.busy.at(stage) + std::accumulate(shares.begin(), shares.end(), 0.0) <= 1 + kExact);
  }
}

TEST_CASE("a replica that waits for its server waits for weights", "[idle]") {
  const Summary s = simulated(timed({"replicas.count=2",
                                     "replicas.exchange=synchronous",
                                     "clock.exchange.seconds=0.5",
                                     "clock.update.seconds=0.25",
                                     "stop.updates=4"}));
  REQUIRE(s.idle.size() == 2);
  for (const auto& [stage, idle] : s.idle) {
    CAPTURE(stage, s.seconds, s.busy.at(stage), idle[kData], idle[kWeights]);
    CHECK(idle[kData] + idle[kActivation] + idle[kError] == 0);
    CHECK(idle[kWeights] > 0);
    CHECK(s.busy.at(stage) + idle[kWeights] <= 1 + kExact);
  }
  // Replica 0 is told the end last, and then tells the wait that is open.
  CHECK_THAT(s.busy.at(0) + s.idle.at(0)[kWeights], WithinAbs(1, kExact));
}

// With a mini-batch of 3 seconds a loader that takes 4 keeps the stage waiting for 1 each time, and
// for 4 at first; one that takes 2 at first only.
TEST_CASE("a loader that is too slow is told apart from one that is not", "[idle]") {
  const double load = GENERATE(4.0, 2.0);
  const int N = 6;
  CAPTURE(load);
  const Summary s = simulated(timed({"stop.updates=6"}), [&](Cast& cast) {
    Cast::Member& source = member(cast, "source");
    source.machine = std::make_unique<SlowLoader>(std::move(source.machine), load);
  });
  const double starved = load + (N - 1) * std::max(0.0, load - 3);
  CHECK_THAT(s.seconds, WithinAbs(3.0 * N + starved, kExact));
  CHECK_THAT(s.idle.at(0)[kData] * s.seconds, WithinAbs(starved, kExact));
  CHECK_THAT(s.busy.at(0) * s.seconds, WithinAbs(3.0 * N, kExact));
}

}  // namespace idle_test
