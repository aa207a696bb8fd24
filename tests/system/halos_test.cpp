// HALoS (replicas.exchange.halos): servers of groups under a global one.
//   - its weights are those of an event loop in double, to the figure and to the second
//   - with one group, an exchange after each push and a global server that takes over what comes, it is
//     asynchronous DiLoCo
//   - nobody waits for the slow link; each push of a replica is counted in one message to the global server
//   - a replica that dies costs its own work; what a group has left goes up
#include "tests/support/catch.hpp"
#include "tests/support/harness.hpp"

#include <algorithm>
#include <map>

namespace halos_test {

using namespace troupe;
using namespace troupe::test;

namespace {

const std::string kHalos = "replicas.exchange.halos.";

/// One number w of loss w^2 / 2: plain SGD multiplies it by 0.9.
const std::string kOneNumber =
    "model { quadratic { layers: 1 } } data { none {} batch_size: 1 } optimizer { rule: sgd "
    "learning_rate: 0.1 } stop { updates: 40 } record { evaluate: false order: false } clock { "
    "forward { seconds: [1] } input_gradient { seconds: [0] } weight_gradient { seconds: [0] } }";

/// Replicas whose speeds differ and vary.
const Options kUneven{"clock.forward.seconds=[1]",
                      "clock.forward.gamma.shape=4",
                      "clock.workers.slowness=[1,1.3,2,1.7]",
                      "clock.input_gradient.seconds=[0]",
                      "clock.weight_gradient.seconds=[0]"};

BoxedExperiment task(const Options& set) {
  return experiment(tiny_task("16,14"),
                    joined(kUneven, joined({"replicas.count=4", "stop.updates=80"}, set)));
}

Outcome outcome(const Options& set, const HarnessOptions& options = {}) {
  Outcome done = run(task(set), options);
  INFO(done.ending.cause);
  REQUIRE(done.ending.exit_code == 0);
  return done;
}

/// What the global server has made of a group's movement.
struct Exchange {
  std::int32_t group = 0;
  std::int64_t mini_batches = 0;
  double weight = 0;  // by the first value
};

/// The first exchanges of a run on one number.
std::vector<Exchange> exchanges(const Options& set) {
  std::vector<Exchange> all;
  std::map<std::int32_t, std::int64_t> under_way;
  const auto watch = [&](ActorId, const Message& message) {
    if (const auto* upload = get_if<Upload>(&message); upload && upload->far) {
      under_way[upload->stamp.replica] = upload->contribution.mini_batches;
    } else if (const auto* answer = get_if<Answer>(&message); answer && answer->far) {
      all.push_back({answer->replica,
                     under_way[answer->replica],
                     static_cast<double>(answer->weights.front().values.span<float>()[0])});
    }
    return false;
  };
  const Outcome done = run(experiment(kOneNumber,
                                      joined({"replicas.count=4",
                                              "clock.workers.slowness=[1,1.7,2.3,3.1]",
                                              "clock.exchange.seconds=[0.05]",
                                              "clock.between_servers.seconds=[0.4,1.1]",
                                              kHalos + "groups=2",
                                              "stop.updates=60"},
                                             set)),
                           {.lose = watch});
  INFO(done.ending.cause);
  REQUIRE(done.ending.exit_code == 0);
  return all;
}

void check_exchanges(const std::vector<Exchange>& seen, const std::vector<Exchange>& expected) {
  REQUIRE(seen.size() >= expected.size());
  const double start = run(experiment(kOneNumber, {"optimizer.learning_rate=1e-30"})).weights.at(0);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    INFO("exchange " << i);
    CHECK(seen[i].group == expected[i].group);
    CHECK(seen[i].mini_batches == expected[i].mini_batches);
    CHECK(seen[i].weight == Approx(start * expected[i].weight).margin(2e-6 * start));
  }
}

}  // namespace

// The figures are of an event loop in double that knows nothing of Troupe: a heap of (time, what happens), the three
// lines of the head of runtime/schemes/rules/halos.cpp, and the times above. They are in the order of the global server's steps.
TEST_CASE("halos' global weights are those of an event loop in double", "[system][halos]") {
  SECTION("momentum now and then, a part of the weights merged") {
    check_exchanges(exchanges({kHalos + "period=3",
                               kHalos + "accumulate=3",
                               kHalos + "merge=0.25",
                               kHalos + "local.rate=0.3",
                               kHalos + "local.momentum=0.9",
                               kHalos + "local.delay=2",
                               kHalos + "global.rate=0.5",
                               kHalos + "global.momentum=0.5",
                               kHalos + "global.delay=2"}),
                    {{0, 9, 0.808184845},
                     {0, 9, 0.204007627686},
                     {1, 9, 0.0121924726864},
                     {0, 9, -0.454435391925},
                     {0, 9, -0.613336174059},
                     {1, 9, -1.32851090986},
                     {0, 9, -1.28557517915},
                     {0, 12, -1.28291857405},
                     {1, 12, -1.44248852626},
                     {0, 9, -1.20285744999},
                     {0, 9, -1.0452186236},
                     {0, 9, -0.586490119396}});
  }
  SECTION("an exchange after each push that may go, which replaces the group's weights") {
    check_exchanges(exchanges({kHalos + "period=2",
                               kHalos + "accumulate=1",
                               kHalos + "merge=1",
                               kHalos + "local.rate=0.2",
                               kHalos + "local.momentum=0.5",
                               kHalos + "local.delay=1",
                               kHalos + "global.rate=0.4",
                               kHalos + "global.momentum=0.8",
                               kHalos + "global.delay=3"}),
                    {{0, 2, 0.9772},
                     {0, 2, 0.9506},
                     {1, 2, 0.87004},
                     {0, 4, 0.8443930628},
                     {0, 4, 0.81751112012},
                     {1, 4, 0.680319296217},
                     {0, 2, 0.654953214714},
                     {0, 4, 0.632953770581},
                     {1, 2, 0.45951653095},
                     {0, 2, 0.436595090313},
                     {0, 4, 0.419431930997},
                     {0, 4, 0.245536308964}});
  }
}

TEST_CASE("halos of one group whose global server only takes over is asynchronous DiLoCo",
          "[system][halos]") {
  const std::string diloco = "replicas.exchange.diloco.";

  struct Pair {
    const char* outer;
    const char* momentum;
    const char* delay;
  };

  // Without momentum there is nothing to delay: 16 is the default, anything else is refused.
  const Pair pair = GENERATE(
      Pair{"sgd", "0", "16"}, Pair{"nesterov", "0.9", "1"}, Pair{"delayed_nesterov", "0.9", "4"});
  INFO(pair.outer);
  const Outcome flat = outcome({diloco + "period=5",
                                diloco + "rate=0.8",
                                diloco + "momentum=0.9",
                                diloco + "mode.asynchronous.dynamic_steps=false",
                                concat(diloco, "mode.asynchronous.outer=", pair.outer)});
  const Options identity{kHalos + "period=5",
                         kHalos + "groups=1",
                         kHalos + "accumulate=1",
                         kHalos + "merge=1",
                         kHalos + "local.rate=0.2",  // of each movement; DiLoCo's is of a mean of 4
                         concat(kHalos, "local.momentum=", pair.momentum),
                         concat(kHalos, "local.delay=", pair.delay),
                         kHalos + "global.rate=1",
                         kHalos + "global.momentum=0"};
  const Outcome two = outcome(identity);
  CHECK(two.seconds == Approx(flat.seconds).epsilon(0.01));
  CHECK(relative_distance(two.weights, flat.weights) < 2e-5);
  // The control: each level is there.
  CHECK(relative_distance(outcome(joined(identity, {kHalos + "global.rate=0.5"})).weights,
                          flat.weights) > 1e-3);
  CHECK(relative_distance(outcome(joined(identity, {kHalos + "local.rate=0.1"})).weights,
                          flat.weights) > 1e-3);
}

TEST_CASE("nobody waits for the link between halos' servers, and every push goes up once",
          "[system][halos]") {
  const Options pipeline = GENERATE(Options{},
                                    Options{"pipeline.stages=2",
                                            "pipeline.schedule=async_one_f_one_b",
                                            "pipeline.weights=stash",
                                            "replicas.shards=2"});
  // By chunk, slice and group.
  using Key = std::tuple<std::int32_t, std::size_t, std::int32_t>;
  std::map<Key, std::int64_t> pushed;
  std::map<Key, std::int64_t> up;
  std::map<Key, int> out;
  int most = 0;
  const auto watch = [&](ActorId, const Message& message) {
    if (const auto* upload = get_if<Upload>(&message)) {
      const std::int32_t who = upload->stamp.replica;
      if (upload->far) {
        const Key key{upload->stamp.chunk, upload->slice, who};
        up[key] += upload->contribution.mini_batches;
        most = std::max(most, ++out[key]);
        CHECK(up[key] == upload->stamp.batch + 1);
        CHECK(up[key] <= pushed[key]);
      } else {
        pushed[{upload->stamp.chunk, upload->slice, who / 2}] += upload->contribution.mini_batches;
      }
    } else if (const auto* answer = get_if<Answer>(&message); answer && answer->far) {
      --out[{answer->chunk, answer->slice, answer->replica}];
    }
    return false;
  };
  const Options set =
      joined(pipeline,
             {kHalos + "period=2", kHalos + "accumulate=4", "clock.between_servers.seconds=[9]"});
  const Outcome done = outcome(set, {.lose = watch});
  CHECK(most == 1);
  REQUIRE(up.size() == (pipeline.empty() ? 2 : 8));
  for (const auto& [key, mini_batches] : up) {
    CHECK(mini_batches > 0);
  }
  check_accounts(done);
  // A replica does in a time what it does where the link takes none.
  const auto batches = [](const Outcome& of, double seconds) {
    std::map<std::int32_t, int> begun;
    for (const auto& [stamp, loss] : of.losses) {
      ++begun[stamp.replica];
    }
    return static_cast<double>(begun[0]) / seconds;
  };
  const Outcome near = outcome(joined(pipeline, {kHalos + "period=2", kHalos + "accumulate=4"}));
  CHECK(batches(done, done.seconds) == Approx(batches(near, near.seconds)).epsilon(0.1));
}

TEST_CASE("halos runs on the real clock, and its servers give their accounts", "[system][halos]") {
  const Outcome done = outcome({kHalos + "period=2", kHalos + "accumulate=2"}, {.threads = true});
  check_accounts(done);
  CHECK(done.ending.step >= 80);
}

TEST_CASE("a replica of halos that dies costs its own work, and a group's last what is not sent",
          "[system][halos]") {
  const auto losing = [](const std::vector<std::int32_t>& victims) {
    std::int64_t left = 0;
    const auto watch = [&](ActorId, const Message& message) {
      const auto* upload = get_if<Upload>(&message);
      if (upload && upload->far && upload->stamp.replica == 0) {
        left = upload->contribution.mini_batches;
      }
      return false;
    };
    const Outcome done = outcome(
        {kHalos + "period=2", kHalos + "accumulate=6", "clock.between_servers.seconds=[0.1]"},
        {.lose = watch, .recast = [&](Cast& cast) {
           for (const std::int32_t r : victims) {
             std::unique_ptr<Machine>& stage = member(cast, concat("stage-", r, ".0")).machine;
             stage = failing_at(std::move(stage), 20 + r);
           }
         }});
    CHECK(done.lost.size() == victims.size());
    CHECK(done.ending.step >= 80);
    check_accounts(done);
    std::map<std::int32_t, std::int64_t> last;
    for (const auto& [stamp, loss] : done.losses) {
      last[stamp.replica] = std::max(last[stamp.replica], stamp.batch);
    }
    for (std::int32_t r = 0; r < 4; ++r) {
      INFO("replica " << r);
      const bool died = std::count(victims.begin(), victims.end(), r) > 0;
      CHECK(died == (last[r] < 22));
    }
    return left;
  };
  losing({1});
  losing({2, 1});
  CHECK(losing({0, 1}) < 12);  // fewer than the six pushes of two that go up together
}

TEST_CASE("a group whose host dies costs what is the group's", "[system][halos]") {
  // The host has two replicas, and as these are all of their group, its server.
  const Outcome done = outcome({kHalos + "period=2",
                                kHalos + "accumulate=3",
                                "clock.between_servers.seconds=[0.5]",
                                "clock.faults.hosts=2",
                                "clock.faults.crashes.at=[30]",
                                "clock.faults.crashes.host=[1]"});
  CHECK(done.broken.empty());
  CHECK(done.lost.size() == 2);
  CHECK(done.ending.step >= 80);
  CHECK(std::all_of(done.lost.begin(), done.lost.end(), [](const LossOfReplica& lost) {
    return lost.replica >= 2;
  }));
  // Half of the mini-batches of the rest of the run take twice the time.
  const Outcome whole = outcome({kHalos + "period=2", kHalos + "accumulate=3"});
  CHECK(done.seconds > 1.3 * whole.seconds);
}

}  // namespace halos_test
