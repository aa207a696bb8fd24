// Processes have channels to their partners alone, so whoever says something to another must be one: whatever the scheme, and
// however the machines are dealt to processes. On the virtual clock every message is looked at.
#include "apps/topologies/placement.hpp"
#include "experiment.pb.h"
#include "messages/messages.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/harness.hpp"

#include <algorithm>
#include <string>
#include <vector>

namespace partners_test {

using namespace troupe;
using namespace troupe::test;

namespace {

constexpr int kReplicas = 6;
constexpr int kStages = 2;

proto::Experiment task(const Options& set) {
  return experiment(tiny_task("10,9", "relu"),
                    joined({concat("replicas.count=", kReplicas),
                            concat("pipeline.stages=", kStages),
                            "pipeline.schedule=async_one_f_one_b",
                            "stop.updates=24"},
                           set));
}

/// What is said between processes that are no partners, "stage-0.0 to shard-1.0" for the first; "": nothing.
std::string said_in_vain(const proto::Experiment& e, const Blueprint& b, int processes) {
  const auto placed = place(b, processes);
  REQUIRE(placed);
  std::string first;
  const auto listen = [&](ActorId to, const Message& message) {
    if (message.from < placed->process_of.size() && first.empty()) {
      const auto one = static_cast<std::size_t>(placed->process_of[message.from]);
      const auto other = static_cast<std::size_t>(placed->process_of[to]);
      if (one != other && !placed->partners[one][other]) {
        first = concat(message.from, " to ", to, " in processes ", one, " and ", other);
      }
    }
    return false;
  };
  const Outcome outcome = run(e, {.lose = listen});
  CHECK(outcome.ending.exit_code == 0);
  return first;
}

const std::vector<Options> kSchemes{
    {"replicas.rule=asgd"},
    {"replicas.exchange=synchronous"},
    {"replicas.exchange=synchronous", "replicas.exchange.synchronous.reduction=ring"},
    {"replicas.exchange=synchronous", "replicas.exchange.synchronous.reduction=tree"},
    {"replicas.exchange.easgd.period=4"},
    {"replicas.exchange.averaging.period=4"},
    {"replicas.exchange.diloco.period=4", "replicas.exchange.diloco.mode=streaming"},
    {"replicas.exchange.wsp.wave=2"},
    {"replicas.exchange=gossip", "replicas.exchange.gossip.graph=rotating"},
    {"replicas.exchange=sgp", "replicas.exchange.sgp.graph=random"},
    {"replicas.exchange=ad_psgd"},
    {"replicas.rule=asgd", "placement.on=[\"server-*=2\"]"},
    {"replicas.rule=asgd", "replicas.copies=2"},
    {"replicas.exchange=synchronous", "decoupled=synthetic"},
};

}  // namespace

TEST_CASE("whoever says something to another is its partner", "[system][partners]") {
  for (const Options& scheme : kSchemes) {
    CAPTURE(scheme);
    const proto::Experiment e = task(scheme);
    auto b = make_blueprint(e);
    INFO((b ? "" : b.error().message));
    REQUIRE(b);
    for (const int processes : {3, 6, 12}) {
      CAPTURE(processes);
      CHECK(said_in_vain(e, *b, processes) == "");
    }
  }
}

TEST_CASE("whoever gives the turns of NCCL's sums hears the shards of all chunks",
          "[system][partners]") {
  auto b = make_blueprint(
      task({"replicas.exchange=synchronous", "replicas.exchange.synchronous.reduction=ring"}));
  REQUIRE(b);
  const auto of_second = [&] {  // it plays the second chunk of replica 0
    const auto placed = place(*b, kReplicas * kStages);
    REQUIRE(placed);
    return std::ranges::count(placed->partners[1], true);
  };
  CHECK(of_second() < kReplicas * kStages - 1);
  b->experiment->mutable_replicas()->mutable_exchange()->mutable_synchronous()->set_reduction(
      proto::Synchronous::nccl);
  CHECK(of_second() == kReplicas * kStages - 1);
}

TEST_CASE("replicas that share no more than servers are no partners", "[system][partners]") {
  const auto partners_of = [](const Options& scheme) {
    auto b = make_blueprint(task(scheme));
    REQUIRE(b);
    const auto placed = place(*b, kReplicas);
    REQUIRE(placed);
    std::vector<std::ptrdiff_t> counts;
    for (const std::vector<bool>& of : placed->partners) {
      counts.push_back(std::count(of.begin(), of.end(), true));
    }
    return counts;
  };
  CHECK(partners_of({"replicas.rule=asgd"}) == std::vector<std::ptrdiff_t>{5, 1, 1, 1, 1, 1});
  // Each with the two beside it, and all with the lead.
  CHECK(partners_of(
            {"replicas.exchange=synchronous", "replicas.exchange.synchronous.reduction=ring"}) ==
        std::vector<std::ptrdiff_t>{5, 2, 3, 3, 3, 2});
}

}  // namespace partners_test
