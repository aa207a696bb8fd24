// Replicas without a server in whole runs: what they agree with, who holds up whom, who dies and stops, and
// what is told of their distance from one another.
#include "messages/messages.hpp"
#include "messages/peers.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/harness.hpp"

namespace gossip_test {

using namespace troupe;
using namespace troupe::test;

namespace {

const std::vector<Options> kExchanges{
    {"replicas.exchange=gossip"},
    {"replicas.exchange=gossip", "replicas.codec.up.top_k.density=0.1"},
    {"replicas.exchange.gossip.order=sequential", "replicas.codec.up=one_bit"},
    {"replicas.exchange=sgp"},
    {"replicas.exchange=ad_psgd"},
    {"replicas.exchange=strom"}};

Options all_of(const Options& more) {
  Options all{"clock.forward.seconds=[1]",
              "clock.input_gradient.seconds=[0]",
              "clock.weight_gradient.seconds=[0]",
              "optimizer.learning_rate=0.02",
              "replicas.count=4",
              "record.evaluate=true",
              "record.evaluate_every=8",
              "stop.updates=40"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

Outcome train(const Options& more, const HarnessOptions& options = {}) {
  return run(experiment(tiny_task("16,14"), all_of(more)), options);
}

Outcome trained(const Options& more) {
  Outcome done = train(more);
  INFO(done.ending.cause);
  REQUIRE(done.ending.exit_code == 0);
  return done;
}

HarnessOptions dying(const std::vector<std::pair<std::string, std::int64_t>>& deaths) {
  return {.recast = [deaths](Cast& cast) {
    for (const auto& [name, batch] : deaths) {
      std::unique_ptr<Machine>& machine = member(cast, name).machine;
      machine = failing_at(std::move(machine), batch);
    }
  }};
}

}  // namespace

TEST_CASE("the mean of all after each step is averaging with period 1", "[system][gossip]") {
  for (const Options& pipe : std::vector<Options>{{},
                                                  {"pipeline.stages=2",
                                                   "pipeline.schedule=async_one_f_one_b",
                                                   "pipeline.weights=spectrain",
                                                   "optimizer.rule=momentum"}}) {
    Options gossip = pipe;
    gossip.insert(
        gossip.end(),
        {"replicas.exchange.gossip.graph=complete", "replicas.exchange.gossip.order=sequential"});
    Options averaging = pipe;
    averaging.insert(averaging.end(),
                     {"replicas.exchange=averaging", "replicas.exchange.averaging.period=1"});
    CHECK(relative_distance(trained(gossip).weights, trained(averaging).weights) < 1e-5);
  }
}

TEST_CASE("with sgd the mean of gossiping replicas moves by the mean of their steps",
          "[system][gossip]") {
  // Of one step all graphs and both orders have the same; later gradients are taken elsewhere.
  const auto after_one = [](const Options& more) {
    Options set = more;
    set.insert(set.end(), {"stop.updates=1", "optimizer.rule=sgd"});
    return trained(set).weights;
  };
  const auto synchronous = after_one({"replicas.exchange=synchronous"});
  for (const char* graph : {"ring", "torus", "one_peer", "groups", "complete"}) {
    for (const char* order : {"simultaneous", "sequential"}) {
      CHECK(relative_distance(after_one({concat("replicas.exchange.gossip.graph=", graph),
                                         concat("replicas.exchange.gossip.order=", order)}),
                              synchronous) < 1e-6);
    }
  }
  CHECK(relative_distance(after_one({"replicas.exchange=sgp"}), synchronous) < 1e-6);
  CHECK(relative_distance(after_one({"replicas.exchange=ad_psgd"}), synchronous) < 1e-6);
}

TEST_CASE("where all shares are equal, push-sum is gossip on the same graph", "[system][gossip]") {
  CHECK(relative_distance(trained({"replicas.exchange=sgp"}).weights,
                          trained({"replicas.exchange.gossip.graph=one_peer",
                                   "replicas.exchange.gossip.order=sequential"})
                              .weights) < 1e-6);
}

TEST_CASE("all of them learn, in pipelines, too, and repeat themselves", "[system][gossip]") {
  for (const Options& exchange : kExchanges) {
    for (const Options& pipe : std::vector<Options>{{},
                                                    {"pipeline.stages=2",
                                                     "pipeline.schedule=async_one_f_one_b",
                                                     "pipeline.weights=stash"}}) {
      INFO(exchange.back() << pipe.size());
      const Options set =
          joined(joined(exchange, pipe),
                 {"clock.workers.spread=0.3", "replicas.rate_factor=1", "stop.updates=80"});
      const Outcome first = trained(set);
      CHECK(first.evaluations.back().loss < 0.8 * first.evaluations.front().loss);
      const Outcome second = trained(set);
      CHECK(first.order == second.order);
      CHECK(same(first.weights, second.weights));
    }
  }
}

TEST_CASE("who waits for certain messages has the same weights on threads", "[system][gossip]") {
  for (const Options& exchange :
       std::vector<Options>{{"replicas.exchange.gossip.graph=torus"},
                            {"replicas.exchange.gossip.order=sequential"},
                            {"replicas.exchange=gossip", "replicas.codec.up.qsgd.levels=32"},
                            {"replicas.exchange.gossip.order=sequential",
                             "replicas.exchange.gossip.period=2",
                             "replicas.codec.up.top_k.density=0.1"},
                            {"replicas.exchange=sgp"},
                            {"replicas.exchange.sgp.graph=random"}}) {
    INFO(exchange.front() << " " << exchange.back());
    const Options set = joined(exchange, {"replicas.count=6"});
    const Outcome threads = train(set, {.threads = true});
    REQUIRE(threads.ending.exit_code == 0);
    CHECK(same(threads.weights, trained(set).weights));
  }
}

TEST_CASE("a slow replica holds up those who wait for it, and nobody else", "[system][gossip]") {
  const auto mini_batches = [](const std::string& exchange, bool slow) {
    Options set{"replicas.exchange" + exchange,
                "replicas.count=8",
                "record.evaluate=false",
                "stop.updates=0",
                "stop.seconds=400.5"};
    if (slow) {
      set.insert(set.end(),
                 {"clock.workers.straggler.permanent.factor=4",
                  "clock.workers.straggler.permanent.replica=1"});
    }
    std::int64_t of_others = 0;
    for (const AppliedRecord& record : trained(set).applied) {
      of_others += record.stamp.replica != 1 ? 1 : 0;
    }
    return of_others;
  };
  for (const std::string exchange : {"=ad_psgd", "=strom"}) {
    INFO(exchange);
    CHECK(mini_batches(exchange, true) == mini_batches(exchange, false));
  }
  for (const std::string exchange : {".gossip.graph=ring", "=sgp"}) {
    INFO(exchange);
    CHECK(static_cast<double>(mini_batches(exchange, true)) <
          0.27 * static_cast<double>(mini_batches(exchange, false)));
  }
}

TEST_CASE("what a replica says and hears in a run is as much among 20 replicas as among 160",
          "[system][gossip]") {
  for (const Options& exchange : std::vector<Options>{{"replicas.exchange=gossip"},
                                                      {"replicas.exchange.gossip.graph=one_peer"},
                                                      {"replicas.exchange.gossip.graph=rotating"},
                                                      {"replicas.exchange.sgp.graph=random"},
                                                      {"replicas.exchange.ad_psgd.graph=ring"},
                                                      {"replicas.exchange=sgp"}}) {
    const auto of_each = [&](int replicas) {
      std::int64_t messages = 0;
      const Outcome done = train(joined(exchange,
                                        {concat("replicas.count=", replicas),
                                         "data.batch_size=1",
                                         "record.evaluate=false",
                                         "record.evaluate_every=0",
                                         "stop.updates=4"}),
                                 {.lose = [&](ActorId, const Message&) {
                                   ++messages;
                                   return false;
                                 }});
      REQUIRE(done.ending.exit_code == 0);
      return static_cast<double>(messages) / replicas;
    };
    INFO(exchange.front());
    CHECK(of_each(160) < 1.05 * of_each(20));
  }
}

// In each step a replica hands 2 (R - 1) pieces to the next one (Patarasuk & Yuan 2009).
TEST_CASE(
    "what a ring says in a step is 2 (R - 1) pieces a replica, and no more where there are more",
    "[system][gossip]") {
  const auto of_each = [](int replicas, int steps) {
    std::int64_t messages = 0;
    const Outcome done = train({concat("replicas.count=", replicas),
                                "replicas.exchange.synchronous.reduction=ring",
                                "data.batch_size=1",
                                "record.evaluate=false",
                                "record.evaluate_every=0",
                                concat("stop.updates=", steps)},
                               {.lose = [&](ActorId, const Message& m) {
                                 messages += get_if<GradientPart>(&m) ? 1 : 0;
                                 return false;
                               }});
    REQUIRE(done.ending.exit_code == 0);
    return static_cast<double>(messages) / replicas / steps / (replicas - 1);
  };
  const double few = of_each(8, 4);
  CHECK(few > 0);
  CHECK(of_each(48, 4) == few);
  CHECK(of_each(8, 12) == few);
}

TEST_CASE("replicas go on without those that died, the evaluator among them", "[system][gossip]") {
  for (const Options& exchange : kExchanges) {
    for (const bool threads : {false, true}) {
      for (const auto& deaths : std::vector<std::vector<std::pair<std::string, std::int64_t>>>{
               {{"stage-1.0", 7}},
               {{"stage-0.0", 8}, {"stage-1.0", 17}},
               {{"stage-3.0", 39}, {"stage-2.0", 20}}}) {
        HarnessOptions options = dying(deaths);
        options.threads = threads;
        const Outcome outcome = train(joined(exchange, {"clock.workers.spread=0.3"}), options);
        INFO(exchange.back() << " " << outcome.ending.cause);
        REQUIRE(outcome.ending.exit_code == 0);
        CHECK(outcome.ending.step == 40);
        CHECK(outcome.lost.size() == deaths.size());
        CHECK(!outcome.weights.empty());
      }
    }
  }
}

TEST_CASE("a run of gossiping replicas that is stopped early ends with weights",
          "[system][gossip]") {
  for (const Options& exchange : kExchanges) {
    for (const bool threads : {false, true}) {
      INFO(exchange.back());
      const Outcome outcome = train(joined(exchange,
                                           {"clock.workers.spread=0.3",
                                            "stop.updates=0",
                                            threads ? "stop.seconds=0.2" : "stop.seconds=20.5"}),
                                    {.threads = threads});
      INFO(outcome.ending.cause);
      REQUIRE(outcome.ending.exit_code == 0);
      CHECK(outcome.ending.step > 1);
      CHECK(!outcome.weights.empty());
      CHECK(outcome.evaluations.back().step == outcome.ending.step);
    }
  }
}

}  // namespace gossip_test
