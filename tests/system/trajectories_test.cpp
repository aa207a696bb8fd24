// Exchanges by the papers' recursions: each is followed by a loop in double that knows nothing of Troupe, on two
// numbers or on one, to some roundings of float32.
//   - bmuf: W and the point sent, with classical and with Nesterov's block momentum
//   - diloco, mode synchronous; averaging; easgd, synchronous: also where the run ends within a period
//   - easgd, asynchronous: algorithm 1, at replicas of unequal speed, where each meeting is an event
#include "tests/system/two_numbers.hpp"

#include <algorithm>
#include <map>
#include <tuple>

namespace trajectories_test {

using namespace troupe;
using namespace troupe::test;
using two_numbers::Two;

namespace {

/// Two replicas that train by themselves from `sent`; `meet` tells what they go on from, with the last mini-batch
/// in any case. Their last meeting's weights are the run's.
template <class Meet>
void train_by_itself(int period, int updates, Meet meet) {
  std::array<Two, 2> own{};
  for (int n = 1; n <= updates; ++n) {
    std::array<Two, 2> before = own;
    for (int i = 0; i < 2; ++i) {
      own[static_cast<std::size_t>(i)] = two_numbers::stepped(i, own[static_cast<std::size_t>(i)]);
    }
    if (n % period == 0 || n == updates) {
      meet(before, own);
    }
  }
}

/// Both, number by number, go on from point(p, mean of theirs).
template <class Point>
void all_go_on_from(std::array<Two, 2>& own, Point point) {
  for (std::size_t p = 0; p < 2; ++p) {
    const double next = point(p, (own[0][p] + own[1][p]) / 2);
    own[0][p] = next;
    own[1][p] = next;
  }
}

const std::vector<std::pair<int, int>> kEnds{{1, 5}, {2, 7}, {4, 12}, {4, 13}, {5, 9}, {3, 2}};

/// The weights of an exchange with its period are the loop's, at any speeds in equal bits.
template <class Loop>
void check_exchange(const std::string& exchange, const Options& set, Loop loop) {
  for (const auto& [period, updates] : kEnds) {
    INFO("period " << period << ", " << updates << " updates");
    const Options all = joined(set,
                               {concat("replicas.exchange.", exchange, ".period=", period),
                                concat("stop.updates=", updates)});
    const Outcome even = two_numbers::train(all);
    two_numbers::check_numbers(even, loop(period, updates));
    const Outcome uneven = two_numbers::train(
        joined(all, {"clock.workers.slowness=[2.7,1]", "clock.exchange.seconds=[0.3]"}));
    CHECK(same(uneven.weights, even.weights));
  }
}

}  // namespace

TEST_CASE("averaging is the mean of the models", "[system][replicas]") {
  check_exchange("averaging", {}, [](int period, int updates) {
    Two w{};
    train_by_itself(period, updates, [&](const auto&, auto& own) {
      all_go_on_from(own, [&](std::size_t p, double mean) { return w[p] = mean; });
    });
    return w;
  });
}

TEST_CASE("bmuf is the paper's recursion, with both block momentums", "[system][replicas]") {
  for (const bool nesterov : {false, true}) {
    INFO("nesterov " << nesterov);
    const std::string bmuf = "replicas.exchange.bmuf.";
    check_exchange("bmuf",
                   {concat(bmuf, "nesterov=", nesterov ? "true" : "false"),
                    bmuf + "momentum=0.6",
                    bmuf + "rate=0.8"},
                   [&](int period, int updates) {
                     Two w{};
                     Two sent{};
                     Two delta{};
                     train_by_itself(period, updates, [&](const auto&, auto& own) {
                       all_go_on_from(own, [&](std::size_t p, double mean) {
                         delta[p] = 0.6 * delta[p] + 0.8 * (mean - sent[p]);
                         w[p] += delta[p];
                         sent[p] = nesterov ? w[p] + 0.6 * delta[p] : w[p];
                         return sent[p];
                       });
                     });
                     return w;
                   });
  }
}

TEST_CASE("diloco's outer Nesterov is the paper's, by number", "[system][replicas]") {
  const std::string diloco = "replicas.exchange.diloco.";
  check_exchange(
      "diloco", {diloco + "rate=0.6", diloco + "momentum=0.8"}, [](int period, int updates) {
        Two w{};
        Two momentum{};
        train_by_itself(period, updates, [&](const auto&, auto& own) {
          all_go_on_from(own, [&](std::size_t p, double mean) {
            const double d = w[p] - mean;
            momentum[p] = 0.8 * momentum[p] + d;
            return w[p] -= 0.6 * (d + 0.8 * momentum[p]);
          });
        });
        return w;
      });
}

TEST_CASE("easgd's synchronous meetings start from the same centre", "[system][replicas]") {
  for (const bool simultaneous : {true, false}) {
    const std::string easgd = "replicas.exchange.easgd.";
    check_exchange("easgd",
                   {easgd + "synchronous=true",
                    easgd + "beta=0.9",
                    concat(easgd, "order=", simultaneous ? "simultaneous" : "sequential")},
                   [&](int period, int updates) {
                     Two centre{};
                     train_by_itself(period, updates, [&](const auto& before, auto& own) {
                       const Two at = centre;
                       for (std::size_t i = 0; i < 2; ++i) {
                         for (std::size_t p = 0; p < 2; ++p) {
                           const double x = simultaneous ? before[i][p] : own[i][p];
                           const double d = 0.45 * (x - at[p]);
                           own[i][p] -= d;
                           centre[p] += d;
                         }
                       }
                     });
                     return centre;
                   });
  }
}

// -- asynchronous EASGD -----------------------------------------------------------------------------

namespace {

const std::string kOneNumber =
    "model { quadratic { layers: 1 } } data { none {} batch_size: 1 } optimizer { rule: sgd "
    "learning_rate: 0.3 }";

/// The centre after `updates`, by its first value: x^2 / 2, eta 0.3, a mini-batch takes a replica its slowness.
double centre(const std::vector<double>& slowness, int updates, const Options& more) {
  std::string list;
  for (const double s : slowness) {
    list += concat(list.empty() ? "" : ",", s);
  }
  const auto trained = [&](const std::string& rate) {
    const Outcome done = run(experiment(kOneNumber,
                                        joined({concat("replicas.count=", slowness.size()),
                                                "clock.forward.seconds=[1]",
                                                "clock.input_gradient.seconds=[0]",
                                                "clock.weight_gradient.seconds=[0]",
                                                concat("clock.workers.slowness=[", list, "]"),
                                                "optimizer.learning_rate=" + rate,
                                                concat("stop.updates=", updates)},
                                               more)));
    INFO(done.ending.cause);
    REQUIRE(done.ending.exit_code == 0);
    REQUIRE(done.weights.size() == 1);
    return static_cast<double>(done.weights.front());
  };
  static const double start = trained("1e-30");  // by the seed alone
  return trained("0.3") / start;
}

/// Zhang, Choromanska & LeCun 2015, algorithm 1, event by event: a replica reads and moves the centre at the start
/// of each mini-batch t with tau | t. The run is over when the replicas have told of `updates` mini-batches each,
/// in the mean, as they do before they meet the centre and after so many of their own.
double algorithm_1(const std::vector<double>& slowness, int period, int updates, double alpha) {
  struct Worker {
    double x = 1;
    int t = 0;
    int told = 0;
  };

  std::vector<Worker> workers(slowness.size());
  double c = 1;
  std::size_t told = 0;
  // By the time when a mini-batch begins.
  std::map<std::pair<double, std::size_t>, std::size_t> events;
  for (std::size_t i = 0; i < workers.size(); ++i) {
    events[{0, i}] = i;
  }
  while (true) {
    const auto [when, i] = *events.begin();
    events.erase(events.begin());
    Worker& w = workers[i];
    const double x = w.x;
    if (w.t % period == 0 || w.t == updates) {
      told += static_cast<std::size_t>(w.t - std::exchange(w.told, w.t));
      if (told >= static_cast<std::size_t>(updates) * workers.size()) {
        return c;
      }
    }
    if (w.t % period == 0) {
      const double d = alpha * (x - c);
      w.x -= d;
      c += d;
    }
    w.x -= 0.3 * x;
    ++w.t;
    events[{slowness[i] * w.t, i}] = i;
  }
}

}  // namespace

TEST_CASE("asynchronous easgd is algorithm 1, whose meetings come before the mini-batch",
          "[system][replicas]") {
  const std::string easgd = "replicas.exchange.easgd.";
  // By hand, for two replicas at 1 and 1.45 seconds a mini-batch, alpha 0.45.
  const std::vector<std::tuple<int, double, double>> figures{
      {2, 0.71616, 0.79075}, {3, 0.58673, 0.62433}, {4, 0.48982, 0.53114}, {6, 0.31212, 0.36443}};
  for (const auto& [updates, before, after] : figures) {
    INFO(updates << " updates");
    CHECK(std::abs(centre({1, 1.45}, updates, {easgd + "period=1"}) - before) < 6e-6);
    CHECK(std::abs(centre({1, 1.45}, updates, {easgd + "period=1", easgd + "moment=after"}) -
                   after) < 6e-6);
  }
  for (const std::vector<double>& slowness :
       std::vector<std::vector<double>>{{1}, {1, 1.45}, {2.3, 1}, {1, 1.17, 3.1}}) {
    for (const int period : {1, 2, 3}) {
      for (const int updates : {1, 4, 7, 12}) {
        INFO(slowness.size() << " replicas, tau " << period << ", " << updates << " updates");
        const double alpha = 0.8 / static_cast<double>(slowness.size());
        const double expected = algorithm_1(slowness, period, updates, alpha);
        const double made =
            centre(slowness, updates, {concat(easgd, "period=", period), easgd + "beta=0.8"});
        CHECK(std::abs(made - expected) < 5e-7);
      }
    }
  }
}

TEST_CASE(
    "one replica alone meets the centre before its mini-batch or after it, and it is the same",
    "[system][replicas]") {
  const std::string easgd = "replicas.exchange.easgd.";
  for (const int updates : {1, 2, 5, 11}) {
    INFO(updates << " updates");
    const Options one{easgd + "period=1", "optimizer.weight_decay=0.1"};
    const double before = centre({1}, updates, one);
    const double after = centre({1}, updates, joined(one, {easgd + "moment=after"}));
    CHECK(std::abs(before - after) < 5e-7);
  }
}

TEST_CASE("the moment is asynchronous easgd's alone, where the spring pulls from before the step",
          "[system][replicas]") {
  const std::string easgd = "replicas.exchange.easgd.";
  for (const Options& set :
       std::vector<Options>{{easgd + "synchronous=true"}, {easgd + "order=sequential"}}) {
    const Options all = joined(set, {easgd + "period=3", "stop.updates=8"});
    const Outcome first = two_numbers::train(all);
    CHECK(same(two_numbers::train(joined(all, {easgd + "moment=after"})).weights, first.weights));
  }
  const Options all{easgd + "period=3", "stop.updates=8", "clock.workers.slowness=[1,1.3]"};
  CHECK(distance(two_numbers::train(all).weights,
                 two_numbers::train(joined(all, {easgd + "moment=after"})).weights) > 1e-3);
}

}  // namespace trajectories_test
