// Replicas: schemes against one another and against plain SGD, where they are the same algorithm.
//   - with one replica each is SGD, with momentum or its look-ahead
//   - what waits for all is one replica with a batch as large, whatever the way of averaging
//   - delayed is SGD with a delay; DANA-Slim is DANA-Zero; corrections of strength 0 are none
//   - what nobody chooses by arrival gives equal bits on both clocks; slices and evaluations change
//     nothing
#include "kernels/combine.hpp"
#include "runtime/schemes/exchanges/exchange.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/harness.hpp"

#include <algorithm>
#include <cmath>
#include <map>

namespace replicas_test {

using namespace troupe;
using namespace troupe::test;

namespace {

/// Replicas whose speeds differ and vary.
const Options kUneven{"clock.forward.seconds=[1]",
                      "clock.forward.gamma.shape=4",
                      "clock.input_gradient.seconds=[0.5]",
                      "clock.weight_gradient.seconds=[0.5]"};

/// The tiny task, one stage a replica, uneven speeds.
BoxedExperiment task(const Options& set) {
  return experiment(tiny_task("16,14"), joined(kUneven, set));
}

Outcome outcome(const Options& set, const HarnessOptions& options = {}) {
  Outcome done = run(task(set), options);
  INFO(done.ending.cause);
  REQUIRE(done.ending.exit_code == 0);
  return done;
}

std::vector<float> weights(const Options& set) {
  return outcome(set).weights;
}

/// One number w of loss w^2 / 2: plain SGD multiplies it by 1 - eta.
const std::string kOneNumber =
    "model { quadratic { layers: 1 } } data { none {} batch_size: 1 } optimizer { rule: sgd "
    "learning_rate: 0.1 } stop { updates: 40 } record { evaluate: false order: false } clock { "
    "forward { seconds: [1] } input_gradient { seconds: [0] } weight_gradient { seconds: [0] } }";

/// The largest difference between losses of the same micro-batch of the same replica: of functions of
/// the weights that were read alone.
double loss_distance(const Outcome& a, const Outcome& b) {
  REQUIRE(!a.losses.empty());
  double largest = 0;
  int compared = 0;
  for (const auto& [stamp, loss] : a.losses) {
    if (const auto other = b.losses.find(stamp); other != b.losses.end()) {
      largest = std::max(largest, std::abs(loss - other->second));
      ++compared;
    }
  }
  REQUIRE(compared + 8 > static_cast<int>(a.losses.size()));  // but for those under way at the end
  return largest;
}

/// Equal in exact arithmetic: a rounding of 6e-8 a step, 40 steps, momentum's factor of 10.
constexpr double kRounding = 2.4e-5;

}  // namespace

TEST_CASE("easgd's centre on one number is the paper's, and the sequential variant's",
          "[system][replicas]") {
  const auto centre = [](int updates, const char* order) {
    const std::vector<float> w =
        run(experiment(kOneNumber,
                       {"replicas.count=2",
                        "optimizer.learning_rate=0.3",
                        "replicas.exchange.easgd.period=1",
                        "replicas.exchange.easgd.synchronous=true",
                        std::string("replicas.exchange.easgd.order=") + order,
                        "stop.updates=" + std::to_string(updates)}))
            .weights;
    REQUIRE(w.size() == 1);
    return static_cast<double>(w.front());
  };
  const double start =
      centre(1, "simultaneous");  // nobody has left the centre before the first step
  const std::vector<double> paper{1, 0.73, 0.6355, 0.499825};
  for (int n = 1; n <= 4; ++n) {
    CHECK(centre(n, "simultaneous") == Approx(start * paper[static_cast<std::size_t>(n - 1)]));
  }
  CHECK(centre(1, "sequential") == Approx(0.73 * start));
  CHECK(centre(2, "sequential") == Approx(0.59905 * start));
}

TEST_CASE(
    "streaming counts a fragment's movement once, where the run ends while it is under way, too",
    "[system][replicas]") {
  // One replica, whose outer step is what it has moved, and who keeps its own fragment: as without servers.
  for (const int updates : {12, 13, 14, 15}) {
    const Options end{"stop.updates=" + std::to_string(updates)};
    const std::vector<float> streamed =
        weights(joined(end,
                       {"replicas.exchange.diloco.period=4",
                        "replicas.exchange.diloco.rate=1",
                        "replicas.exchange.diloco.momentum=0",
                        "replicas.exchange.diloco.mode.streaming.overlap=2",
                        "replicas.exchange.diloco.mode.streaming.mix=1",
                        "replicas.shards=2"}));
    INFO(updates << " updates");
    CHECK(distance(streamed, weights(end)) < kRounding);
  }
}

TEST_CASE("a step of one's own that makes no predictions ends a run that waits for them",
          "[system][replicas]") {
  class Sgd final : public Step {
    Updated apply(Stream& stream, Update update) override {
      Updated out;
      out.next = stream.allocate(update.base.shape());
      combine(stream,
              {{1, update.base}, {-update.rate, update.contributions.front().values.front()}},
              out.next);
      return out;
    }
  };

  REQUIRE(register_rule(
      {.info = {.name = "predicts_nothing", .summary = ""}, .step = [](const RuleContext&) {
         return std::make_unique<Sgd>();
       }}));
  const Options set{"replicas.count=2",
                    "replicas.rule.custom.name=predicts_nothing",
                    "pipeline.stages=2",
                    "pipeline.schedule=async_one_f_one_b"};
  CHECK(run(task(joined(set, {"pipeline.weights=stash"}))).ending.exit_code == 0);
  const Outcome done = run(task(joined(set, {"pipeline.weights=spectrain"})));
  CHECK(done.ending.exit_code != 0);
  CHECK_THAT(done.ending.cause, says("made 0 predictions of the 1"));
}

TEST_CASE("dana with gap_aware damps nothing where one replica is alone", "[system][replicas]") {
  for (const char* rate : {"server", "sender"}) {
    const Options dana{std::string("replicas.rule.dana_zero.rate=") + rate};
    for (const char* per : {"parameter", "layer"}) {
      CHECK(distance(weights(joined(dana, {std::string("replicas.scale.gap_aware.per=") + per})),
                     weights(dana)) < kRounding);
    }
  }
}

TEST_CASE("one replica is SGD, bit for bit, by every rule that lateness alone sets going",
          "[system][replicas]") {
  const std::vector<float> plain = weights({});
  CHECK(same(plain, delayed_sgd(task({}), 0)));
  for (const char* rule : {"softsync",
                           "staleness_aware",
                           "gap_aware",
                           "dc_asgd",
                           "heavy_ball",
                           "lwp",
                           "ringmaster",
                           "delayed"}) {
    INFO(rule);
    CHECK(same(weights({concat("replicas.rule=", rule)}), plain));
  }
  for (const char* exchange : {"synchronous", "averaging"}) {
    INFO(exchange);
    CHECK(same(weights({concat("replicas.exchange=", exchange)}), plain));
  }
  CHECK(same(weights({"replicas.rule=adagrad", "optimizer.learning_rate=0.02"}),
             weights({"optimizer.rule=adagrad", "optimizer.learning_rate=0.02"})));
}

TEST_CASE("one replica is SGD up to rounding where the arithmetic takes another way",
          "[system][replicas]") {
  const std::vector<float> plain = weights({});
  for (const Options& set : std::vector<Options>{{"replicas.rule=multi"},
                                                 {"replicas.rule=ormo"},
                                                 {"replicas.rule=ssp"},
                                                 {"replicas.rule=essp"},
                                                 {"replicas.exchange=wsp"},
                                                 {"replicas.exchange.bmuf.reset=false"},
                                                 {"replicas.exchange.diloco.rate=1",
                                                  "replicas.exchange.diloco.momentum=0",
                                                  "replicas.exchange.diloco.period=8"}}) {
    INFO(set.front());
    CHECK(distance(weights(set), plain) < kRounding);
  }
}

TEST_CASE("one replica with a look-ahead is Nesterov's momentum", "[system][replicas]") {
  const Outcome nesterov = outcome({"optimizer.rule=nesterov"});
  for (const char* rule : {"nag", "dana_zero", "dana_slim", "smega2"}) {
    INFO(rule);
    CHECK(loss_distance(outcome({concat("replicas.rule=", rule)}), nesterov) < kRounding);
  }
  CHECK(loss_distance(outcome({}), nesterov) > 1e-3);
  // DANA-Slim's weights are the look-ahead point, and so are those of Nesterov's one-point form.
  CHECK(distance(weights({"replicas.rule=dana_slim"}), nesterov.weights) < kRounding);
}

TEST_CASE("DANA-Slim is DANA-Zero at the senders' rates, across a fall of the rate",
          "[system][replicas]") {
  const Options both{"replicas.count=4",
                     "stop.updates=120",
                     "optimizer.schedule.step.every=50",
                     "optimizer.schedule.step.factor=0.1"};
  const Outcome slim = outcome(joined(both, {"replicas.rule=dana_slim"}));
  const Outcome sender = outcome(joined(both, {"replicas.rule.dana_zero.rate=sender"}));
  CHECK(loss_distance(slim, sender) < 1e-5);
  // The paper's form goes another way once the rate has fallen.
  CHECK(loss_distance(slim, outcome(joined(both, {"replicas.rule.dana_zero.rate=server"}))) > 1e-4);
}

TEST_CASE("by default the rate is one over the staleness that nobody attends to",
          "[system][replicas]") {
  for (const auto& [rule, rate] : std::map<std::string, std::string>{{"asgd", "0.0125"},
                                                                     {"nag", "0.0125"},
                                                                     {"softsync.n=2", "0.025"},
                                                                     {"essp", "0.00625"},
                                                                     {"lwp", "0.0125"},
                                                                     {"staleness_aware", "0.05"}}) {
    INFO(rule);
    const std::string choice =
        (rule.find('=') == rule.npos ? "replicas.rule=" : "replicas.rule.") + rule;
    const Options four{"replicas.count=4", choice};
    CHECK(same(weights(joined(four, {"replicas.rate_factor=0"})),
               weights(joined(four, {"optimizer.learning_rate=" + rate}))));
  }
}

TEST_CASE("replicas that all wait are one replica with a batch as large", "[system][replicas]") {
  for (const char* rule : {"sgd", "momentum", "adamw"}) {
    INFO(rule);
    const Options optimizer{concat("optimizer.rule=", rule), "optimizer.learning_rate=0.01"};
    const std::vector<float> one = weights(joined(optimizer, {"data.batch_size=64"}));
    const std::vector<float> synchronous =
        weights(joined(optimizer, {"replicas.count=4", "replicas.exchange=synchronous"}));
    // Adam divides by the root of the second moment: where that is small, rounding grows by its
    // inverse.
    CHECK(distance(synchronous, one) < (optimizer.front().ends_with("w") ? 1e-3 : kRounding));
    CHECK(same(weights(joined(optimizer, {"replicas.count=4", "replicas.rule.softsync.wait=true"})),
               synchronous));
  }
}

TEST_CASE("averaging after every mini-batch is the synchronous mean gradient",
          "[system][replicas]") {
  const Options sgd{"replicas.count=4", "optimizer.rule=sgd"};
  const Options momentum{"replicas.count=4", "optimizer.learning_rate=0.02"};
  const auto with = [](const Options& set, const Options& more) {
    return weights(joined(set, more));
  };
  const Options synchronous{"replicas.exchange=synchronous"};
  CHECK(distance(with(sgd, {"replicas.exchange.averaging.period=1"}), with(sgd, synchronous)) <
        kRounding);
  // Momentum is linear: equal starting points and equal drift keep its mean right, averaged or not;
  // zeroed it is never used.
  const std::vector<float> reference = with(momentum, synchronous);
  const auto averaging = [&](const char* state) {
    return with(momentum,
                {"replicas.exchange.averaging.period=1",
                 concat("replicas.exchange.averaging.state=", state)});
  };
  CHECK(distance(averaging("averaged"), reference) < kRounding);
  CHECK(distance(averaging("kept"), reference) < kRounding);
  CHECK(distance(averaging("reset"), reference) > 1e-3);
}

TEST_CASE("block momentum of 0 and an outer step of the whole change are averaging",
          "[system][replicas]") {
  for (const char* period : {"1", "7"}) {  // 7 does not divide 40: the last block is shorter
    INFO(period);
    const auto with = [&](const char* exchange, const Options& more) {
      Options set{"replicas.count=3", concat("replicas.exchange.", exchange, ".period=", period)};
      return weights(joined(std::move(set), more));
    };
    const std::vector<float> averaging = with("averaging", {});
    CHECK(
        distance(with("bmuf",
                      {"replicas.exchange.bmuf.momentum=0", "replicas.exchange.bmuf.reset=false"}),
                 averaging) < kRounding);
    CHECK(distance(with("diloco",
                        {"replicas.exchange.diloco.rate=1", "replicas.exchange.diloco.momentum=0"}),
                   averaging) < kRounding);
  }
}

TEST_CASE("SSP with no bound to spare is the synchronous sum of changes", "[system][replicas]") {
  for (const char* rule : {"ssp", "essp"}) {
    const std::vector<float> ssp = weights({"replicas.count=4",
                                            concat("replicas.rule.", rule, ".bound=0"),
                                            "optimizer.rule=sgd",
                                            "optimizer.learning_rate=0.01",
                                            "stop.updates=160"});
    CHECK(distance(ssp,
                   weights({"replicas.count=4",
                            "replicas.exchange=synchronous",
                            "optimizer.rule=sgd",
                            "optimizer.learning_rate=0.04"})) < kRounding);
  }
}

TEST_CASE("a wave of one mini-batch with no distance is SSP with no bound", "[system][replicas]") {
  const Options both{"replicas.count=4", "optimizer.learning_rate=0.01"};
  const std::vector<float> wsp =
      weights(joined(both, {"replicas.exchange.wsp.wave=1", "replicas.exchange.wsp.distance=0"}));
  const auto ssp = [&](int bound) {  // its updates are of one mini-batch of one replica
    return weights(joined(both, {concat("replicas.rule.ssp.bound=", bound), "stop.updates=160"}));
  };
  CHECK(same(wsp, ssp(0)));
  CHECK_FALSE(same(wsp, ssp(1)));
}

TEST_CASE("a backup replica for the one that never comes in time: as if there were neither",
          "[system][replicas]") {
  const auto synchronous = [](const Options& set) {
    const Outcome done =
        run(experiment(kOneNumber, joined({"replicas.exchange=synchronous"}, set)));
    REQUIRE(done.ending.exit_code == 0);
    check_accounts(done);
    return done;
  };
  // Replica 0 evaluates at the end, so it is another that is slow.
  const Options slow{"replicas.count=4",
                     "clock.workers.straggler.permanent.replica=3",
                     "clock.workers.straggler.permanent.factor=1000"};
  const Outcome without = synchronous({"replicas.count=3"});
  // 40 updates of 3 mini-batches are 30 of the run's, which are of 4.
  const Outcome backup =
      synchronous(joined(slow, {"replicas.exchange.synchronous.backup=1", "stop.updates=30"}));
  CHECK(same(backup.weights, without.weights));
  CHECK(backup.seconds == 1000);  // the slow one's first mini-batch, which nobody has waited for
  CHECK(synchronous(joined(slow, {"stop.updates=2"})).seconds == 2000);
}

TEST_CASE("streaming DiLoCo works a fragment in late, and mixes it with the replica's own",
          "[system][replicas]") {
  constexpr std::int64_t kPeriod = 8;
  constexpr std::int64_t kOverlap = 3;
  const std::string streaming = "replicas.exchange.diloco.mode.streaming.";
  for (const double mix : {0.0, 0.25, 0.5, 1.0}) {
    INFO("mix " << mix);
    const Outcome done = run(experiment(kOneNumber,
                                        {"replicas.count=2",
                                         concat("replicas.exchange.diloco.period=", kPeriod),
                                         "replicas.exchange.diloco.rate=0.7",
                                         "replicas.exchange.diloco.momentum=0",
                                         concat(streaming, "overlap=", kOverlap),
                                         concat(streaming, "mix=", mix)}));
    REQUIRE(done.ending.exit_code == 0);
    // Both replicas go this way. Douillard et al. 2025, arXiv:2501.18512, section 2.3.
    double own = std::sqrt(2 * done.losses.at({.batch = 0}));
    double shared = own;
    double since = own;  // the last exchange
    for (std::int64_t n = 1; n <= 40; ++n) {
      INFO("mini-batch " << n - 1);
      CHECK(done.losses.at({.batch = n - 1}) == Approx(own * own / 2).epsilon(1e-5));
      own *= 1 - 0.1;
      if (n % kPeriod == 0) {
        shared -= 0.7 * (since - own);
      }
      if (n > kPeriod && n % kPeriod == kOverlap) {
        own = mix * own + (1 - mix) * shared;
        since = shared;
      }
    }
    CHECK(std::abs(done.weights.at(0)) == Approx(shared).epsilon(1e-5));
  }
}

// Two fragments of one number each, which no gradient mixes: what becomes of a number is its first value times
// a figure. The figures are of a Python script of 10 lines that follows one number through section 2.3 of the
// paper, with v <- 0.9 v + d, shared <- shared - 0.7 (d + 0.9 v): it leaves at mini-batches 4, 8, 12 or 6, 10, 12
// (12 is the last), and comes back one mini-batch later.
TEST_CASE("of streaming DiLoCo's two fragments each has its own turn and momentum",
          "[system][replicas]") {
  const auto weights_at = [](const char* rate) {
    const std::string diloco = "replicas.exchange.diloco.";
    const Outcome done = run(experiment(kOneNumber,
                                        {"model.quadratic.layers=2",
                                         "replicas.count=2",
                                         "replicas.shards=2",
                                         concat("optimizer.learning_rate=", rate),
                                         diloco + "period=4",
                                         diloco + "rate=0.7",
                                         diloco + "momentum=0.9",
                                         diloco + "mode.streaming.overlap=1",
                                         diloco + "mode.streaming.mix=0.25",
                                         "stop.updates=12"}));
    REQUIRE(done.ending.exit_code == 0);
    REQUIRE(done.weights.size() == 2);
    return done.weights;
  };
  const std::vector<float> start = weights_at("1e-30");
  const std::vector<float> end = weights_at("0.1");
  CHECK(end[0] / start[0] == Approx(-0.10072459314593563).epsilon(1e-5));
  CHECK(end[1] / start[1] == Approx(-0.2075973158157729).epsilon(1e-5));
}

TEST_CASE("delayed is SGD with a delay of R - 1, whatever the speeds", "[system][replicas]") {
  for (const int R : {2, 3, 5}) {
    INFO("R " << R);
    const auto e = task({concat("replicas.count=", R),
                         "replicas.rule=delayed",
                         "clock.workers.spread=0.6",
                         "optimizer.learning_rate=0.01"});
    const Outcome done = run(e);
    REQUIRE(done.ending.exit_code == 0);
    CHECK(same(done.weights, delayed_sgd(e, R - 1)));
    CHECK_FALSE(same(done.weights, delayed_sgd(e, R - 2)));
  }
}

TEST_CASE("a correction of strength 0 is none", "[system][replicas]") {
  const Options set{"replicas.count=4", "optimizer.learning_rate=0.01"};
  const std::vector<float> asgd = weights(set);
  CHECK(same(weights(joined(set, {"replicas.rule.dc_asgd.lambda=0"})), asgd));
  CHECK_FALSE(same(weights(joined(set, {"replicas.rule.dc_asgd.lambda=1"})), asgd));
  CHECK(same(weights(joined(set, {"replicas.rule.dana_dc.lambda=0"})),
             weights(joined(set, {"replicas.rule=dana_zero"}))));
}

namespace {

/// All meetings of replicas and centre in a run, as told by its messages.
struct Meetings {
  std::map<std::int32_t, std::vector<float>> uploads;  // by replica: what is on its way or waits
  std::map<std::int32_t, std::vector<float>> answers;  // by replica: what it was last given
  std::vector<float> centre;
  double largest = 0;  // of what a meeting added to the sum of the replicas and the centre
  int count = 0;
  int stood_still = 0;  // replicas that came as they had left

  static std::vector<float> values(const Tensor& tensor) {
    const auto all = tensor.span<float>();
    return {all.begin(), all.end()};
  }

  void see(const Message& message) {
    if (const auto* upload = get_if<Upload>(&message)) {
      const std::int32_t who = upload->stamp.replica;
      uploads[who] = values(upload->contribution.values.front());
      stood_still += same(uploads[who], answers[who]) ? 1 : 0;
    } else if (const auto* combine = get_if<Combine>(&message)) {
      centre = values(combine->update.base);
      met.clear();
      for (const Contribution& of : combine->update.contributions) {
        met.push_back(of.replica);
      }
    } else if (const auto* combined = get_if<Combined>(&message)) {
      const std::vector<float> next = values(combined->updated.next);
      for (std::size_t p = 0; p < next.size(); ++p) {
        double added = static_cast<double>(next[p]) - centre[p];
        for (std::size_t i = 0; i < met.size(); ++i) {
          const float moved = combined->updated.answers[i].span<float>()[p];
          added += static_cast<double>(moved) - uploads[met[i]][p];
        }
        largest = std::max(largest, std::abs(added));
      }
      for (std::size_t i = 0; i < met.size(); ++i) {
        answers[met[i]] = values(combined->updated.answers[i]);
      }
      ++count;
    }
  }

  std::vector<std::int32_t> met{};  // of the update under way
};

}  // namespace

TEST_CASE("a spring moves a replica and the centre by the same, and keeps their sum",
          "[system][replicas]") {
  for (const char* synchronous : {"true", "false"}) {
    Meetings meetings;
    outcome({"replicas.count=3",
             "replicas.exchange.easgd.period=4",
             concat("replicas.exchange.easgd.synchronous=", synchronous),
             // From mini-batch 20 on the rate is nothing, and only meetings move anything.
             "optimizer.schedule.step.every=20",
             "optimizer.schedule.step.factor=1e-30",
             "optimizer.rule=sgd",
             "stop.updates=80"},
            {.threads = false, .lose = [&](ActorId, const Message& message) {
               meetings.see(message);
               return false;
             }});
    CHECK(meetings.count >= (synchronous[0] == 't' ? 20 : 58));
    // Each of three replicas meets the centre 15 times more, but for what the end cuts off.
    CHECK(meetings.stood_still > 30);
    CHECK(meetings.largest < 1e-6);  // weights are below 2: roundings of 1.2e-7, 4 of them
  }
}

TEST_CASE("what nobody chooses by arrival gives equal bits on both clocks, twice",
          "[system][replicas]") {
  for (const Options& set : std::vector<Options>{
           {"replicas.exchange=synchronous"},
           {"replicas.rule.softsync.wait=true"},
           {"replicas.rule=delayed"},
           {"replicas.exchange.averaging.period=6"},
           {"replicas.exchange.averaging.state=averaged", "replicas.exchange.averaging.period=6"},
           {"replicas.exchange.bmuf.period=6"},
           {"replicas.exchange.easgd.synchronous=true", "replicas.exchange.easgd.period=6"},
           {"replicas.exchange.diloco.period=6"},
           {"replicas.exchange.diloco.mode=streaming",
            "replicas.exchange.diloco.period=6",
            "replicas.exchange.diloco.mode.streaming.overlap=2",
            "replicas.shards=3"}}) {
    INFO(set.front());
    const Options three = joined(set, {"replicas.count=3", "optimizer.learning_rate=0.01"});
    const Outcome first = outcome(three);
    const Outcome second = outcome(three);
    CHECK(same(second.weights, first.weights));
    CHECK(second.order == first.order);
    for (const char* own : {"fused", "own"}) {
      const Outcome threads = outcome(joined(three, {concat("placement.optimizer=", own)}),
                                      {.threads = true, .lose = {}});
      CHECK(same(threads.weights, first.weights));
    }
  }
}

TEST_CASE("on the virtual clock every rule gives equal order and bits, twice",
          "[system][replicas]") {
  for (const RuleScheme& scheme : rules().all()) {
    if (!rules().built_in(scheme)) {
      continue;  // of another test
    }
    INFO(scheme.info.name);
    const Options set{"replicas.count=4", "replicas.rule=" + scheme.info.name, "replicas.shards=2"};
    const Outcome first = outcome(set);
    const Outcome second = outcome(set);
    CHECK(same(second.weights, first.weights));
    CHECK(second.order == first.order);
    CHECK(second.seconds == first.seconds);
  }
}

TEST_CASE("cutting a chunk into slices changes no bit of an element-wise rule",
          "[system][replicas]") {
  for (const Options& set : std::vector<Options>{{"replicas.rule=asgd"},
                                                 {"replicas.rule.softsync.n=2"},
                                                 {"replicas.rule=staleness_aware"},
                                                 {"replicas.rule=dc_asgd"},
                                                 {"replicas.rule.fasgd.relative=false"},
                                                 {"replicas.rule=dana_zero"},
                                                 {"replicas.rule=dana_slim"},
                                                 {"replicas.rule=smega2"},
                                                 {"replicas.rule=ormo"},
                                                 {"replicas.rule.ssp.bound=2"},
                                                 {"replicas.rule.essp.bound=2"},
                                                 {"replicas.exchange=synchronous"},
                                                 {"replicas.exchange.averaging.period=5"},
                                                 {"replicas.exchange.easgd.period=5"},
                                                 {"replicas.exchange.diloco.period=5"},
                                                 {"replicas.exchange.diloco.mode=asynchronous"}}) {
    INFO(set.front());
    const Options four = joined(set, {"replicas.count=4", "optimizer.learning_rate=0.01"});
    const std::vector<float> whole = weights(four);
    for (const char* shards : {"2", "4"}) {
      CHECK(same(weights(joined(four, {concat("replicas.shards=", shards)})), whole));
    }
  }
}

TEST_CASE("evaluations change no weight and no order of updates", "[system][replicas]") {
  for (const Options& set : std::vector<Options>{{"replicas.rule=asgd"},
                                                 {"replicas.rule=dana_slim"},
                                                 {"replicas.rule.essp.bound=1"},
                                                 {"replicas.exchange=synchronous"},
                                                 {"replicas.exchange.averaging.period=4"},
                                                 {"replicas.exchange.easgd.period=4"},
                                                 {"replicas.exchange.diloco.period=4"},
                                                 {"replicas.exchange.wsp.wave=2"}}) {
    INFO(set.front());
    const auto updates = [](const Outcome& done) {
      std::vector<Stamp> order;
      for (const AppliedRecord& applied : done.applied) {
        order.push_back(applied.stamp);
      }
      return order;
    };
    const Options three = joined(set, {"replicas.count=3", "replicas.shards=2"});
    const Outcome silent = outcome(three);
    const Outcome evaluated = outcome(
        joined(three, {"record.evaluate=true", "record.evaluate_every=8", "record.gap_every=3"}));
    CHECK(same(evaluated.weights, silent.weights));
    CHECK(updates(evaluated) == updates(silent));
    REQUIRE(evaluated.evaluations.size() == 5);
    for (std::size_t i = 0; i < 5; ++i) {
      CHECK(evaluated.evaluations[i].step == 8 * static_cast<std::int64_t>(i + 1));
    }
  }
}

}  // namespace replicas_test
