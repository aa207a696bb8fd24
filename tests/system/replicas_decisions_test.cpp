// Several servers, one decision: where a rule drops gradients, or takes the first that come, or times
// its replicas, one server decides for all. So all apply the same pushes, and none waits for another
// for ever. Where each server may apply what comes to it, evaluations do not make them wait either.
#include "messages/weights.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/harness.hpp"

#include <map>
#include <set>
#include <tuple>
#include <utility>

namespace replicas_decisions_test {

using namespace troupe;
using namespace troupe::test;

namespace {

using Place = std::pair<std::int32_t, std::size_t>;  // chunk and slice
using Push = std::pair<std::int32_t, std::int64_t>;  // replica and mini-batch

struct Case {
  std::string name;
  Options set;
};

/// What servers could decide apart.
const std::vector<Case> kChoosing{{"gradients that are too late are dropped",
                                   {"pipeline.schedule=async_one_f_one_b",
                                    "replicas.count=4",
                                    "replicas.rule.ringmaster.bound=3",
                                    "replicas.shards=2",
                                    "stop.updates=60"}},
                                  {"the first of them make the update",
                                   {"pipeline.schedule=one_f_one_b",
                                    "pipeline.micro_batches=2",
                                    "replicas.count=4",
                                    "replicas.exchange.synchronous.backup=2",
                                    "stop.updates=40"}},
                                  {"a quorum makes the update",
                                   {"pipeline.schedule=async_one_f_one_b",
                                    "replicas.count=4",
                                    "replicas.exchange.diloco.mode=quorum",
                                    "replicas.exchange.diloco.period=3",
                                    "stop.updates=60"}},
                                  {"periods follow the speed of replicas",
                                   {"pipeline.schedule=async_one_f_one_b",
                                    "replicas.count=2",
                                    "replicas.exchange.diloco.mode=asynchronous",
                                    "replicas.exchange.diloco.period=20",
                                    "clock.workers.slowness=[1,2.5]",
                                    "stop.updates=200"}}};

BoxedExperiment four_stages(Options set) {
  set.insert(set.end(),
             {"pipeline.stages=4",
              "record.evaluate_every=1",
              "clock.forward.seconds=[1]",
              "clock.forward.gamma.shape=4",
              "clock.input_gradient.seconds=[1]",
              "clock.weight_gradient.seconds=[1]",
              "clock.exchange.seconds=[0.3]"});
  return experiment(tiny_task("16,14,12"), set);
}

/// By server: which pushes made each of its versions.
std::map<Place, std::map<std::int64_t, std::set<Push>>> made_of(const Outcome& done) {
  std::map<Place, std::map<std::int64_t, std::set<Push>>> all;
  for (const AppliedRecord& record : done.applied) {
    all[{record.stamp.chunk, record.slice}][record.applied_to].insert(
        {record.stamp.replica, record.stamp.batch});
  }
  return all;
}

}  // namespace

TEST_CASE("all servers make the same updates of the same pushes", "[system][replicas]") {
  for (const Case& one : kChoosing) {
    INFO(one.name);
    const Outcome done = run(four_stages(one.set));
    INFO(done.ending.cause);
    REQUIRE(done.ending.exit_code == 0);
    check_accounts(done);
    const auto servers = made_of(done);
    CHECK(servers.size() >= 4);
    for (const auto& [place, versions] : servers) {
      INFO("chunk " << place.first << ", slice " << place.second);
      CHECK(versions == servers.begin()->second);
    }
  }
}

TEST_CASE("they come to the end on threads, too", "[system][replicas]") {
  for (const Case& one : kChoosing) {
    INFO(one.name);
    const Outcome done = run(four_stages(one.set), {.threads = true});
    INFO(done.ending.cause);
    CHECK(done.ending.exit_code == 0);
  }
}

TEST_CASE("a replica that dies between its pushes does not hold the others up",
          "[system][replicas]") {
  for (const Case& one : kChoosing) {
    for (const char* stage : {"stage-1.0", "stage-1.2"}) {
      INFO(one.name << ", " << stage << " dies");
      const Outcome done = run(four_stages(one.set), {.recast = [&](Cast& cast) {
                                 Cast::Member& dying = member(cast, stage);
                                 dying.machine = failing_at(std::move(dying.machine), 7);
                               }});
      INFO(done.ending.cause);
      REQUIRE(done.ending.exit_code == 0);
      CHECK(done.lost.size() == 1);
      std::set<std::int64_t> versions;
      for (const ServerRecord& server : done.servers) {
        versions.insert(server.version);
      }
      CHECK(versions.size() == 1);
    }
  }
}

TEST_CASE("evaluations wait for the servers that are behind, and hold nobody up",
          "[system][replicas]") {
  // Chunks 0, 1 and 3 are on one stage: servers are several updates apart.
  const Outcome done = run(experiment("model { quadratic { } } data { none { } }",
                                      {"pipeline.schedule=async_one_f_one_b",
                                       "pipeline.stages=2",
                                       "pipeline.stage_of=[0,0,1,0]",
                                       "replicas.count=5",
                                       "record.evaluate_every=1",
                                       "stop.updates=60"}));
  INFO(done.ending.cause);
  REQUIRE(done.ending.exit_code == 0);
  CHECK(done.evaluations.size() >= 60);
}

}  // namespace replicas_decisions_test
