// Laws of lag, in versions, and what servers tell of it.
//   - with everybody answered at once, applied lags and ages in flight are T (R - 1) to the unit
//   - softsync's mean is n (R - 1) / R
//   - of R pipelines of K stages chunk k's is R (d_k + 1) - 1
//   - every mini-batch that began was applied, dropped or under way
#include "runtime/schemes/exchange.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/harness.hpp"

#include <algorithm>
#include <cmath>
#include <map>

using namespace troupe;
using namespace troupe::test;

namespace {

using Options = std::vector<std::string>;

/// One stage a replica, whose times vary and which differ, so that no two push at one time.
const Options kUneven{"clock.forward.seconds=[1]",
                      "clock.forward.gamma.shape=4",
                      "clock.input_gradient.seconds=[0]",
                      "clock.weight_gradient.seconds=[0]",
                      "clock.workers.spread=0.4"};

Outcome outcome(const Options& set, const HarnessOptions& options = {}) {
  Options all = kUneven;
  all.insert(all.end(), set.begin(), set.end());
  Outcome done = run(experiment(tiny_task("6"), all), options);
  INFO(done.ending.cause);
  REQUIRE(done.ending.exit_code == 0);
  return done;
}

const ServerRecord& only_server(const Outcome& done) {
  REQUIRE(done.servers.size() == 1);
  return done.servers.front();
}

std::int64_t begun(const Outcome& done) {
  return std::count_if(done.busy.begin(), done.busy.end(), [](const BusyRecord& busy) {
    return std::string_view(busy.what) == "forward";
  });
}

}  // namespace

TEST_CASE("lags and ages in flight are T (R - 1), whatever the speeds", "[system][replicas]") {
  for (const int R : {2, 3, 8}) {
    for (const char* rule : {"asgd", "nag", "dana_zero", "dana_slim", "gap_aware"}) {
      INFO(rule << " R " << R);
      const Outcome done = outcome({concat("replicas.count=", R),
                                    concat("replicas.rule=", rule),
                                    "optimizer.learning_rate=0.005",
                                    "stop.updates=150"});
      check_accounts(done);
      const ServerRecord& server = only_server(done);
      CHECK(server.version == 150);
      CHECK(server.applied == 150);
      CHECK(server.dropped == 0);
      CHECK(server.in_flight == R);
      CHECK(server.lag + server.in_flight_age == 150 * (R - 1));
      // The last one applied asks for weights that will not come.
      CHECK(begun(done) + 1 == server.applied + server.in_flight);
    }
  }
}

TEST_CASE("softsync's lag is n (R - 1) / R in the mean", "[system][replicas]") {
  constexpr int R = 12;
  for (const int n : {1, 2, 3, 4, 6, 12}) {
    INFO("n " << n);
    const Outcome done = outcome({concat("replicas.count=", R),
                                  concat("replicas.rule.softsync.n=", n),
                                  "optimizer.learning_rate=0.005",
                                  "stop.updates=200"});
    check_accounts(done);
    const ServerRecord& server = only_server(done);
    CHECK(server.version == 200);
    CHECK(server.applied == 200 * R / n);
    CHECK(server.lag + server.in_flight_age == 200 * (R - 1));
    const double mean = static_cast<double>(server.lag) / static_cast<double>(server.applied);
    // What is in flight at the end is missing in the mean.
    const double missing =
        static_cast<double>(server.in_flight_age) / static_cast<double>(server.applied);
    CHECK(mean == Approx(n * (R - 1.0) / R - missing));
    CHECK(mean == Approx(n * (R - 1.0) / R).epsilon(0.1));
  }
}

TEST_CASE("the lag of chunk k of R pipelines is R (d + 1) - 1", "[system][replicas]") {
  for (const int R : {1, 2, 3}) {
    for (const int K : {2, 3}) {
      const Outcome done = run(experiment(tiny_task("8,8"),
                                          {concat("replicas.count=", R),
                                           // One replica has a server too where it is asked for.
                                           "replicas.rule=heavy_ball",
                                           concat("pipeline.stages=", K),
                                           "pipeline.schedule=async_one_f_one_b",
                                           "pipeline.weights=stash",
                                           "optimizer.learning_rate=0.002",
                                           "stop.updates=120",
                                           "clock.forward.seconds=[1]",
                                           "clock.input_gradient.seconds=[1]",
                                           "clock.weight_gradient.seconds=[1]"}));
      REQUIRE(done.ending.exit_code == 0);
      check_accounts(done);
      std::map<std::int32_t, std::pair<std::int64_t, std::int64_t>> lags;  // by chunk: sum, count
      for (const AppliedRecord& applied : done.applied) {
        if (applied.applied_to >= 60 && applied.applied_to < 120) {  // long after the start
          auto& [sum, count] = lags[applied.stamp.chunk];
          sum += applied.applied_to - applied.reads.front().forward_version;
          ++count;
        }
      }
      for (int k = 0; k < K; ++k) {
        INFO("R " << R << " K " << K << " chunk " << k);
        const int d = K - 1 - k;
        CHECK(lags[k].second == 60);
        CHECK(lags[k].first == 60 * (R * (d + 1) - 1));
      }
    }
  }
}

TEST_CASE("an eager replica's gradient lacks the clock that the others have just finished",
          "[system][replicas]") {
  // What they push while it works on mini-batch c is worked in with its step c, and so read by c + 1.
  for (const std::int64_t R : {2, 3, 8}) {
    const Outcome done = run(experiment(tiny_task("8"),
                                        {concat("replicas.count=", R),
                                         "replicas.rule=essp",
                                         "optimizer.learning_rate=0.002",
                                         concat("stop.updates=", 20 * R),
                                         "clock.forward.seconds=[1]",
                                         "clock.input_gradient.seconds=[1]",
                                         "clock.weight_gradient.seconds=[1]"}));
    REQUIRE(done.ending.exit_code == 0);
    std::int64_t sum = 0;
    std::int64_t count = 0;
    for (const AppliedRecord& applied : done.applied) {
      if (applied.applied_to >= 2 * R) {  // the first two clocks read what all began with
        const std::int64_t lag = applied.applied_to - applied.reads.front().forward_version;
        CHECK(lag >= R);
        CHECK(lag < 2 * R);
        sum += lag;
        ++count;
      }
    }
    REQUIRE(count == 18 * R);
    CHECK(2 * sum == count * (3 * R - 1));
  }
}

TEST_CASE("a prediction takes its horizon off the gap", "[system][replicas]") {
  // At so small a rate the gradient stays, and so does the velocity once it has settled: each update
  // moves the weights by as much, and SpecTrain, d of the lag.
  constexpr int kStages = 4;
  constexpr int R = 2;
  const auto gaps = [&](const char* weights) {
    const Outcome done = run(experiment(
        "model { quadratic { layers: 4 } } data { none {} batch_size: 1 } optimizer { rule: "
        "momentum "
        "learning_rate: 1e-5 momentum: 0.9 } record { evaluate: false order: false gap_every: 1 }",
        {concat("replicas.count=", R),
         concat("pipeline.stages=", kStages),
         "pipeline.schedule=async_one_f_one_b",
         concat("pipeline.weights=", weights),
         "stop.updates=200",
         "clock.forward.seconds=[1]",
         "clock.input_gradient.seconds=[1]",
         "clock.weight_gradient.seconds=[1]"}));
    REQUIRE(done.ending.exit_code == 0);
    std::map<std::int32_t, double> last;  // by chunk
    for (const AppliedRecord& applied : done.applied) {
      if (applied.applied_to < 200) {
        last[applied.stamp.chunk] = applied.gap;
      }
    }
    return last;
  };
  std::map<std::int32_t, double> stash = gaps("stash");
  std::map<std::int32_t, double> spectrain = gaps("spectrain");
  for (int k = 0; k < kStages; ++k) {
    INFO("chunk " << k);
    const double d = kStages - 1 - k;
    const double lag = R * (d + 1) - 1;
    REQUIRE(stash[k] > 0);
    CHECK(spectrain[k] / stash[k] == Approx((lag - d) / lag).epsilon(0.02));
  }
}

TEST_CASE("every push is applied, dropped or under way", "[system][replicas]") {
  for (const char* bound : {"2", "4", "7"}) {
    INFO("ringmaster " << bound);
    const Outcome done = outcome({"replicas.count=6",
                                  concat("replicas.rule.ringmaster.bound=", bound),
                                  "clock.update.seconds=[0.05]",
                                  "stop.updates=100"});
    check_accounts(done);
    const ServerRecord& server = only_server(done);
    CHECK(server.dropped > 0);
    for (const AppliedRecord& applied : done.applied) {
      CHECK(applied.applied_to - applied.reads.front().forward_version < std::stoi(bound));
    }
    // The last one applied is answered, as another slice might need more; it has begun or not.
    const std::int64_t known = server.applied + server.dropped + server.in_flight;
    CHECK(begun(done) <= known);
    CHECK(begun(done) >= known - 1);
  }
}

TEST_CASE("ringmaster drops nothing of equal pipelines", "[system][replicas]") {
  const Outcome done = run(experiment(tiny_task("8,8,8"),
                                      {"replicas.count=2",
                                       "replicas.rule=ringmaster",
                                       "pipeline.stages=4",
                                       "pipeline.schedule=async_one_f_one_b",
                                       "pipeline.weights=stash",
                                       "optimizer.learning_rate=0.002",
                                       "stop.updates=100",
                                       "clock.forward.seconds=[1]",
                                       "clock.input_gradient.seconds=[1]",
                                       "clock.weight_gradient.seconds=[1]"}));
  REQUIRE(done.ending.exit_code == 0);
  check_accounts(done);
  REQUIRE(done.servers.size() == 4);
  for (const ServerRecord& server : done.servers) {
    CHECK(server.version == 100);
    CHECK(server.dropped == 0);  // though the first chunk's lag is 2 x 4 - 1
  }
}

TEST_CASE("every rule and every exchange keeps its accounts", "[system][replicas]") {
  std::vector<Options> all;
  for (const RuleScheme& scheme : rules().all()) {
    all.push_back({"replicas.rule=" + scheme.info.name});
  }
  for (const char* exchange : {"synchronous",
                               "synchronous.backup=1",
                               "averaging.period=4",
                               "averaging.state=averaged",
                               "bmuf.period=4",
                               "easgd.period=4",
                               "easgd.synchronous=true",
                               "diloco.period=4",
                               "diloco.mode=asynchronous",
                               "diloco.mode=streaming",
                               "diloco.mode=decoupled",
                               "wsp"}) {
    const std::string text = exchange;
    all.push_back({"replicas.exchange" + (text.find('=') < text.size() ? "." + text : "=" + text)});
  }
  for (const Options& set : all) {
    INFO(set.front());
    Options with = set;
    with.insert(with.end(),
                {"replicas.count=4",
                 "replicas.shards=2",
                 "clock.update.seconds=[0.03]",
                 "clock.exchange.seconds=[0.2]",
                 "clock.exchange.gamma.shape=2",
                 "optimizer.learning_rate=0.005",
                 "stop.updates=60"});
    const Outcome done = outcome(with);
    check_accounts(done);
    CHECK(done.servers.size() == 2);
    for (const float w : done.weights) {
      REQUIRE(std::isfinite(w));
    }
  }
}
