// How runs with servers end, and what is told of them.
//   - stopped at any time, by seconds, every exchange ends, at the step that the weights are of
//   - servers that make different updates of the same pushes get to the end all the same
//   - each step is evaluated once, though the run ends there, though the evaluator dies
//   - a run that has met its target tells of servers and stages as any other
#include "messages/evaluation.hpp"
#include "messages/pipeline.hpp"
#include "runtime/schemes/exchanges/exchange.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/harness.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace replicas_stop_test {

using namespace troupe;
using namespace troupe::test;

namespace {

const Options kTwoStages{
    "pipeline.stages=2", "pipeline.schedule=async_one_f_one_b", "pipeline.weights=stash"};
const Options kTwoStagesFlushed{"pipeline.stages=2",
                                "pipeline.schedule=one_f_one_b",
                                "pipeline.weights=latest",
                                "pipeline.micro_batches=2"};

/// Asynchronous ones, but for backup replicas, which go with flushed pipelines alone.
const Options& two_stages(const Options& exchange) {
  return exchange.front().find("backup") == std::string::npos ? kTwoStages : kTwoStagesFlushed;
}

/// Three replicas of unequal speed behind two shards and links that take their time.
BoxedExperiment task(const Options& set) {
  return experiment(tiny_task("10", "relu"),
                    joined({"replicas.count=3",
                            "replicas.shards=2",
                            "stop.updates=2000",
                            "data.batch_size=4",
                            "optimizer.learning_rate=0.005",
                            "clock.forward.seconds=[1]",
                            "clock.update.seconds=[0.3]",
                            "clock.workers.slowness=[1,1.37,2.9]",
                            "clock.exchange.seconds=[0.2]",
                            "clock.exchange.gamma.shape=2",
                            "record.gap_every=3"},
                           set));
}

const std::vector<Options>& all_exchanges() {
  static const std::vector<Options> all{
      {"replicas.rule=asgd"},
      {"replicas.rule=asgd",
       "replicas.exchange.parameter_server.n_push=2",
       "replicas.exchange.parameter_server.n_fetch=3"},
      {"replicas.rule.softsync.n=1"},
      {"replicas.rule.softsync.wait=true"},
      {"replicas.rule.ssp.bound=1"},
      {"replicas.rule.essp.bound=2"},
      {"replicas.rule=gap_aware"},
      {"replicas.rule=dana_slim"},
      {"replicas.rule=delayed"},
      {"replicas.rule.ringmaster.bound=2"},
      {"replicas.exchange=synchronous"},
      {"replicas.exchange.synchronous.backup=1"},
      {"replicas.exchange.averaging.period=4"},
      {"replicas.exchange.bmuf.period=4"},
      {"replicas.exchange.easgd.period=4"},
      {"replicas.exchange.easgd.synchronous=true", "replicas.exchange.easgd.period=4"},
      {"replicas.exchange.diloco.period=4"},
      {"replicas.exchange.diloco.mode=asynchronous", "replicas.exchange.diloco.period=4"},
      {"replicas.exchange.diloco.mode=quorum", "replicas.exchange.diloco.period=4"},
      {"replicas.exchange.diloco.mode=decoupled",
       "replicas.exchange.diloco.period=4",
       "replicas.exchange.diloco.mode.decoupled.dealing=blocks",
       "replicas.shards=1"},  // a slice for each of two fragments, which are a chunk each in two stages
      {"replicas.exchange.diloco.mode=streaming", "replicas.exchange.diloco.period=4"},
      {"replicas.exchange.halos.period=2", "replicas.exchange.halos.accumulate=2"},
      {"replicas.exchange.wsp.wave=2"},
  };
  return all;
}

/// Whether each chunk of two stages is one fragment, with one server.
bool in_fragments(const Options& exchange) {
  return exchange.back() == "replicas.shards=1";
}

/// No replica waits for what the run's servers make, and they end with what they have.
bool nobody_waits(const Options& exchange) {
  return exchange.front().find("decoupled") != std::string::npos ||
         exchange.front().find("halos") != std::string::npos;
}

/// Of the run, by what the first server has applied.
std::int64_t step_of_first_server(const Outcome& done, std::int64_t batches_per_update) {
  const auto first = [](const ServerRecord& server) {
    return server.chunk == 0 && server.slice == 0 && server.group < 0;
  };
  const auto server = std::find_if(done.servers.begin(), done.servers.end(), first);
  REQUIRE(server != done.servers.end());
  std::int64_t mini_batches = 0;
  for (const AppliedRecord& record : done.applied) {
    if (record.stamp.chunk == 0 && record.slice == 0 && record.applied_to < server->version) {
      mini_batches += record.mini_batches;
    }
  }
  return mini_batches / batches_per_update;
}

bool finite(const std::vector<float>& weights) {
  return !weights.empty() &&
         std::all_of(weights.begin(), weights.end(), [](float w) { return std::isfinite(w); });
}

bool ascending(const std::vector<EvaluationRecord>& evaluations) {
  return std::adjacent_find(
             evaluations.begin(), evaluations.end(), [](const auto& a, const auto& b) {
               return a.step >= b.step;
             }) == evaluations.end();
}

}  // namespace

TEST_CASE("a run may be stopped at any time, whatever the exchange", "[system][replicas]") {
  for (const Options& exchange : all_exchanges()) {
    for (const Options& pipeline : {Options{}, two_stages(exchange)}) {
      for (const char* seconds : {"0.5", "3", "6.1", "8.3", "9.7", "13.4", "21.9"}) {
        INFO(exchange.front() << (pipeline.empty() ? "" : ", two stages, ") << " at " << seconds);
        const BoxedExperiment e =
            task(joined(joined(exchange, pipeline),
                        {concat("stop.seconds=", seconds), "record.evaluate=true"}));
        const Outcome done = run(e);
        INFO(done.ending.cause);
        REQUIRE(done.ending.exit_code == 0);
        CHECK(finite(done.weights));
        check_accounts(done);
        REQUIRE(servers_of_all(done) == (pipeline.empty() || in_fragments(exchange) ? 2 : 4));
        CHECK((done.ending.step > 0 || nobody_waits(exchange)));
        CHECK(done.ending.step == step_of_first_server(done, batches_per_update(e)));
        REQUIRE(done.evaluations.size() == 1);
        CHECK(done.evaluations.front().step == done.ending.step);
        CHECK(done.stashes_max.size() == (pipeline.empty() ? 1 : 2));
      }
    }
  }
}

TEST_CASE("where nobody waits, a run that is stopped does not wait for its first update either",
          "[system][replicas]") {
  int runs = 0;
  for (const Options& exchange : all_exchanges()) {
    if (!nobody_waits(exchange)) {
      continue;
    }
    for (const Options& pipeline : {Options{}, kTwoStages}) {
      for (const char* link : {"clock.exchange", "clock.between_servers"}) {
        const bool within = std::string(link) == "clock.exchange";
        const bool halos = exchange.front().find("halos") != std::string::npos;
        if (within == halos) {
          continue;
        }
        INFO(exchange.front() << (pipeline.empty() ? "" : ", two stages"));
        const Options slow{concat(link, ".seconds=[1e6]"), "stop.seconds=40"};
        const Outcome done =
            run(task(joined(joined(exchange, pipeline), joined(slow, {"record.evaluate=true"}))));
        INFO(done.ending.cause);
        REQUIRE(done.ending.exit_code == 0);
        CHECK(done.seconds < 50);
        CHECK(done.ending.step == 0);
        CHECK(finite(done.weights));
        check_accounts(done);
        REQUIRE(done.evaluations.size() == 1);
        CHECK(done.evaluations.front().step == 0);
        ++runs;
      }
    }
  }
  CHECK(runs == 4);
}

TEST_CASE("a run has no more updates than it was to have, though a push stands for more",
          "[system][replicas]") {
  for (const char* seconds : {"0", "3"}) {
    INFO("at " << seconds);
    const Outcome done = run(task({"replicas.exchange.diloco.mode=asynchronous",
                                   "replicas.exchange.diloco.period=50",
                                   "replicas.count=1",
                                   "clock.workers.slowness=[1]",
                                   "stop.updates=2",
                                   concat("stop.seconds=", seconds)}));
    REQUIRE(done.ending.exit_code == 0);
    CHECK(done.ending.step == 2);
  }
}

TEST_CASE("servers whose quorums differ get to the end", "[system][replicas]") {
  for (int seed = 1; seed <= 24; ++seed) {
    for (const char* shape : {"1", "2"}) {
      INFO("seed " << seed << " shape " << shape);
      const Outcome done = run(task(joined(kTwoStages,
                                           {"replicas.exchange.diloco.mode.quorum.quorum=2",
                                            "replicas.exchange.diloco.mode.quorum.grace=0.4",
                                            "replicas.exchange.diloco.period=2",
                                            "stop.updates=14",
                                            "clock.workers.slowness=[1,1.1,1.25]",
                                            "clock.exchange.seconds=[0.6]",
                                            concat("clock.exchange.gamma.shape=", shape),
                                            concat("seed=", seed)})));
      INFO(done.ending.cause);
      REQUIRE(done.ending.exit_code == 0);
      check_accounts(done);
    }
  }
}

TEST_CASE("a step is evaluated once, though the run is stopped there", "[system][replicas]") {
  for (const Options& exchange : all_exchanges()) {
    for (const char* seconds : {"6.1", "6.9", "7.3", "8.2", "9.6", "12.2", "16"}) {
      INFO(exchange.front() << " at " << seconds);
      const Outcome done = run(task(joined(exchange,
                                           {concat("stop.seconds=", seconds),
                                            "record.evaluate=true",
                                            "record.evaluate_every=3",
                                            "clock.exchange.seconds=[]"})));
      INFO(done.ending.cause);
      REQUIRE(done.ending.exit_code == 0);
      CHECK(ascending(done.evaluations));
      REQUIRE(!done.evaluations.empty());
      CHECK(done.evaluations.back().step == done.ending.step);
    }
  }
}

TEST_CASE("an evaluation that the dead finish too is told once", "[system][replicas]") {
  /// Throws once it has been given up.
  class Mortal final : public Machine {
   public:
    Mortal(std::unique_ptr<Machine> inner, const bool& dead)
        : inner_(std::move(inner)), dead_(dead) {}

    void on(Message message, double now, Effects& effects) override {
      if (dead_) {
        throw std::runtime_error("a kernel failed");
      }
      inner_->on(std::move(message), now, effects);
    }

    std::string waits_for() const override { return inner_->waits_for(); }

   private:
    std::unique_ptr<Machine> inner_;
    const bool& dead_;
  };

  for (const std::int64_t fatal : {6, 12, 36}) {  // step
    bool dead = false;
    ActorId stage = 0;
    const Outcome done = run(task(joined(kTwoStages,
                                         {"replicas.rule=asgd",
                                          "stop.updates=36",
                                          "record.evaluate=true",
                                          "record.evaluate_every=6"})),
                             {.lose = {},
                              .meddle =
                                  [&](Agenda& agenda, ActorId, const Message& message) {
                                    // The only batch of the evaluation is on its way back: the source will conclude.
                                    const auto* result = get_if<MarkResult>(&message);
                                    if (result && result->step == fatal && !dead) {
                                      dead = true;
                                      agenda.post(agenda.now(), stage, Start{});
                                    }
                                    return false;
                                  },
                              .recast =
                                  [&](Cast& cast) {
                                    Cast::Member& victim = member(cast, "stage-0.0");
                                    stage = static_cast<ActorId>(&victim - cast.members.data());
                                    victim.machine =
                                        std::make_unique<Mortal>(std::move(victim.machine), dead);
                                  }});
    INFO("step " << fatal << ": " << done.ending.cause);
    REQUIRE(done.ending.exit_code == 0);
    CHECK(done.lost.size() == 1);
    CHECK(done.evaluations.size() == 6);
    CHECK(ascending(done.evaluations));
  }
}

TEST_CASE("a run that has met its target tells of its servers and stages", "[system][replicas]") {
  for (const Options& exchange : all_exchanges()) {
    INFO(exchange.front());
    const Outcome done = run(task(
        joined(joined(exchange, two_stages(exchange)),
               {"stop.target_accuracy=0.05", "record.evaluate=true", "record.evaluate_every=8"})));
    INFO(done.ending.cause);
    REQUIRE(done.ending.exit_code == 0);
    CHECK(done.ending.step == 8);
    REQUIRE(done.servers.size() == (in_fragments(exchange) ? 2 : 4));
    check_accounts(done);
    for (const ServerRecord& server : done.servers) {
      CHECK(server.applied > 0);
      CHECK(server.bytes > 0);
      CHECK(server.in_flight > 0);
    }
    CHECK(done.stashes_max == std::map<std::int32_t, std::int64_t>{{0, 2}, {1, 1}});
  }
}

}  // namespace replicas_stop_test
