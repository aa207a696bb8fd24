// A run goes on on another topology: what it keeps, what it drops and says, and what is refused.
#include "apps/run/recut.hpp"

#include "apps/run/run.hpp"
#include "apps/topologies/blueprint.hpp"
#include "messages/experiment.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/harness.hpp"
#include "tests/support/program.hpp"

#include <csignal>
#include <filesystem>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace recut_test {

using namespace troupe;
using namespace troupe::test;
namespace fs = std::filesystem;

namespace {

constexpr std::int64_t kUpdates = 36;

/// A network with statistics: convolution, batch norm, dropout.
const char* const kImages = R"(
  model { layers {
    layer { convolution { outputs: 3 kernel: 3 } } layer { batch_norm {} } layer { activation {} }
    layer { dropout { rate: 0.2 } } layer { max_pool { kernel: 2 } } layer { dense { outputs: 12 } }
    layer { activation {} } layer { dense {} } } }
  data { batch_size: 16 glyphs { limit: 320 test_limit: 40 } }
)";

const Options kFlushed{"pipeline.micro_batches=2",
                       "stop.updates=" + std::to_string(kUpdates),
                       "record.evaluate=true",
                       "record.evaluate_every=5",
                       "record.checkpoint.every=1",
                       "clock.flops=1e9"};

struct Played {
  RunResult result;
  std::vector<Checkpoint> checkpoints;
  std::vector<LossRecord> losses;
  std::vector<EvaluationRecord> evaluations;
};

class Ears final : public RecordSink {
 public:
  explicit Ears(Played& ran) : ran_(ran) {}

  std::optional<Diverged> on(const RecordEntry& entry, double) override {
    if (const auto* loss = std::get_if<LossRecord>(&entry)) {
      ran_.losses.push_back(*loss);
    } else if (const auto* evaluation = std::get_if<EvaluationRecord>(&entry)) {
      ran_.evaluations.push_back(*evaluation);
    }
    return {};
  }

 private:
  Played& ran_;
};

Played ran(const proto::Experiment& e,
           const Checkpoint* from = nullptr,
           bool virtual_clock = true) {
  const auto blueprint = make_blueprint(e);
  REQUIRE(blueprint);
  Played all;
  Ears ears(all);
  const auto result = run_experiment(*blueprint,
                                     {.virtual_clock = virtual_clock,
                                      .directory = {},
                                      .resume = from,
                                      .new_folder = from != nullptr,
                                      .kept = &all.checkpoints,
                                      .interrupts = {},
                                      .tee = &ears});
  INFO((result ? result->cause : result.error().message));
  REQUIRE(result);
  all.result = *result;
  CHECK(all.result.exit_code == 0);
  return all;
}

Recut recut_at(const Played& before, std::size_t which, const Options& set) {
  const auto made =
      recut({.path = "before", .checkpoint = before.checkpoints.at(which), .passed_over = {}}, set);
  INFO((made ? "" : made.error().message));
  REQUIRE(made);
  return *made;
}

std::string refused(const Played& before, const Options& set) {
  const auto made =
      recut({.path = "before", .checkpoint = before.checkpoints.at(3), .passed_over = {}}, set);
  REQUIRE_FALSE(made);
  return made.error().message;
}

BoxedExperiment tiny(const Options& set) {
  return experiment(tiny_task("12,10,9,8"), joined(kFlushed, set));
}

}  // namespace

TEST_CASE("flushed schedules end with the weights of one piece, on one, two and three stages",
          "[apps]") {
  std::mt19937 random(7);
  const auto draw = [&](std::size_t n) {
    return std::uniform_int_distribution<std::size_t>(0, n - 1)(random);
  };

  struct Task {
    std::string text;
    Options set;
  };

  for (const Task& task :
       {Task{tiny_task("12,10,9,8"), {"optimizer.rule=momentum"}},
        Task{tiny_task("12,10,9,8"), {"optimizer.rule=adam", "optimizer.schedule=cosine"}},
        Task{tiny_task("12,10,9,8"), {"optimizer.rule=nadamw", "optimizer.warm_up=20"}},
        Task{tiny_task("12,10,9,8"), {"optimizer.rule=muon"}},
        Task{tiny_task("12,10,9,8"), {"optimizer.rule=soap", "optimizer.rotation.every=3"}},
        Task{kImages, {"optimizer.rule=momentum"}},
        Task{kImages, {"optimizer.rule=adam"}}}) {
    INFO(task.set.front());
    const Played whole = ran(experiment(task.text, joined(kFlushed, task.set)));
    const std::string digest = whole.result.summary.weights_sha256;
    const std::size_t first = draw(20);
    const Recut two = recut_at(whole, first, {"pipeline.stages=2", "pipeline.schedule=gpipe"});
    CHECK_THAT(two.sentence, says("goes on"));
    const Played on_two = ran(two.experiment, &two.checkpoint);
    CHECK(on_two.result.summary.weights_sha256 == digest);
    CHECK(on_two.result.summary.updates == kUpdates);
    REQUIRE(!whole.evaluations.empty());
    REQUIRE(!on_two.evaluations.empty());
    CHECK(on_two.evaluations.back().loss == whole.evaluations.back().loss);
    const Recut three = recut_at(on_two,
                                 draw(on_two.checkpoints.size() / 2),
                                 {"pipeline.stages=3", "pipeline.schedule=one_f_one_b"});
    const Played on_three = ran(three.experiment, &three.checkpoint);
    CHECK(on_three.result.summary.weights_sha256 == digest);
    const Recut one = recut_at(on_three, 0, {"pipeline.stages=1"});
    CHECK(ran(one.experiment, &one.checkpoint, true).result.summary.weights_sha256 == digest);
    CHECK(one.experiment.resumed().mini_batches() == one.experiment.resumed().updates());
  }
}

TEST_CASE("DualPipe goes on with the same bits on another number of stages", "[apps]") {
  const Options both_ways{"pipeline.schedule=dual_pipe", "pipeline.micro_batches=8"};
  const Played whole = ran(tiny(joined(both_ways, {"pipeline.stages=2"})));
  const std::string digest = whole.result.summary.weights_sha256;
  const Recut four = recut_at(whole, 7, {"pipeline.stages=4"});
  const Played on_four = ran(four.experiment, &four.checkpoint);
  CHECK(on_four.result.summary.weights_sha256 == digest);
  CHECK(on_four.result.summary.updates == kUpdates);
  const Recut two = recut_at(on_four, 7, {"pipeline.stages=2"});
  CHECK(ran(two.experiment, &two.checkpoint, false).result.summary.weights_sha256 == digest);
  // Another schedule adds up in another order.
  const Recut other = recut_at(whole, 7, {"pipeline.schedule=one_f_one_b"});
  const Played on_other = ran(other.experiment, &other.checkpoint);
  CHECK(on_other.result.summary.updates == kUpdates);
  CHECK(on_other.result.summary.weights_sha256 != digest);
}

TEST_CASE("a run that goes on on another topology goes on exactly from its own checkpoints",
          "[apps]") {
  const Played whole = ran(tiny({}));
  const Recut two = recut_at(
      whole,
      10,
      {"pipeline.stages=2", "pipeline.schedule=async_one_f_one_b", "pipeline.weights=stash"});
  const Played plain = ran(two.experiment, &two.checkpoint);
  const auto blueprint = make_blueprint(two.experiment);
  REQUIRE(plain.checkpoints.size() > 8);
  const auto again = run_experiment(*blueprint,
                                    {.virtual_clock = true,
                                     .directory = {},
                                     .resume = &plain.checkpoints[8],
                                     .new_folder = true,
                                     .interrupts = {}});
  REQUIRE(again);
  CHECK(again->summary.weights_sha256 == plain.result.summary.weights_sha256);
}

TEST_CASE(
    "whatever the schemes before and after, a run keeps its updates and its place in the data",
    "[apps]") {
  const Options async{"pipeline.stages=3", "pipeline.schedule=async_one_f_one_b"};
  const auto replicas = [](int count, const std::string& exchange, const Options& more = {}) {
    return joined({"replicas.count=" + std::to_string(count), "replicas.exchange=" + exchange},
                  more);
  };
  const std::vector<Options> all{
      {"pipeline.stages=1", "replicas.count=1", "replicas.exchange=synchronous"},
      async,
      joined(async, {"pipeline.weights=spectrain"}),
      replicas(2, "synchronous"),
      replicas(3, "synchronous", {"replicas.exchange.synchronous.reduction=ring"}),
      replicas(2, "parameter_server", {"replicas.shards=2"}),
      replicas(3, "parameter_server", {"replicas.rule=softsync"}),
      replicas(2, "parameter_server", {"replicas.rule=dana_zero"}),
      replicas(2, "averaging", {"replicas.exchange.averaging.period=4"}),
      replicas(2, "diloco", {"replicas.exchange.diloco.period=4"}),
      replicas(4, "gossip"),
      joined(async, replicas(2, "wsp")),
  };
  std::mt19937 random(3);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto e = tiny(joined(all[i], {"optimizer.rule=momentum", "record.evaluate_every=100"}));
    const Played before = ran(e);
    REQUIRE(before.checkpoints.size() > 2);
    for (int time = 0; time < 2; ++time) {
      const std::size_t j = (i + 1 + random() % (all.size() - 1)) % all.size();
      const std::size_t which = random() % (before.checkpoints.size() * 2 / 3);
      INFO(i << " to " << j << " at checkpoint " << which);
      Options set = all[j];
      for (const char* const key : {"pipeline.stages=1",
                                    "pipeline.schedule=one_f_one_b",
                                    "pipeline.weights=latest",
                                    "replicas.shards=1",
                                    "replicas.rule=asgd",
                                    "replicas.exchange=parameter_server",
                                    "replicas.count=1",
                                    "stop.updates=120"}) {
        set.insert(set.begin(), key);
      }
      const Recut made = recut_at(before, which, set);
      INFO(made.sentence);
      const Played after = ran(made.experiment, &made.checkpoint);
      CHECK(after.result.summary.updates == 120);
      const auto count = made.experiment.replicas().count();
      std::set<std::pair<std::int64_t, std::int32_t>> places;
      for (const LossRecord& loss : after.losses) {
        const std::int64_t place = made.experiment.resumed().mini_batches() +
                                   loss.stamp.batch * count + loss.stamp.replica;
        CHECK(places.insert({place, loss.stamp.micro_batch}).second);
      }
      CHECK(places.begin()->first == made.experiment.resumed().mini_batches());
      const std::int64_t used =
          made.experiment.resumed().updates() * batches_per_update(made.experiment);
      CHECK(used <= made.experiment.resumed().mini_batches());
    }
  }
}

TEST_CASE("what a run cannot go on as is told", "[apps]") {
  const Played before = ran(tiny({}));
  CHECK_THAT(refused(before, {"model.mlp.hidden=[3]"}), says("model is what the checkpoint is of"));
  CHECK_THAT(refused(before, {"data.batch_size=48"}), says("data is what the checkpoint is of"));
  CHECK_THAT(refused(before, {"seed=9"}), says("seed is what the checkpoint is of"));
  CHECK_THAT(refused(before, {"stop.updates=2"}), says("nothing is left"));
  CHECK_THAT(refused(before, {"replicas.exchange=sandblaster"}), says("no pipeline"));
  CHECK_THAT(refused(before, {"resumed.updates=3"}),
             says("resumed.updates: an experiment has no key"));
  CHECK_THAT(refused(before, {"pipeline.stages=9000"}), says("pipeline.stages"));
}

TEST_CASE("a run that was killed goes on with other stages, in one process and in several",
          "[apps]") {
  const Folder folder;
  const std::vector<std::string> task{"run",
                                      "teacher-mlp",
                                      "--quiet",
                                      "--set",
                                      "data.teacher.train=1000",
                                      "--set",
                                      "data.teacher.test=100",
                                      "--set",
                                      "stop.epochs=0",
                                      "--set",
                                      "stop.updates=2000",
                                      "--set",
                                      "pipeline.schedule=gpipe",
                                      "--set",
                                      "pipeline.weights=latest",
                                      "--set",
                                      "record.checkpoint.every=100",
                                      "--set",
                                      "pipeline.stages=2",
                                      "--out"};
  const auto at = [&](const std::string& out, std::vector<std::string> words) {
    words.push_back(folder / out);
    return words;
  };
  const Said whole = run_program(at("whole", task));
  REQUIRE(whole.code == 0);
  Program program(at("run", task));
  wait_until([&] { return has_checkpoint(folder / "run"); });
  program.signal(SIGKILL);
  const int code = program.wait().code;
  CHECK((code == 128 + SIGKILL || code == 0));
  for (const std::string processes : {"1", "3"}) {
    const std::string out = folder / ("on-three-" + processes);
    const Said said = run_program({"run",
                                   "--resume",
                                   folder / "run",
                                   "--quiet",
                                   "--set",
                                   "pipeline.stages=3",
                                   "--out",
                                   out,
                                   "--processes",
                                   processes});
    INFO(said.err);
    CHECK(said.code == (code == 0 ? 2 : 0));
    if (code == 0) {
      continue;  // it was over
    }
    CHECK_THAT(said.err, says("resumed with other settings"));
    CHECK(digest_of(said) == digest_of(whole));
    const Said again = run_program({"run", "--resume", out, "--quiet"});
    CHECK(digest_of(again) == digest_of(whole));
    const Said replay = run_program({"replay", out});
    CHECK(replay.code == 3);
    CHECK_THAT(replay.err, says("on another topology; a replay begins with a run's beginning"));
    for (const auto& checkpoint : std::filesystem::directory_iterator(out + "/checkpoints")) {
      // On the real clock an update may have been at work: then it is not there, or neither is.
      const std::string file = checkpoint.path() / "optimizer.safetensors";
      INFO(file);
      if (fs::exists(file)) {
        CHECK(processes == "1");
        CHECK(fs::exists(checkpoint.path() / "weights.safetensors"));
        CHECK(run_program({"ckpt", "ls", file}).code == 0);
      }
    }
  }
}

}  // namespace recut_test
