// A recorded run of the real clock is replayed to the same bits, also where it chose by arrival and no two
// runs are alike; and a record that is not what happened is told from one that is. The verb and files that are
// wrong: tests/apps/replay_test.cpp. Some 400 more experiments: tests/tools/replay_matrix.py.
#include "apps/run/replay.hpp"

#include "apps/run/run.hpp"
#include "runtime/system/replay.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/harness.hpp"
#include "tests/support/program.hpp"

#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace replay_test {

using namespace troupe;
using namespace troupe::test;
namespace fs = std::filesystem;

namespace {

using Recast = std::function<void(Cast&)>;

BoxedExperiment task(const Options& set) {
  Options all{"record.order=true", "record.weights=false", "stop.updates=16"};
  all.insert(all.end(), set.begin(), set.end());
  return experiment(tiny_task("10,9,8"), all);
}

/// Runs it on the real clock; its record is in `folder`.
RunResult recorded(const proto::Experiment& e, const fs::path& folder, const Recast& recast = {}) {
  const auto blueprint = make_blueprint(e);
  if (!blueprint) {
    FAIL(blueprint.error().message);
  }
  RunOptions options;
  options.directory = folder;
  options.recast = recast;
  const auto result = run_experiment(*blueprint, options);
  if (!result) {
    FAIL(result.error().message);
  }
  return *result;
}

Replayed replayed(const fs::path& folder, const Recast& recast = {}) {
  ReplayOptions options;
  options.recast = recast;
  const auto result = replay(folder, options);
  if (!result) {
    FAIL(result.error().message);
  }
  return *result;
}

void check_equal(const Replayed& again, const RunResult& first) {
  for (const std::string& difference : again.differences) {
    FAIL_CHECK(difference);
  }
  CHECK(again.deliveries > 0);
  CHECK(again.summary.weights_sha256 == first.summary.weights_sha256);
  CHECK(again.summary.order_sha256 == first.summary.order_sha256);
  CHECK(again.summary.updates == first.summary.updates);
  REQUIRE(again.summary.staleness.size() == first.summary.staleness.size());
  for (const auto& [shard, staleness] : first.summary.staleness) {
    CHECK(again.summary.staleness.at(shard).histogram == staleness.histogram);
  }
}

const std::string kAsynchronous = "pipeline.schedule=async_one_f_one_b";

const std::vector<Options>& experiments() {
  static const std::string e = "replicas.exchange.";
  static const std::string server = e + "parameter_server.";
  static const std::vector<Options> all{
      {},
      {"pipeline.stages=3", "pipeline.schedule=gpipe", "pipeline.micro_batches=4"},
      {"pipeline.stages=3", "pipeline.schedule=zb_h1", "pipeline.micro_batches=2"},
      {"pipeline.stages=4", "pipeline.schedule=dual_pipe", "pipeline.micro_batches=8"},
      {"pipeline.stages=3", kAsynchronous, "pipeline.weights=stash", "optimizer.clip_norm=0.1"},
      {"pipeline.stages=3", kAsynchronous, "pipeline.weights=spectrain", "placement.optimizer=own"},
      {"pipeline.stages=3", "pipeline.schedule=async_full_duplex", "pipeline.weights=pipemare"},
      {"pipeline.stages=2", "pipeline.stage_of=[0,1,0]", kAsynchronous},
      {"pipeline.stages=3", "pipeline.schedule=sequential", "decoupled.synthetic.conditioned=true"},
      {"pipeline.stages=3", "pipeline.schedule=sequential", "decoupled.synthetic.unlocked=true"},
      {"pipeline.stages=3",
       "pipeline.schedule=sequential",
       "decoupled.synthetic.unlocked=true",
       "decoupled.synthetic.trains_on=estimate"},
      {"pipeline.stages=3", "decoupled=synthetic", "record.angle_every=2"},
      {"pipeline.stages=3", "decoupled.synthetic.freshest=true"},
      {"pipeline.stages=3", "pipeline.schedule=sequential", "decoupled.greedy.buffer=2"},
      {"pipeline.stages=3", "decoupled.greedy.buffer=2", "stop.updates=0", "stop.seconds=0.05"},
      {"replicas.count=3"},
      {"replicas.count=3", "record.evaluate=true", "record.evaluate_every=4", "record.gap_every=2"},
      {"replicas.count=2", "replicas.shards=2", "pipeline.stages=2", kAsynchronous},
      {"replicas.count=2", "pipeline.stages=2", kAsynchronous, "pipeline.weights=vertical_sync"},
      {"replicas.count=3", "replicas.rule.softsync.n=2"},
      {"replicas.count=3", "replicas.rule=softsync", "replicas.scale=staleness_aware"},
      {"replicas.count=3", "replicas.rule.ssp.bound=1"},
      {"replicas.count=3", "replicas.rule.essp.bound=1"},
      {"replicas.count=3", "replicas.rule=dana_zero", "replicas.rule.dana_zero.rate=sender"},
      {"replicas.count=3", "replicas.rule=dana_slim", "pipeline.stages=2", kAsynchronous},
      {"replicas.count=3", "replicas.rule=gap_aware"},
      {"replicas.count=3", "replicas.rule=dc_asgd"},
      {"replicas.count=3", "replicas.rule=fasgd"},
      {"replicas.count=3", "replicas.rule=ringmaster", "replicas.admit.ringmaster.bound=2"},
      {"replicas.count=3", "replicas.rule=delayed"},
      {"replicas.count=2", server + "n_push=2", server + "n_fetch=3"},
      {"replicas.count=2", server + "fetch=overlaps"},
      {"replicas.count=3", e + "synchronous.reduction=ring"},
      {"replicas.count=4", e + "synchronous.backup=1"},
      {"replicas.count=3", e + "averaging.period=3"},
      {"replicas.count=3", e + "easgd.period=3"},
      {"replicas.count=3", e + "diloco.period=4", e + "diloco.mode=asynchronous"},
      {"replicas.count=3", e + "diloco.period=4", e + "diloco.mode=quorum"},
      {"replicas.count=3", e + "diloco.period=4", e + "diloco.mode=decoupled"},
      {"replicas.count=3", e + "diloco.period=4", e + "diloco.mode=streaming"},
      {"replicas.count=4", e + "halos.period=2", e + "halos.accumulate=2"},
      {"replicas.count=2", e + "wsp.wave=2", "pipeline.stages=2", kAsynchronous},
      {"replicas.count=2", e + "sandblaster.portions=5", "data.batch_size=512", "stop.updates=3"},
      // What time decides.
      {"replicas.count=2", "stop.updates=0", "stop.seconds=0.05"},
      {"replicas.count=2", "clock.workers.hold_back=[1,4]"},
      {"replicas.count=3",
       "clock.modelled=true",
       "clock.forward.seconds=0.001",
       "clock.forward.gamma.shape=2",
       "clock.link.seconds=0.0005"},
  };
  return all;
}

std::string named(const Options& set) {
  std::string name;
  for (const std::string& one : set) {
    name += one + ' ';
  }
  return name;
}

}  // namespace

TEST_CASE("a recorded run is replayed bit for bit, whatever it chose by arrival",
          "[system][replay]") {
  for (const Options& set : experiments()) {
    INFO(named(set));
    const Folder folder;
    const RunResult first = recorded(task(set), folder / "run");
    REQUIRE(first.exit_code == 0);
    check_equal(replayed(folder / "run"), first);
  }
}

TEST_CASE("a replay follows its record, not the luck of the day", "[system][replay]") {
  // Runs that differ, of one experiment: two records, two ends, each of them repeated.
  constexpr int kRunsMax = 50;
  const BoxedExperiment e = task({"replicas.count=3", "stop.updates=60"});
  const Folder folder;
  std::map<std::string, std::string> folders;  // by weights
  std::map<std::string, RunResult> results;
  for (int i = 0; i < kRunsMax && folders.size() < 3; ++i) {
    const std::string run = folder / std::to_string(i);
    RunResult result = recorded(e, run);
    const std::string weights = result.summary.weights_sha256;
    folders.emplace(weights, run);
    results.emplace(weights, std::move(result));
  }
  REQUIRE(folders.size() == 3);
  for (const auto& [weights, run] : folders) {
    check_equal(replayed(run), results.at(weights));
    check_equal(replayed(run), results.at(weights));  // as often as one likes
  }
}

TEST_CASE("a replica that died dies again, at the same message", "[system][replay]") {
  for (const char* how : {"replicas.rule=asgd",
                          "replicas.exchange=synchronous",
                          "replicas.exchange.easgd.period=3"}) {
    INFO(how);
    const Recast recast = [](Cast& cast) {
      Cast::Member& stage = member(cast, "stage-1.0");
      stage.machine = failing_at(std::move(stage.machine), 5);
    };
    const Folder folder;
    const RunResult first =
        recorded(task({"replicas.count=3", how, "stop.updates=200"}), folder / "run", recast);
    REQUIRE(first.exit_code == 0);
    REQUIRE(first.summary.told.at("lost").size() == 1);
    const Replayed again = replayed(folder / "run", recast);
    check_equal(again, first);
    CHECK(again.summary.told == first.summary.told);

    const Replayed healthy = replayed(folder / "run");  // nobody dies here
    REQUIRE(healthy.differences.size() == 1);
    CHECK_THAT(healthy.differences.front(), says("departs from the record at"));
  }
}

TEST_CASE("a run that was lost is replayed to the same loss", "[system][replay]") {
  const Recast recast = [](Cast& cast) {
    Cast::Member& stage = member(cast, "stage-1");
    stage.machine = failing_at(std::move(stage.machine), 5);
  };
  const Folder folder;
  const RunResult first =
      recorded(task({"pipeline.stages=3", kAsynchronous}), folder / "run", recast);
  REQUIRE(first.exit_code == 5);
  check_equal(replayed(folder / "run", recast), first);
}

TEST_CASE("a run that diverged is replayed to the same mini-batch", "[system][replay]") {
  const Folder folder;
  const RunResult first = recorded(task({"pipeline.stages=3",
                                         kAsynchronous,
                                         "optimizer.learning_rate=1e20",
                                         "model.mlp.activation=relu"}),
                                   folder / "run");
  REQUIRE(first.exit_code == 4);
  check_equal(replayed(folder / "run"), first);
}

}  // namespace replay_test
