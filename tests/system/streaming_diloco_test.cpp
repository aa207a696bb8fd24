// Streaming DiLoCo by figures: two replicas with a sample each, two fragments of a number each, which every
// gradient mixes. The figures are of a script in double of the paper's equations (Douillard et al. 2025,
// arXiv:2501.18512, section 2.3), which knows nothing of Troupe; y is 0 at replica 0 and 1 at replica 1:
//
//   z = a x0 + b x1, loss log(1 + e^z) - y z, inner step -0.2 dloss; H = 5, tau = 2, alpha = 0.25
//   after 5, 10, 15 mini-batches a leaves, after 7, 12 and at the end b: d = mean of (since - own),
//   m <- 0.9 m + d, shared <- shared - 0.7 (d + 0.9 m)
//   tau mini-batches later own <- alpha own + (1 - alpha) shared, since <- shared
#include "tests/system/two_numbers.hpp"

#include <array>

namespace streaming_diloco_test {

using namespace troupe;
using namespace troupe::test;

namespace {

Outcome train(const Options& more = {}, const HarnessOptions& options = {}) {
  const std::string diloco = "replicas.exchange.diloco.";
  return two_numbers::train(joined({"replicas.shards=2",
                                    diloco + "period=5",
                                    diloco + "rate=0.7",
                                    diloco + "momentum=0.9",
                                    diloco + "mode.streaming.overlap=2",
                                    diloco + "mode.streaming.mix=0.25",
                                    "stop.updates=15"},
                                   more),
                            options);
}

using Losses = std::array<double, 15>;

constexpr Losses kFirst{0.693147181,
                        0.632599035,
                        0.579362963,
                        0.532500604,
                        0.491169216,
                        0.45462512,
                        0.422220287,
                        0.438544025,
                        0.407927274,
                        0.473382501,
                        0.438865378,
                        0.408213115,
                        0.39324249,
                        0.367532186,
                        0.411263737};
constexpr Losses kSecond{0.693147181,
                         0.5030574,
                         0.383347884,
                         0.304838911,
                         0.250811623,
                         0.21194519,
                         0.182907683,
                         0.149685801,
                         0.134070068,
                         0.266770075,
                         0.223593263,
                         0.191715585,
                         0.150453033,
                         0.134691798,
                         0.178786871};

void check_losses(const Outcome& done, std::int32_t replica, const Losses& expected) {
  for (std::size_t n = 0; n < expected.size(); ++n) {
    INFO("replica " << replica << ", mini-batch " << n);
    CHECK(done.losses.at({.replica = replica, .batch = static_cast<std::int64_t>(n)}) ==
          Approx(expected[n]).epsilon(2e-6));
  }
}

}  // namespace

TEST_CASE("two streamed fragments with outer momentum are the paper's, figure by figure",
          "[system][replicas]") {
  const bool threads = GENERATE(false, true);
  const Options speeds = threads ? Options{} : Options{"clock.workers.slowness=[1,3]"};
  const Outcome done = train(speeds, {.threads = threads});
  check_losses(done, 0, kFirst);
  check_losses(done, 1, kSecond);
  CHECK(done.weights[0] == Approx(-1.0952786854053222).epsilon(2e-6));
  CHECK(done.weights[1] == Approx(0.7083743317218137).epsilon(2e-6));
}

TEST_CASE("the figures of streaming depend on each of its numbers", "[system][replicas]") {
  const std::string diloco = "replicas.exchange.diloco.";
  const Outcome paper = train();
  for (const std::string& other : {diloco + "momentum=0",
                                   diloco + "rate=1",
                                   diloco + "mode.streaming.overlap=1",
                                   diloco + "mode.streaming.mix=0.75",
                                   std::string("replicas.shards=1")}) {
    INFO(other);
    CHECK(distance(train({other}).weights, paper.weights) > 1e-3);
  }
}

namespace {

using two_numbers::Two;

struct Numbers {
  int period = 5;
  int overlap = 2;
  int updates = 15;
  int fragments = 2;  // 1: both numbers are one
};

/// The algorithm in double, end included: with the last mini-batch each fragment is sent, one that is under way
/// for a second time, with what has moved since the first.
Two outer_weights(const Numbers& of) {
  std::array<Two, 2> own{};
  std::array<Two, 2> since{};  // by replica
  Two shared{};
  Two momentum{};
  Two answer{};
  std::array<int, 2> due{};  // by number; 0: nothing is under way
  for (int n = 1; n <= of.updates; ++n) {
    for (int i = 0; i < 2; ++i) {
      own[static_cast<std::size_t>(i)] = two_numbers::stepped(i, own[static_cast<std::size_t>(i)]);
    }
    for (std::size_t p = 0; p < 2; ++p) {
      const int turn = of.fragments == 2 ? of.period * static_cast<int>(p) / 2 : 0;
      const bool takes_over = due[p] == n;
      const double theirs = answer[p];
      if (n == of.updates || (n > turn && (n - turn) % of.period == 0)) {
        double d = 0;
        for (std::size_t i = 0; i < 2; ++i) {
          d += (since[i][p] - own[i][p]) / 2;
          since[i][p] = own[i][p];
        }
        momentum[p] = 0.9 * momentum[p] + d;
        shared[p] -= 0.7 * (d + 0.9 * momentum[p]);
        answer[p] = shared[p];
        due[p] = n + of.overlap;
      }
      if (takes_over) {
        for (std::size_t i = 0; i < 2; ++i) {
          own[i][p] = 0.25 * own[i][p] + 0.75 * theirs;
          since[i][p] = theirs;
        }
      }
    }
  }
  return shared;
}

Outcome train(const Numbers& of, const Options& more, const HarnessOptions& options = {}) {
  return train(joined({concat("replicas.shards=", of.fragments),
                       concat("replicas.exchange.diloco.period=", of.period),
                       concat("replicas.exchange.diloco.mode.streaming.overlap=", of.overlap),
                       concat("stop.updates=", of.updates)},
                      more),
               options);
}

}  // namespace

TEST_CASE(
    "wherever a streamed run ends, it is the algorithm, and whatever the speeds the same bits",
    "[system][replicas]") {
  for (const auto& [period, overlap] :
       std::vector<std::pair<int, int>>{{2, 1}, {4, 2}, {4, 3}, {5, 2}, {7, 6}}) {
    for (int updates = 1; updates <= 13; ++updates) {
      for (const int fragments : {1, 2}) {
        const Numbers of{period, overlap, updates, fragments};
        INFO("H " << period << ", tau " << overlap << ", T " << updates << ", P " << fragments);
        const Outcome even = train(of, {});
        two_numbers::check_numbers(even, outer_weights(of));
        for (const Options& speeds : std::vector<Options>{
                 {"clock.workers.slowness=[1,3]"},
                 {"clock.workers.slowness=[1.2,1]"},
                 {"clock.workers.slowness=[1,1.1]", "clock.exchange.seconds=[1.7]"},
                 {"clock.workers.spread=0.6",
                  "clock.exchange.gamma.shape=2",
                  "clock.exchange.seconds=[0.6]"}}) {
          INFO(speeds.front());
          CHECK(same(train(of, speeds).weights, even.weights));
        }
      }
    }
  }
}

TEST_CASE("the end of a streamed run is the same on the real clock", "[system][replicas]") {
  for (const Numbers& of : {Numbers{4, 2, 5}, Numbers{4, 2, 7}, Numbers{4, 3, 13, 1}}) {
    INFO("H " << of.period << ", tau " << of.overlap << ", T " << of.updates);
    const Outcome modelled = train(of, {});
    for (const Options& more : std::vector<Options>{
             {}, {"clock.workers.hold_back=[1,40]"}, {"clock.workers.hold_back=[40,1]"}}) {
      CHECK(same(train(of, more, {.threads = true}).weights, modelled.weights));
    }
  }
}

}  // namespace streaming_diloco_test
