// Sandblaster: L-BFGS reaches the closed form and beats gradient descent at equal passes; its bits
// depend neither on the number of workers nor on who is slow or dies; a slow worker hardly delays a
// batch.
#include "messages/sandblaster.hpp"

#include "apps/run/run.hpp"
#include "apps/topologies/topology.hpp"
#include "experiment/clock.pb.h"
#include "messages/sections.hpp"
#include "runtime/data/batch.hpp"
#include "runtime/system/agenda.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/harness.hpp"
#include "tests/support/skip.hpp"

#include <cmath>
#include <filesystem>
#include <numeric>

namespace sandblaster_test {

using namespace troupe;
using namespace troupe::test;

namespace {

RunOptions on_clock(bool is_virtual) {
  RunOptions options;
  options.virtual_clock = is_virtual;
  return options;
}

const char* const kRegression =
    "model { linear {} } data { batch_size: 600 teacher { inputs: 8 outputs: 3 hidden: 8 values: "
    "true train: 600 test: 50 } } replicas { count: 4 exchange { sandblaster { portions: 16 } } } "
    "stop { updates: 40 }";

const char* const kClasses =
    "model { mlp { hidden: [12] activation: tanh } } data { batch_size: 610 teacher { inputs: 8 "
    "outputs: 3 hidden: 8 train: 610 test: 50 } } replicas { count: 4 exchange { sandblaster { "
    "portions: 16 } } } stop { updates: 12 }";

Blueprint blueprint_of(const char* text, const std::vector<std::string>& set = {}) {
  auto blueprint = make_blueprint(experiment(text, set));
  INFO((blueprint ? std::string() : blueprint.error().message));
  REQUIRE(blueprint);
  return *blueprint;
}

RunResult run_it(const char* text, const std::vector<std::string>& set = {}, bool threads = false) {
  auto result = run_experiment(blueprint_of(text, set), on_clock(!threads));
  INFO((result ? std::string() : result.error().message));
  REQUIRE(result);
  CHECK(result->cause == "");
  return *result;
}

/// Minimum of the mean of 1/2 |W x + b - t|^2 over the training data: normal equations, in double.
double least_squares(const Dataset& data) {
  const auto n = static_cast<std::size_t>(data.sample_shape().elements()) + 1;  // and the bias
  const auto outputs = static_cast<std::size_t>(data.values());
  const auto rows = static_cast<std::size_t>(data.size(Split::train));
  Stream stream(Device{});
  std::vector<std::int64_t> all(rows);
  std::iota(all.begin(), all.end(), 0);
  const Batch batch = gather_batch(stream, data, Split::train, all, 0);
  const auto x = [&](std::size_t r, std::size_t i) {
    return i + 1 == n ? 1.0 : static_cast<double>(batch.x.span<float>()[r * (n - 1) + i]);
  };
  const auto t = [&](std::size_t r, std::size_t o) {
    return static_cast<double>(batch.target.span<float>()[r * outputs + o]);
  };
  double loss = 0;
  for (std::size_t o = 0; o < outputs; ++o) {
    std::vector<std::vector<double>> a(n, std::vector<double>(n + 1));
    for (std::size_t r = 0; r < rows; ++r) {
      for (std::size_t i = 0; i < n; ++i) {
        for (std::size_t j = 0; j < n; ++j) {
          a[i][j] += x(r, i) * x(r, j);
        }
        a[i][n] += x(r, i) * t(r, o);
      }
    }
    for (std::size_t p = 0; p < n; ++p) {  // Gauss-Jordan; the matrix is positive definite
      for (std::size_t i = 0; i < n; ++i) {
        const double factor = i == p ? 0 : a[i][p] / a[p][p];
        for (std::size_t j = p; j <= n; ++j) {
          a[i][j] -= factor * a[p][j];
        }
      }
    }
    for (std::size_t r = 0; r < rows; ++r) {
      double y = 0;
      for (std::size_t i = 0; i < n; ++i) {
        y += a[i][n] / a[i][i] * x(r, i);
      }
      loss += 0.5 * (y - t(r, o)) * (y - t(r, o)) / static_cast<double>(rows);
    }
  }
  return loss;
}

/// Keeps the seconds of each batch.
class Seconds final : public RecordSink {
 public:
  std::optional<Diverged> on(const RecordEntry& entry, double) override {
    if (const auto* applied = std::get_if<AppliedRecord>(&entry)) {
      of_batch.push_back(applied->seconds);
    }
    return std::nullopt;
  }

  double mean() const {
    return std::accumulate(of_batch.begin(), of_batch.end(), 0.0) /
           static_cast<double>(of_batch.size());
  }

  std::vector<double> of_batch;
};

/// Throws at its `at`-th message.
class Mortal final : public Machine {
 public:
  Mortal(std::unique_ptr<Machine> inner, int at) : inner_(std::move(inner)), left_(at) {}

  void on(Message message, double now, Effects& fx) override {
    if (--left_ <= 0) {
      throw std::runtime_error("it has died");
    }
    inner_->on(std::move(message), now, fx);
  }

  std::string waits_for() const override { return ""; }

 private:
  std::unique_ptr<Machine> inner_;
  int left_;
};

struct Played {
  Ending ending;
  Seconds seconds;
  std::vector<float> weights;
};

/// The virtual clock, after `change` has had its way with the cast. A portion takes 1 second.
Played play(const Blueprint& b,
            const std::function<void(Cast&)>& change = {},
            const std::function<bool(ActorId, const Message&)>& lose = {}) {
  Cast cast = make_cast(b);
  if (change) {
    change(cast);
  }
  const ChunkTimes means{.forward = 0.25, .input_gradient = 0.25, .weight_gradient = 0.5};
  const TimeModel times(sections::clock(*b.experiment),
                        {means},
                        1,
                        static_cast<std::int32_t>(sections::replica_count(*b.experiment)));
  Played played;
  Agenda agenda(cast, times, played.seconds, nullptr);
  agenda.lose = lose;
  played.ending = agenda.run();
  played.weights = flatten(b, played.ending.weights);
  return played;
}

std::size_t index_of(const Cast& cast, const std::string& name) {
  for (std::size_t i = 0; i < cast.members.size(); ++i) {
    if (cast.members[i].name == name) {
      return i;
    }
  }
  FAIL("no " << name);
  return 0;
}

/// `set`, and worker 2 is ten times slower than the others.
std::vector<std::string> with_straggler(std::vector<std::string> set) {
  set.insert(set.end(),
             {"clock.workers.straggler.permanent.replica=2",
              "clock.workers.straggler.permanent.factor=10"});
  return set;
}

}  // namespace

TEST_CASE("a quadratic is at its closed form after few batches", "[sandblaster]") {
  const Blueprint b = blueprint_of(kRegression);
  const double best = least_squares(*b.data);
  const RunResult found = run_it(kRegression);
  REQUIRE(best > 0.01);
  // 27 unknowns of a well-conditioned problem: L-BFGS with 10 pairs needs some 15 batches, and float
  // gradients end at about 1e-7 of the loss.
  CHECK(found.summary.train_loss == Approx(best).epsilon(1e-5));
  const RunResult early = run_it(kRegression, {"stop.updates=15"});
  CHECK(early.summary.train_loss == Approx(best).epsilon(1e-5));
}

TEST_CASE("L-BFGS goes below gradient descent at equal passes", "[sandblaster]") {
  const std::filesystem::path mnist = std::filesystem::path(TROUPE_SHARED_DATA) / "mnist";
  if (!std::filesystem::exists(mnist)) {
    return skip("no MNIST in " + mnist.string());
  }
  const std::string text =
      "model { linear {} } data { batch_size: 20000 mnist { limit: 20000 path: \"" +
      mnist.string() + "\" } } stop { updates: 25 } record { evaluate: false }";
  const double lbfgs = run_it(text.c_str(), {"replicas.exchange=sandblaster", "replicas.count=4"})
                           .summary.train_loss;
  double descent = 10;
  for (const char* rate : {"0.1", "0.3", "1", "3"}) {
    const auto b = blueprint_of(text.c_str(),
                                {"optimizer.rule=sgd",
                                 std::string("optimizer.learning_rate=") + rate,
                                 "stop.allow_divergence=true"});
    const auto result = run_experiment(b, on_clock(true));
    REQUIRE(result);
    // The loss of the last batch is that of the weights before the last step, as it is for L-BFGS.
    if (std::isfinite(result->summary.train_loss)) {
      descent = std::min(descent, result->summary.train_loss);
    }
  }
  WARN("25 passes: L-BFGS " << lbfgs << ", gradient descent at its best rate " << descent);
  CHECK(lbfgs < 0.9 * descent);
}

TEST_CASE("the number of workers changes no bit, on either clock", "[sandblaster]") {
  const RunResult one = run_it(kClasses, {"replicas.count=1"});
  CHECK(one.summary.updates == 12);
  for (const char* count : {"2", "4", "20"}) {
    const std::string set = std::string("replicas.count=") + count;
    CHECK(run_it(kClasses, {set}).summary.weights_sha256 == one.summary.weights_sha256);
    CHECK(run_it(kClasses, {set, "clock.forward.gamma.shape=1", "clock.forward.seconds=[1]"})
              .summary.weights_sha256 == one.summary.weights_sha256);
    const RunResult real = run_it(kClasses, {set}, true);
    CHECK(real.summary.weights_sha256 == one.summary.weights_sha256);
    CHECK(real.summary.train_loss == one.summary.train_loss);
    CHECK(*real.summary.test_loss == *one.summary.test_loss);
  }
  CHECK(run_it(kClasses, {"replicas.exchange.sandblaster.portions=7"}).summary.train_loss ==
        Approx(one.summary.train_loss).epsilon(0.05));
}

TEST_CASE("a worker ten times slower hardly delays a batch of many portions", "[sandblaster]") {
  const std::vector<std::string> many{"replicas.exchange.sandblaster.portions=64"};
  const double ideal = 64 / 3.1;  // seconds, of workers of speed 1, 1, 1 and 1/10
  const Played dealt = play(blueprint_of(kClasses, with_straggler(many)));
  CHECK(dealt.seconds.mean() <= 1.3 * ideal);
  CHECK(dealt.seconds.mean() >= ideal);

  // In four portions of 16 seconds' work each, of which nobody makes a copy, the slow one's takes
  // 160.
  const Blueprint fixed = blueprint_of(kClasses,
                                       with_straggler({"replicas.exchange.sandblaster.portions=4",
                                                       "replicas.exchange.sandblaster.backup=0"}));
  const Played split = play(fixed);
  CHECK(16 * split.seconds.mean() > 7.5 * ideal);

  // Without backup copies, the others wait for the last portion that it was given.
  std::vector<std::string> unbacked = many;
  unbacked.push_back("replicas.exchange.sandblaster.backup=0");
  CHECK(play(blueprint_of(kClasses, with_straggler(unbacked))).seconds.mean() >
        dealt.seconds.mean() + 1);
}

TEST_CASE("a worker that dies costs time and nothing else", "[sandblaster]") {
  const Blueprint b = blueprint_of(kClasses);
  const Played whole = play(b);
  REQUIRE(whole.ending.exit_code == 0);
  for (const int at : {1, 2, 3, 4, 17, 18}) {  // a portion, the point, the forward, the backward
    INFO("dies at message " << at);
    const Played bereft = play(b, [&](Cast& cast) {
      Cast::Member& worker = cast.members[index_of(cast, "worker-1")];
      worker.machine = std::make_unique<Mortal>(std::move(worker.machine), at);
      worker.name = "somebody";  // a name is for people
    });
    CHECK(bereft.ending.exit_code == 0);
    CHECK(same(bereft.weights, whole.weights));
    CHECK(bereft.seconds.mean() > whole.seconds.mean());
  }
  // Silently: nobody says that it is gone, and a backup copy takes its portion's place.
  const auto victim = static_cast<ActorId>(index_of(make_cast(b), "worker-3"));
  int portions = 0;
  const Played silent = play(b, {}, [&](ActorId to, const Message& m) {
    return to == victim && holds_alternative<Portion>(m) && ++portions > 5;
  });
  CHECK(silent.ending.exit_code == 0);
  CHECK(same(silent.weights, whole.weights));
  const Played nobody = play(blueprint_of(kClasses, {"replicas.count=1"}), [&](Cast& c) {
    auto& machine = c.members[index_of(c, "worker-0")].machine;
    machine = std::make_unique<Mortal>(std::move(machine), 9);
  });
  CHECK(nobody.ending.exit_code == static_cast<int>(ErrorKind::lost));
}

TEST_CASE("a portion that arrives twice counts once", "[sandblaster]") {
  // Every backup copy's gradient arrives as well: with slow workers enough there are many of them.
  const std::vector<std::string> set{"replicas.exchange.sandblaster.backup=3"};
  const Played plain = play(blueprint_of(kClasses, set));
  const Played twice = play(blueprint_of(kClasses, with_straggler(set)));
  CHECK(same(plain.weights, twice.weights));
}

TEST_CASE("slices change no more than the order of sums", "[sandblaster]") {
  const RunResult one = run_it(kClasses);
  const RunResult two = run_it(kClasses, {"replicas.shards=3"});
  CHECK(two.weights.front().size() == 3);
  CHECK(two.summary.updates == one.summary.updates);
  CHECK(two.summary.train_loss == Approx(one.summary.train_loss).epsilon(1e-3));
}

TEST_CASE("what sandblaster cannot be is refused", "[sandblaster]") {
  const auto refusal = [](const std::vector<std::string>& set) {
    const auto blueprint = make_blueprint(experiment(kClasses, set));
    return blueprint ? std::string() : blueprint.error().message;
  };
  CHECK_THAT(refusal({"data.batch_size=100"}), Catch::Contains("set it to 610"));
  CHECK_THAT(refusal({"replicas.exchange.sandblaster.portions=611"}),
             Catch::Contains("more than the 610"));
  CHECK_THAT(refusal({"optimizer.weight_decay=0.1"}), Catch::Contains("weight_decay"));
  CHECK_THAT(refusal({"pipeline.micro_batches=2"}), Catch::Contains("micro_batches"));
  for (const std::string set : {"rule=adam",
                                "learning_rate=0.1",
                                "momentum=0.5",
                                "schedule=cosine",
                                "clip_norm=1",
                                "warm_up=10"}) {
    CHECK_THAT(refusal({"optimizer." + set}),
               Catch::StartsWith("optimizer." + set.substr(0, set.find('=')) + ": L-BFGS"));
  }
  CHECK_THAT(refusal({"clock.exchange.seconds=[1]"}), Catch::Contains("clock.exchange"));
  // Before anything that is only true of exchanges whose replicas have data.
  CHECK_THAT(refusal({"replicas.split=by_label"}), Catch::Contains("pull portions"));
}

TEST_CASE("a way that is not modelled has no seconds", "[sandblaster]") {
  const Blueprint b = blueprint_of(kClasses);
  const TimeModel times(sections::clock(*b.experiment), modelled_times(b), 1, 4);
  CHECK_THROWS(times.link(Message(PartialGradient())));
}

TEST_CASE("portions are made with the precision that is asked for", "[sandblaster]") {
  Blueprint b = blueprint_of(kClasses);
  b.precision = Precision::bf16;  // which few processors have
  const Cast cast = make_cast(b);
  for (const char* worker : {"worker-0", "worker-3"}) {
    CHECK(cast.members[index_of(cast, worker)].precision == Precision::bf16);
  }
}

}  // namespace sandblaster_test
