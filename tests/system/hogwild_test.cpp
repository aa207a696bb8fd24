// Sparse Hogwild: on the virtual clock it is SGD row by row, whatever the number of workers; on
// threads nothing is lost and the loss is the same; what has no meaning is refused.
#include "apps/run/run.hpp"
#include "runtime/data/sparse.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/harness.hpp"

#include <cmath>
#include <map>

namespace hogwild_test {

using namespace troupe;
using namespace troupe::test;

namespace {

RunOptions on_clock(bool is_virtual) {
  RunOptions options;
  options.virtual_clock = is_virtual;
  return options;
}

const char* const kTask =
    "model { logistic {} } data { batch_size: 50 sparse { rows: 1000 features: 120 nonzeros: 6 "
    "test: 300 } } optimizer { rule: sgd learning_rate: 0.5 } stop { epochs: 2 } "
    "record { order: false }";

RunResult run_it(const std::vector<std::string>& set, bool virtual_clock = true) {
  auto blueprint = make_blueprint(experiment(kTask, set));
  INFO((blueprint ? std::string() : blueprint.error().message));
  REQUIRE(blueprint);
  auto result = run_experiment(*blueprint, on_clock(virtual_clock));
  INFO((result ? std::string() : result.error().message));
  REQUIRE(result);
  CHECK(result->cause == "");
  return *result;
}

std::string refusal(const std::vector<std::string>& set, bool virtual_clock = true) {
  std::vector<std::string> all{"replicas.exchange=hogwild"};
  all.insert(all.end(), set.begin(), set.end());
  const auto blueprint = make_blueprint(experiment(kTask, all));
  if (!blueprint) {
    return blueprint.error().message;
  }
  const auto result = run_experiment(*blueprint, on_clock(virtual_clock));
  return result ? "" : result.error().message;
}

std::vector<double> weights_of(const RunResult& result) {
  return to_host(result.weights.front().front().values);
}

}  // namespace

TEST_CASE("one worker makes what the ordinary pipeline makes of single samples", "[hogwild]") {
  const RunResult sparse = run_it({"replicas.exchange=hogwild"});
  const RunResult dense = run_it({"data.batch_size=1"});
  CHECK(sparse.summary.updates == 40);
  CHECK(sparse.summary.epochs == 2);
  CHECK(sparse.summary.samples == 2000);
  const std::vector<double> a = weights_of(sparse);
  const std::vector<double> b = weights_of(dense);
  REQUIRE(a.size() == b.size());
  // 2000 steps, each rounded to 2^-24 of weights of about 1; a convex task does not amplify it.
  for (std::size_t i = 0; i < a.size(); ++i) {
    CHECK(a[i] == Approx(b[i]).margin(1e-3));
  }
  CHECK(*sparse.summary.test_loss == Approx(*dense.summary.test_loss).epsilon(1e-3));
  CHECK(sparse.summary.train_loss == Approx(dense.summary.train_loss).epsilon(1e-3));
  CHECK(*sparse.summary.test_loss < 0.69);  // log 2: the start
}

TEST_CASE("on the virtual clock the number of workers changes time and no bit", "[hogwild]") {
  const RunResult one = run_it({"replicas.exchange=hogwild"});
  for (const char* count : {"2", "3", "7"}) {
    const RunResult several =
        run_it({"replicas.exchange=hogwild", std::string("replicas.count=") + count});
    CHECK(several.summary.weights_sha256 == one.summary.weights_sha256);
    CHECK(*several.summary.test_loss == *one.summary.test_loss);
    CHECK(several.summary.seconds < one.summary.seconds);
    CHECK(several.summary.updates == 40);
  }
}

TEST_CASE("threads share the buffer: nothing is lost, the loss is the same", "[hogwild]") {
  const std::vector<std::string> set{"replicas.exchange=hogwild",
                                     "data.sparse.features=3000",
                                     "data.sparse.rows=6000",
                                     "stop.epochs=5"};
  const RunResult one = run_it(set, false);
  std::vector<std::string> both = set;
  both.push_back("replicas.count=2");
  const RunResult two = run_it(both, false);
  CHECK(two.summary.updates == one.summary.updates);
  CHECK(two.weights.front().front().version == 30000);  // rows
  // A few rows' lag on 6 of 3000 features hardly shows.
  CHECK(two.summary.train_loss == Approx(one.summary.train_loss).epsilon(0.02));
  CHECK(*two.summary.test_loss == Approx(*one.summary.test_loss).epsilon(0.02));
  const auto& alone = one.summary.staleness.at(0).histogram;
  REQUIRE(alone.size() == 1);  // nobody else's updates
  CHECK(alone.begin()->first == 0);
  std::int64_t samples = 0;
  for (const auto& [lag, count] : two.summary.staleness.at(0).histogram) {
    CHECK(lag >= 0);
    samples += count;
  }
  CHECK(samples >= two.summary.updates);
  both.push_back("replicas.exchange.hogwild.add=racy");
  CHECK(run_it(both, false).summary.train_loss == Approx(one.summary.train_loss).epsilon(0.02));
}

TEST_CASE("a run of sparse Hogwild ends where it is told", "[hogwild]") {
  const std::vector<std::string> base{"replicas.exchange=hogwild", "replicas.count=3"};
  const auto with = [&](const std::vector<std::string>& set) {
    std::vector<std::string> all = base;
    all.insert(all.end(), set.begin(), set.end());
    return run_it(all);
  };
  CHECK(with({"stop.updates=1"}).summary.updates == 1);
  CHECK(with({"stop.updates=7", "record.evaluate_every=3"}).summary.test_loss);
  const RunResult met = with({"stop.target_accuracy=0.55", "stop.epochs=50"});
  CHECK(met.summary.updates % 20 == 0);
  CHECK(met.summary.updates < 1000);
  CHECK(*met.summary.test_accuracy >= 0.55);
  const RunResult timed = with({"stop.epochs=0", "stop.seconds=10", "clock.forward.seconds=[1]"});
  CHECK(timed.summary.seconds >= 10);
  CHECK(timed.summary.updates >= 30);
}

TEST_CASE("what sparse Hogwild cannot be is refused", "[hogwild]") {
  CHECK_THAT(refusal({"record.order=true"}, false), Catch::Contains("record.order"));
  CHECK(refusal({"record.order=true"}).empty());
  CHECK_THAT(refusal({"optimizer.rule=momentum"}), Catch::Contains("optimizer.rule"));
  CHECK_THAT(refusal({"optimizer.weight_decay=0.1"}), Catch::Contains("weight_decay"));
  CHECK_THAT(refusal({"pipeline.micro_batches=2"}), Catch::Contains("micro_batches"));
  CHECK_THAT(refusal({"model.label_smoothing=0.1"}), Catch::Contains("model.label_smoothing"));
  CHECK_THAT(refusal({"replicas.shards=2"}), Catch::Contains("replicas.shards"));
  CHECK_THAT(refusal({"clock.bandwidth=1e9"}), Catch::Contains("clock.bandwidth"));
  CHECK_THAT(refusal({"clock.forward.seconds=[0]", "stop.epochs=0", "stop.seconds=1"}),
             Catch::Contains("stop.seconds: the run would never end"));
}

TEST_CASE("the account of busy time is the workers'", "[hogwild]") {
  const RunResult result = run_it(
      {"replicas.exchange=hogwild", "replicas.count=2", "clock.workers.slowness=[1,3]"}, true);
  REQUIRE(result.summary.busy.size() == 2);
  CHECK(result.summary.busy.at(0) > 0.25);  // it waits for the other, who is never idle
  CHECK(result.summary.busy.at(1) > 0.9);
}

TEST_CASE("a worker that is held back takes so many times its seconds", "[hogwild]") {
  constexpr double kFactor = 20;
  const auto blueprint =
      make_blueprint(experiment(kTask,
                                {"replicas.exchange=hogwild",
                                 "replicas.count=2",
                                 concat("clock.workers.hold_back=[1,", kFactor, "]")}));
  REQUIRE(blueprint);

  /// Of each mini-batch: seconds of its work, and until the worker went on.
  class Sink final : public RecordSink {
   public:
    std::optional<Diverged> on(const RecordEntry& entry, double) override {
      if (const auto* busy = std::get_if<BusyRecord>(&entry)) {
        worked[busy->stamp.batch] = busy->end - busy->start;
      } else if (const auto* applied = std::get_if<AppliedRecord>(&entry)) {
        took[applied->stamp.batch] = applied->seconds;
        replica[applied->stamp.batch] = applied->stamp.replica;
      }
      return std::nullopt;
    }

    std::map<std::int64_t, double> worked;
    std::map<std::int64_t, double> took;
    std::map<std::int64_t, std::int32_t> replica;
  } sink;

  RunOptions options = on_clock(false);
  options.tee = &sink;
  REQUIRE(run_experiment(*blueprint, options));
  REQUIRE(sink.took.size() == 40);
  for (const auto& [batch, seconds] : sink.took) {
    INFO("mini-batch " << batch);
    const double factor = sink.replica.at(batch) == 1 ? kFactor : 1;
    CHECK(seconds >= factor * sink.worked.at(batch) - 1e-6);  // it counts whole nanoseconds
  }
}

}  // namespace hogwild_test
