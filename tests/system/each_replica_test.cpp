// Evaluations of each replica's own weights in whole runs: their figures by an independent computation, at
// which steps they are made, and that they change no weight.
#include "messages/weights.hpp"
#include "runtime/data/batch.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/harness.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace each_replica_test {

using namespace troupe;
using namespace troupe::test;

namespace {

constexpr std::int64_t kInputs = 6;
constexpr std::int64_t kClasses = 4;
constexpr std::int64_t kTest = 200;

/// Softmax regression, whose loss and accuracy are a few lines.
const std::string kLinear =
    "model { linear {} } data { batch_size: 8 teacher { inputs: 6 outputs: 4 hidden: 8 train: 256 "
    "test: 200 } } optimizer { rule: sgd learning_rate: 0.2 } stop { updates: 30 } record { "
    "evaluate: "
    "true evaluate_every: 10 order: false }";

const std::vector<Options> kExchanges{{"replicas.exchange=gossip"},
                                      {"replicas.exchange.gossip.graph=one_peer"},
                                      {"replicas.exchange=gossip", "replicas.codec.up=one_bit"},
                                      {"replicas.exchange=sgp"},
                                      {"replicas.exchange=ad_psgd"},
                                      {"replicas.exchange=strom"}};

struct Told {
  Outcome outcome;
  std::vector<ReplicaRecord> replicas;
  std::int64_t passed_over = 0;

  /// By replica.
  std::map<std::int32_t, ReplicaRecord> at(std::int64_t step) const {
    std::map<std::int32_t, ReplicaRecord> all;
    for (const ReplicaRecord& record : replicas) {
      if (record.step == step) {
        CHECK(all.emplace(record.replica, record).second);  // once
      }
    }
    return all;
  }
};

Told told(const std::string& task, const Options& set, HarnessOptions options = {}) {
  Told all;
  options.record = [&](const RecordEntry& entry) {
    if (const auto* replica = std::get_if<ReplicaRecord>(&entry)) {
      all.replicas.push_back(*replica);
    } else if (const auto* passed = std::get_if<PassedOverRecord>(&entry)) {
      all.passed_over += passed->evaluations;
    }
  };
  const Options replicas{"replicas.count=4", "clock.forward.seconds=[1]"};
  all.outcome = run(experiment(task, joined(replicas, set)), options);
  return all;
}

struct Judged {
  double loss = 0;
  double accuracy = 0;
};

/// Mean cross-entropy and share of hits of softmax(W x + b) on the test data, in double.
Judged judge(const Dataset& data, const std::vector<float>& weights) {
  REQUIRE(weights.size() == (kInputs + 1) * kClasses);
  Stream stream(Device{});
  std::vector<std::int64_t> all(kTest);
  std::iota(all.begin(), all.end(), 0);
  const Batch batch = gather_batch(stream, data, Split::test, all, 0);
  const auto x = batch.x.span<float>();
  const auto labels = batch.target.span<std::int32_t>();
  Judged judged;
  for (std::int64_t i = 0; i < kTest; ++i) {
    std::vector<double> z(kClasses);
    for (std::int64_t c = 0; c < kClasses; ++c) {
      z[c] = weights[kInputs * kClasses + c];
      for (std::int64_t j = 0; j < kInputs; ++j) {
        z[c] += static_cast<double>(weights[c * kInputs + j]) * x[i * kInputs + j];
      }
    }
    double sum = 0;
    for (const double one : z) {
      sum += std::exp(one);
    }
    judged.loss += (std::log(sum) - z[labels[i]]) / kTest;
    const bool right = std::max_element(z.begin(), z.end()) - z.begin() == labels[i];
    judged.accuracy += right ? 1.0 / kTest : 0;
  }
  return judged;
}

}  // namespace

TEST_CASE("each replica's figures are those of its own weights", "[system][gossip]") {
  for (const Options& exchange : kExchanges) {
    INFO(exchange.front() << " " << exchange.back());
    // What each stage reads last: it evaluates its replica's own weights.
    std::map<ActorId, Weights> read;
    HarnessOptions spy;
    spy.lose = [&](ActorId to, const Message& message) {
      if (const auto* reply = get_if<PullReply>(&message)) {
        read[to] = reply->weights;
      }
      return false;
    };
    const Options set = joined(exchange, {"replicas.split=by_label"});
    const Told run = told(kLinear, set, spy);
    REQUIRE(run.outcome.ending.exit_code == 0);
    REQUIRE(read.size() == 4);
    const auto blueprint = make_blueprint(experiment(kLinear, joined({"replicas.count=4"}, set)));
    std::vector<std::vector<float>> weights;  // by replica, whose stages are numbered in that order
    for (const auto& [stage, own] : read) {
      weights.push_back(flatten(*blueprint, {own}));
    }
    const auto reported = run.at(30);
    REQUIRE(reported.size() == 4);
    for (const auto& [replica, record] : reported) {
      INFO("replica " << replica);
      const Judged want = judge(*blueprint->data, weights.at(static_cast<std::size_t>(replica)));
      CHECK(record.loss == Approx(want.loss).epsilon(1e-4));
      CHECK(record.accuracy == Approx(want.accuracy).margin(1.01 / kTest));
      CHECK(record.has_accuracy);
    }
    CHECK(reported.at(1).loss != reported.at(2).loss);  // each sees few classes
    const Judged mean = judge(*blueprint->data, run.outcome.weights);
    CHECK(run.outcome.evaluations.back().loss == Approx(mean.loss).epsilon(1e-4));
    CHECK(run.replicas.size() == 4);  // at the end alone
  }
}

TEST_CASE("each is evaluated at every evaluation, at the end or never, and no weight changes",
          "[system][gossip]") {
  const Options pipe{"pipeline.stages=2",
                     "pipeline.schedule=async_one_f_one_b",
                     "pipeline.weights=stash",
                     "record.evaluate=true",
                     "record.evaluate_every=8"};
  for (const Options& exchange : kExchanges) {
    INFO(exchange.front() << " " << exchange.back());
    const auto with = [&](const char* when, bool threads = false) {
      const Told made = told(tiny_task("16,14"),
                             joined(joined(exchange, pipe), {concat("record.each_replica=", when)}),
                             {.threads = threads});
      REQUIRE(made.outcome.ending.exit_code == 0);
      return made;
    };
    const Told never = with("never");
    CHECK(never.replicas.empty());
    const Told at_end = with("at_end");
    CHECK(at_end.replicas.size() == 4);
    CHECK(at_end.at(40).size() == 4);
    const Told always = with("always");
    CHECK(always.replicas.size() == 20);
    for (const std::int64_t step : {8, 16, 24, 32, 40}) {
      CHECK(always.at(step).size() == 4);
    }
    CHECK(same(never.outcome.weights, at_end.outcome.weights));
    CHECK(same(never.outcome.weights, always.outcome.weights));
    REQUIRE(always.outcome.evaluations.size() == never.outcome.evaluations.size());
    for (std::size_t i = 0; i < never.outcome.evaluations.size(); ++i) {
      CHECK(always.outcome.evaluations[i].loss == never.outcome.evaluations[i].loss);
    }
    for (const auto& [replica, record] : at_end.at(40)) {
      CHECK(record.loss == always.at(40).at(replica).loss);
    }
    CHECK(with("always", true).replicas.size() == 20);
  }
}

TEST_CASE("on threads each has the figures of the virtual clock where the weights are the same",
          "[system][gossip]") {
  const Options set{"replicas.exchange=gossip", "record.each_replica=always"};
  const Told simulated = told(kLinear, set);
  const Told threads = told(kLinear, set, {.threads = true});
  REQUIRE(same(simulated.outcome.weights, threads.outcome.weights));
  REQUIRE(threads.replicas.size() == 12);
  for (const std::int64_t step : {10, 20, 30}) {
    for (const auto& [replica, record] : simulated.at(step)) {
      CHECK(threads.at(step).at(replica).loss == record.loss);
      CHECK(threads.at(step).at(replica).accuracy == record.accuracy);
    }
  }
}

TEST_CASE("where all have the mean's weights each has its figures", "[system][gossip]") {
  const Told run = told(kLinear,
                        {"replicas.exchange.gossip.graph=complete",
                         "replicas.exchange.gossip.order=sequential",
                         "record.each_replica=always"});
  for (const EvaluationRecord& evaluation : run.outcome.evaluations) {
    for (const auto& [replica, record] : run.at(evaluation.step)) {
      CHECK(record.loss == Approx(evaluation.loss).epsilon(1e-5));
    }
  }
}

TEST_CASE("the living are evaluated each, whoever dies, the evaluator too", "[system][gossip]") {
  for (const char* victim : {"stage-0.0", "stage-2.0"}) {
    INFO(victim);
    HarnessOptions dying;
    dying.recast = [&](Cast& cast) {
      std::unique_ptr<Machine>& machine = member(cast, victim).machine;
      machine = failing_at(std::move(machine), 14);
    };
    for (const bool threads : {false, true}) {
      dying.threads = threads;
      const Told run =
          told(kLinear, {"replicas.exchange=gossip", "record.each_replica=always"}, dying);
      REQUIRE(run.outcome.ending.exit_code == 0);
      REQUIRE(run.outcome.lost.size() == 1);
      CHECK(run.at(30).size() == 3);
      CHECK_FALSE(run.at(30).contains(run.outcome.lost[0].replica));
    }
  }
}

TEST_CASE("a run that is ended early evaluates each at its end", "[system][gossip]") {
  for (const Options& end :
       std::vector<Options>{{"stop.seconds=15.5"}, {"stop.target_accuracy=0.3"}}) {
    INFO(end.front());
    const Told run = told(
        kLinear,
        joined(end, {"replicas.exchange=ad_psgd", "clock.workers.spread=0.3", "stop.updates=0"}));
    REQUIRE(run.outcome.ending.exit_code == 0);
    CHECK(run.at(run.outcome.ending.step).size() == 4);
    CHECK(run.replicas.size() == 4);
  }
}

TEST_CASE("where a replica is far behind, evaluations are passed over, and the last is made",
          "[system][gossip]") {
  const Options far{"replicas.exchange=ad_psgd",
                    "clock.workers.straggler.permanent.factor=50",
                    "stop.updates=100",
                    "record.evaluate_every=1"};
  const Told run = told(kLinear, far);
  REQUIRE(run.outcome.ending.exit_code == 0);
  CHECK(run.passed_over > 50);
  CHECK(run.passed_over + static_cast<std::int64_t>(run.outcome.evaluations.size()) == 100);
  CHECK(run.outcome.evaluations.back().step == 100);
  CHECK(run.at(100).size() == 4);
  for (std::size_t i = 1; i < run.outcome.evaluations.size(); ++i) {
    CHECK(run.outcome.evaluations[i - 1].step < run.outcome.evaluations[i].step);
  }
  const Told seldom = told(kLinear, joined(far, {"record.evaluate_every=50"}));
  CHECK(seldom.passed_over == 0);
  CHECK(same(run.outcome.weights, seldom.outcome.weights));
  CHECK(run.outcome.evaluations.back().loss == seldom.outcome.evaluations.back().loss);
}

}  // namespace each_replica_test
