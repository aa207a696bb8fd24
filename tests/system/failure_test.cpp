// What goes wrong ends the run with a name and a cause, never with a hang.
#include "actors/run/director.hpp"
#include "apps/run/run.hpp"
#include "apps/topologies/cast.hpp"
#include "experiment/clock.pb.h"
#include "messages/pipeline.hpp"
#include "messages/sections.hpp"
#include "messages/weights.hpp"
#include "runtime/schemes/rules/rule.hpp"
#include "runtime/system/agenda.hpp"
#include "runtime/system/threads.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/harness.hpp"

#include <chrono>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>

namespace failure_test {

using namespace troupe;
using namespace troupe::test;

namespace {

/// Passes everything on until its n-th message, then throws.
class Failing final : public Machine {
 public:
  Failing(std::unique_ptr<Machine> inner, int after) : inner_(std::move(inner)), left_(after) {}

  void on(Message message, double now, Effects& effects) override {
    if (left_-- == 0) {
      throw std::runtime_error("a kernel failed");
    }
    inner_->on(std::move(message), now, effects);
  }

  std::string waits_for() const override { return inner_->waits_for(); }

 private:
  std::unique_ptr<Machine> inner_;
  int left_;
};

class Deaf final : public RecordSink {
 public:
  std::optional<Diverged> on(const RecordEntry&, double) override { return std::nullopt; }
};

Blueprint blueprint(const std::vector<std::string>& more = {}) {
  std::vector<std::string> set{
      "pipeline.stages=3", "pipeline.schedule=async_one_f_one_b", "stop.updates=200"};
  set.insert(set.end(), more.begin(), more.end());
  auto b = make_blueprint(experiment(tiny_task("10,9,8", "relu"), set));
  REQUIRE(b);
  return *b;
}

}  // namespace

TEST_CASE("the Director ends the run when any actor throws, with its name and cause", "[system]") {
  for (const bool threads : {false, true}) {
    for (const std::string own : {"fused", "own"}) {
      const Blueprint b = blueprint({"placement.optimizer=" + own});
      const std::size_t members = build_cast(b).members.size();
      for (std::size_t victim = 0; victim < members; ++victim) {
        Cast cast = build_cast(b);
        Cast::Member& member = cast.members[victim];
        const std::string name = member.name;
        if (name == "director") {
          continue;
        }
        member.machine = std::make_unique<Failing>(std::move(member.machine), 7);
        Deaf deaf;
        const TimeModel times(sections::clock(*b.experiment), b.times, 1);
        const auto start = std::chrono::steady_clock::now();
        Ending ending;
        if (threads) {
          ending = run_on_threads(cast, deaf, {});
        } else {
          Agenda agenda(cast, times, deaf, nullptr);
          ending = agenda.run();
        }
        INFO(name << (threads ? " on threads" : " on the virtual clock"));
        CHECK(ending.exit_code == 5);
        CHECK(ending.cause == name + " is lost: a kernel failed");
        WARN("noticed after "
             << std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count()
             << " s");
      }
    }
  }
}

TEST_CASE("a stall is explained", "[system]") {
  const auto e = experiment(tiny_task("10,9,8", "relu"),
                            {"pipeline.stages=3", "pipeline.schedule=async_one_f_one_b"});
  int seen = 0;
  const Outcome outcome = run(e, {.threads = false, .lose = [&](ActorId, const Message& message) {
                                    return holds_alternative<ErrorSignal>(message) && ++seen == 9;
                                  }});
  CHECK(outcome.ending.exit_code == 5);
  INFO(outcome.ending.cause);
  CHECK(outcome.ending.cause.find("the run has stalled:") == 0);
  CHECK(outcome.ending.cause.find("needs B(") != std::string::npos);
  CHECK(outcome.ending.cause.find("waits for") != std::string::npos);
}

TEST_CASE("a stall on threads is given up and explained", "[system]") {
  const Blueprint b = blueprint();
  Cast cast = build_cast(b);

  // A stage that swallows everything from its 20th message on.
  class Mute final : public Machine {
   public:
    explicit Mute(std::unique_ptr<Machine> inner) : inner_(std::move(inner)) {}

    void on(Message message, double now, Effects& effects) override {
      if (++seen_ < 20) {
        inner_->on(std::move(message), now, effects);
      }
    }

    std::string waits_for() const override { return inner_->waits_for(); }

   private:
    std::unique_ptr<Machine> inner_;
    int seen_ = 0;
  };

  for (Cast::Member& member : cast.members) {
    if (member.name == "stage-1") {
      member.machine = std::make_unique<Mute>(std::move(member.machine));
    }
  }
  Deaf deaf;
  ThreadOptions options;
  options.stall_seconds = 0.5;
  const Ending ending = run_on_threads(cast, deaf, options);
  CHECK(ending.exit_code == 5);
  INFO(ending.cause);
  CHECK(ending.cause.find("stage-2 waits for") != std::string::npos);
  CHECK(ending.cause.find("of stage 1") != std::string::npos);
  REQUIRE(ending.weights.size() == 3);  // the shards are well, and hand in what they have
  for (const Weights& chunk : ending.weights) {
    CHECK(chunk.size() == 1);
  }
}

TEST_CASE("a stall keeps what has been learned, and its records", "[system]") {
  // Takes five pushes, and never another.
  class TakesFive final : public Admission {
   public:
    Choice choose(const std::vector<Arrival>&, const Ledger& ledger, double) const override {
      return ledger.version < 5 ? Choice{.take = {0}} : Choice{};
    }
  };

  REQUIRE(register_rule(
      {.info = {.name = "takes_five", .summary = ""}, .admission = [](const RuleContext&) {
         return std::make_unique<TakesFive>();
       }}));
  const auto directory = std::filesystem::temp_directory_path() / "troupe-failure-test-stall";
  std::filesystem::remove_all(directory);
  const auto ended = [&](const std::vector<std::string>& set, const RunOptions& options) {
    const auto b = make_blueprint(experiment(tiny_task("10,9,8", "relu"), set));
    REQUIRE(b);
    const auto result = run_experiment(*b, options);
    REQUIRE(result);
    return *result;
  };
  RunOptions kept;
  kept.virtual_clock = true;
  kept.directory = directory;
  RunOptions virtual_clock;
  virtual_clock.virtual_clock = true;
  const std::string rule = "replicas.rule.custom.name=takes_five";
  const RunResult stalled = ended({rule, "stop.updates=9"}, kept);
  const RunResult five = ended({rule, "stop.updates=5"}, virtual_clock);
  CHECK(five.exit_code == 0);
  CHECK(stalled.exit_code == 5);
  CHECK_THAT(stalled.cause, says("the run has stalled:"));
  CHECK_THAT(stalled.cause, says("waits for pushes; 1 are waiting"));
  CHECK_THAT(stalled.cause, says("the newest weights of each chunk, is kept"));
  CHECK(stalled.summary.updates == 5);
  CHECK(stalled.summary.weights_sha256 == five.summary.weights_sha256);
  CHECK(std::filesystem::exists(directory / kWeightsFile));
  std::ostringstream summary;
  summary << std::ifstream(directory / "summary.json").rdbuf();
  CHECK_THAT(summary.str(), says(R"("outcome": "lost")"));
  CHECK_THAT(summary.str(), says(R"("cause": "the run has stalled: )"));
  std::filesystem::remove_all(directory);
}

TEST_CASE("a divergence on servers is told with the versions that there were", "[system]") {
  // Counts the updates of the first server.
  class Counting final : public RecordSink {
   public:
    std::optional<Diverged> on(const RecordEntry& entry, double) override {
      if (const auto* applied = std::get_if<AppliedRecord>(&entry)) {
        versions = std::max(versions, applied->applied_to + 1);
      }
      return std::nullopt;
    }

    std::int64_t versions = 0;
  };

  for (const int p : {1, 2, 8}) {
    for (const char* rule : {"asgd", "softsync"}) {
      INFO(rule << ", n_push " << p);
      const auto b = make_blueprint(
          experiment("model { quadratic { layers: 1 } } data { none {} batch_size: 1 } optimizer { "
                     "rule: sgd learning_rate: 8 } record { evaluate: false order: false }",
                     {"replicas.count=4",
                      concat("replicas.exchange.parameter_server.n_push=", p),
                      concat("replicas.rule=", rule),
                      "stop.updates=102"}));
      REQUIRE(b);
      Counting counting;
      const auto result = run_experiment(
          *b, {.virtual_clock = true, .directory = {}, .interrupts = {}, .tee = &counting});
      REQUIRE(result);
      CHECK(result->exit_code == 4);
      CHECK(counting.versions > 0);
      CHECK(counting.versions < 102);
      CHECK(result->summary.updates == counting.versions);
    }
  }
}

TEST_CASE("duplicated pushes and pulls do no harm", "[system]") {
  const Blueprint b = blueprint({"pipeline.weights=stash", "stop.updates=40"});
  const auto train = [&](bool twice) {
    Cast cast = build_cast(b);
    Deaf deaf;
    const TimeModel times(sections::clock(*b.experiment), b.times, 1);
    Agenda agenda(cast, times, deaf, nullptr);
    if (twice) {
      agenda.lose = [&](ActorId to, const Message& message) {
        if (holds_alternative<Push>(message) || holds_alternative<Pull>(message)) {
          agenda.post(agenda.now(), to, message);  // once more than it is sent
        }
        return false;
      };
    }
    const Ending ending = agenda.run();
    REQUIRE(ending.exit_code == 0);
    return flatten(b, ending.weights);
  };
  CHECK(same(train(true), train(false)));
}

TEST_CASE("a loss that is not finite ends the run at the first bad mini-batch", "[system]") {
  const std::vector<std::string> wild{"optimizer.learning_rate=1e9", "stop.updates=500"};
  const Outcome outcome = run(experiment(tiny_task("10,9", "relu"), wild));
  CHECK(outcome.ending.exit_code == 4);
  CHECK(outcome.ending.cause.find("training diverged: the loss of mini-batch ") == 0);
  std::vector<std::string> allowed = wild;
  allowed.emplace_back("stop.allow_divergence=true");
  CHECK(run(experiment(tiny_task("10,9", "relu"), allowed)).ending.exit_code == 0);
  const Outcome threads =
      run(experiment(tiny_task("10,9", "relu"), wild), {.threads = true, .lose = {}});
  CHECK(threads.ending.exit_code == 4);
  CHECK(threads.ending.cause == outcome.ending.cause);
}

TEST_CASE("a met target ends the run with the weights of the evaluation that met it", "[system]") {
  const std::vector<std::string> options{"stop.updates=400",
                                         "stop.target_accuracy=0.3",
                                         "record.evaluate=true",
                                         "record.evaluate_every=10",
                                         "pipeline.stages=2",
                                         "pipeline.schedule=async_one_f_one_b"};
  const Outcome outcome = run(experiment(tiny_task("32,16", "tanh"), options));
  REQUIRE(outcome.ending.exit_code == 0);
  CHECK(outcome.ending.step < 400);
  CHECK(outcome.ending.step % 10 == 0);
  bool met = false;
  for (const EvaluationRecord& evaluation : outcome.evaluations) {
    met |= evaluation.step == outcome.ending.step && evaluation.accuracy >= 0.3;
  }
  CHECK(met);
  // On the real clock later mini-batches may have been admitted, but the weights reported are the
  // same.
  CHECK(same(
      run(experiment(tiny_task("32,16", "tanh"), options), {.threads = true, .lose = {}}).weights,
      outcome.weights));
}

TEST_CASE("a limit of seconds lets what was admitted finish", "[system]") {
  const Outcome outcome = run(experiment(tiny_task("10,9,8", "relu"),
                                         {"pipeline.stages=3",
                                          "stop.updates=0",
                                          "stop.seconds=50",
                                          "clock.forward.seconds=1",
                                          "clock.input_gradient.seconds=1",
                                          "clock.weight_gradient.seconds=1"}));
  REQUIRE(outcome.ending.exit_code == 0);
  CHECK(outcome.ending.step > 3);
  CHECK(outcome.ending.step < 20);
  CHECK(outcome.applied.size() == static_cast<std::size_t>(3 * outcome.ending.step));
}

}  // namespace failure_test
