// What a run with servers keeps does not grow with its length: tensors that are alive, sampled at
// every update of the first server.
#include "tests/support/catch.hpp"
#include "tests/support/harness.hpp"

#include <algorithm>

namespace replicas_memory_test {

using namespace troupe;
using namespace troupe::test;

namespace {

constexpr std::int64_t kUpdates = 600;

struct Kept {
  std::size_t early = 0;  // bytes: the most in the second sixth of the run's updates
  std::size_t late = 0;   // ... in the last
  Outcome outcome;
};

Kept kept(const Options& set) {
  Options all{"replicas.count=3",
              concat("stop.updates=", kUpdates),
              "optimizer.learning_rate=0.001",
              "clock.forward.seconds=[1]",
              "clock.forward.gamma.shape=4"};
  all.insert(all.end(), set.begin(), set.end());
  Kept kept;
  std::int64_t updates = 0;
  kept.outcome = run(experiment(tiny_task("64"), all), {.lose = [&](ActorId, const Message& m) {
                       if (holds_alternative<Combined>(m)) {
                         ++updates;
                         const std::size_t now = BufferPool::of(Device{}).statistics().live_bytes;
                         if (updates > kUpdates / 6 && updates <= kUpdates / 3) {
                           kept.early = std::max(kept.early, now);
                         } else if (updates > kUpdates * 5 / 6) {
                           kept.late = std::max(kept.late, now);
                         }
                       }
                       return false;
                     }});
  INFO(kept.outcome.ending.cause);
  REQUIRE(kept.outcome.ending.exit_code == 0);
  REQUIRE(kept.late > 0);
  return kept;
}

/// Less than two gradients more: what is under way varies.
void check_level(const Options& set) {
  INFO(set.front());
  const Kept k = kept(set);
  const std::size_t gradient = 4 * k.outcome.weights.size();
  CHECK(k.late < k.early + 2 * gradient);
}

}  // namespace

TEST_CASE("a server forgets what somebody had read whose pushes are always too late",
          "[system][replicas]") {
  const Options late{"clock.workers.slowness=[1,1,12]", "record.gap_every=100"};
  for (const char* rule : {"replicas.rule.ringmaster.bound=2",
                           "replicas.exchange.synchronous.backup=1",
                           "replicas.rule=gap_aware"}) {
    Options set{rule};
    set.insert(set.end(), late.begin(), late.end());
    check_level(set);
  }
  Options set{"replicas.rule.ringmaster.bound=2"};
  set.insert(set.end(), late.begin(), late.end());
  CHECK(kept(set).outcome.servers.front().dropped > 10);  // or nobody was late
}

TEST_CASE("a softsync server whose updates are slow does not collect pushes",
          "[system][replicas]") {
  const Options set{"replicas.rule.softsync.n=3",
                    "replicas.rule.softsync.wait=false",
                    "clock.update.seconds=[4]"};
  const Kept k = kept(set);
  // c = 1. While three pushes wait nobody is held back, and each of three may send one more; the last
  // update has one of the six, and three may be at work on their next.
  CHECK(k.outcome.servers.front().in_flight <= 3 + 3 - 1 + 3);
  check_level(set);
}

TEST_CASE("replicas keep their changes only where an answer may come without them",
          "[system][replicas]") {
  // Nobody is ever held up: no fetch comes that would empty the list.
  check_level({"replicas.rule.ssp.bound=1000", "clock.workers.slowness=[1,1,1]"});
  check_level({"replicas.exchange.wsp.wave=2",
               "replicas.exchange.wsp.distance=500",
               "clock.workers.slowness=[1,1,1]"});
  check_level({"replicas.rule.essp.bound=1000", "clock.workers.slowness=[1,1,1]"});
}

TEST_CASE("a server keeps no more messages than the weights take", "[system][replicas][codecs]") {
  check_level({"replicas.codec.down.top_k.density=0.01", "replicas.codec.up.top_k.density=0.01"});
  check_level({"replicas.codec.down=one_bit", "replicas.exchange.parameter_server.n_fetch=4"});
}

}  // namespace replicas_memory_test
