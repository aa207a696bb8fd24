#include "runtime/record/recorder.hpp"

#include "experiment.pb.h"
#include "kernels/stream.hpp"
#include "messages/experiment.hpp"
#include "tests/support/catch.hpp"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>

namespace recorder_test {

using namespace troupe;

namespace {

/// A Recorder whose metrics.jsonl can be read line by line.
struct Bench {
  std::filesystem::path path =
      std::filesystem::temp_directory_path() / "troupe-recorder-test.jsonl";
  std::unique_ptr<OutputFile> file;
  std::vector<std::string> told;  // as the lines were written
  std::unique_ptr<Recorder> recorder;
  Stream stream{Device{}};

  static BatchSizes sizes_of(const proto::Experiment& e, std::int64_t batches_per_epoch) {
    const std::int64_t batch_size = e.data().batch_size();
    return {batches_per_epoch * batch_size, batch_size};
  }

  explicit Bench(std::initializer_list<const char*> assignments,
                 std::int32_t chunks = 1,
                 std::int64_t batches_per_epoch = 4,
                 bool arrivals = false,
                 std::int64_t batches = 0) {
    proto::Experiment experiment;
    for (const char* assignment : assignments) {
      REQUIRE(set_value(experiment, assignment));
    }
    REQUIRE(resolve(experiment));
    auto made = OutputFile::create(path);
    REQUIRE(made);
    file = std::move(*made);
    std::vector<std::int32_t> stages;
    for (std::int32_t k = 0; k < experiment.pipeline().stages(); ++k) {
      stages.push_back(k);
    }
    recorder = std::make_unique<Recorder>(
        Recorder::Config{.experiment = experiment,
                         .clock = "virtual",
                         .sizes = sizes_of(experiment, batches_per_epoch),
                         .batches = batches,
                         .arrivals = arrivals,
                         .chunks = chunks,
                         .classes = true,
                         .stage_of_actor = stages,
                         .line =
                             [this](std::string_view line) {
                               told.emplace_back(line);
                             }},
        file.get(),
        nullptr);
  }

  ~Bench() { std::filesystem::remove(path); }

  std::optional<Diverged> loss(
      std::int64_t batch, std::int32_t micro_batch, double sum, double right, double now = 0) {
    Tensor result = stream.allocate({2}, DType::float64);
    result.span<double>()[0] = sum;
    result.span<double>()[1] = right;
    return recorder->on(LossRecord{{.batch = batch, .micro_batch = micro_batch}, 10, 10, result},
                        now);
  }

  void applied(std::int32_t chunk,
               std::int64_t batch,
               std::vector<std::int64_t> forward_versions,
               double now = 0,
               double gap = -1) {
    AppliedRecord record{.stamp = {.chunk = chunk, .batch = batch},
                         .applied_to = batch,
                         .rate = 0.5,
                         .seconds = 2,
                         .gap = gap,
                         .reads = {}};
    std::int32_t micro_batch = 0;
    for (const std::int64_t version : forward_versions) {
      record.reads.push_back({.micro_batch = micro_batch++,
                              .forward = {version, {ReachKind::linear, 3}},
                              .backward = {version, {}},
                              .forward_version = version,
                              .backward_version = version});
    }
    CHECK_FALSE(recorder->on(record, now));
  }

  std::vector<std::string> lines(const std::string& kind) {
    REQUIRE(file->flush());
    std::vector<std::string> found;
    std::ifstream in(path);
    for (std::string line; std::getline(in, line);) {
      if (line.find("\"kind\":\"" + kind + "\"") != line.npos) {
        found.push_back(line);
      }
    }
    return found;
  }
};

}  // namespace

TEST_CASE("the header comes first and says what the file is", "[record]") {
  Bench bench({"name=mine", "seed=7"});
  CHECK(bench.lines("header") ==
        std::vector<std::string>{
            R"({"kind":"header","schema":1,"clock":"virtual","name":"mine","seed":7})"});
}

TEST_CASE("who watches is told each line as it is written", "[record]") {
  Bench bench({"record.every=2", "data.batch_size=10"});
  CHECK(bench.told == bench.lines("header"));
  bench.loss(0, 0, 20, 1, 1);
  CHECK(bench.told.size() == 1);
  bench.applied(0, 0, {0}, 2);
  CHECK(std::vector(bench.told.begin() + 1, bench.told.end()) == bench.lines("train"));
}

TEST_CASE("a train line is about whole steps: after the first and then every so many", "[record]") {
  Bench bench({"record.every=2", "data.batch_size=10"});
  bench.loss(0, 0, 20, 1, 1);
  CHECK(bench.lines("train").empty());  // not applied yet
  bench.applied(0, 0, {0}, 2);
  CHECK(
      bench.lines("train") ==
      std::vector<std::string>{
          R"({"kind":"train","step":1,"epoch":0.25,"loss":2,"accuracy":0.1,"samples_per_second":5,"rate":0.5,"staleness_p50":0,"staleness_max":0,"seconds":2,"busy":0,"idle":{"data":0,"activation":0,"error":0,"weights":0}})"});
  for (std::int64_t batch = 1; batch < 4; ++batch) {
    const auto now = static_cast<double>(2 + batch);
    bench.loss(batch, 0, static_cast<double>(10 * batch), 5, now);
    bench.applied(0, batch, {batch - 1}, now);
  }
  const auto lines = bench.lines("train");
  REQUIRE(lines.size() == 3);
  CHECK_THAT(lines[1], test::says(R"("step":2,"epoch":0.5,"loss":1,)"));
  CHECK_THAT(
      lines[2],
      test::says(R"("step":4,"epoch":1,"loss":2.5,"accuracy":0.5,"samples_per_second":10,)"));
  CHECK_THAT(lines[2], test::says(R"("staleness_p50":1,"staleness_max":1)"));
  bench.loss(4, 0, 10, 0, 7);
  bench.applied(0, 4, {4}, 7);
  bench.recorder->finish(0);  // the rest
  CHECK(bench.lines("train").size() == 4);
  CHECK(bench.recorder->completed() == 5);
}

TEST_CASE("means are summed in the order of Stamps, whoever was faster", "[record]") {
  // 1e16 + 1 - 1e16 is 0 or 1 in doubles, depending on the order.
  const std::vector<double> sums{1e16, 1, -1e16, 3};
  const auto train_loss = [&](std::vector<std::int32_t> order) {
    Bench bench({"pipeline.micro_batches=4", "data.batch_size=40"});
    bench.applied(0, 0, {0, 0, 0, 0});
    for (const std::int32_t j : order) {
      bench.loss(0, j, sums[static_cast<std::size_t>(j)], 0);
    }
    bench.recorder->finish(0);
    return bench.recorder->summary(1).train_loss;
  };
  const double expected = (((1e16 + 1) + -1e16) + 3) / 40;
  CHECK(train_loss({0, 1, 2, 3}) == expected);
  CHECK(train_loss({3, 1, 0, 2}) == expected);
}

TEST_CASE("steps may overtake each other between shards", "[record]") {
  Bench bench({"record.every=1", "data.batch_size=10"}, 2);
  bench.loss(0, 0, 10, 0);
  bench.applied(1, 0, {0});
  bench.loss(1, 0, 20, 0);
  bench.applied(1, 1, {1});
  CHECK(bench.recorder->completed() == 0);
  bench.applied(0, 0, {0});
  CHECK(bench.recorder->completed() == 1);
  bench.applied(0, 1, {0});
  CHECK(bench.recorder->completed() == 2);
  CHECK(bench.lines("train").size() == 2);
}

TEST_CASE("the first loss that is not finite is told, once", "[record]") {
  Bench bench({"data.batch_size=10"});
  CHECK_FALSE(bench.loss(0, 0, 1, 0));
  const auto diverged = bench.loss(1, 0, -std::numeric_limits<double>::quiet_NaN(), 0);
  REQUIRE(diverged);
  CHECK(diverged->stamp.batch == 1);
  CHECK(std::isnan(diverged->loss));
  CHECK_FALSE(std::signbit(diverged->loss));  // or people read "-nan"
  CHECK_FALSE(bench.loss(2, 0, std::numeric_limits<double>::infinity(), 0));
  CHECK(bench.recorder->diverged()->stamp.batch == 1);
  CHECK(std::isnan(bench.recorder->summary(1).train_loss));
}

TEST_CASE("of one replica on servers a loss behind the run's end is no divergence", "[record]") {
  const double infinite = std::numeric_limits<double>::infinity();
  Bench bench({}, 1, 4, true, 9);
  CHECK_FALSE(
      bench.loss(9, 0, infinite, 0));  // whose mini-batch may be under way when the run ends
  CHECK(bench.loss(8, 0, infinite, 0));
}

TEST_CASE("staleness has one entry a micro-batch read", "[record]") {
  Bench bench({"pipeline.micro_batches=2", "data.batch_size=20"}, 2);
  bench.applied(0, 0, {0, 0});
  bench.applied(0, 1, {0, 1});
  bench.applied(0, 2, {0, 1});
  bench.applied(1, 0, {0, 0});
  const Summary summary = bench.recorder->summary(0);
  const auto& first = summary.staleness.at(0);
  CHECK(first.histogram == std::map<std::int64_t, std::int64_t>{{0, 3}, {1, 2}, {2, 1}});
  CHECK(first.mean == Approx(4.0 / 6));
  CHECK(first.max == 2);
  CHECK(first.seconds_mean == 2);
  CHECK(summary.staleness.at(1).histogram == std::map<std::int64_t, std::int64_t>{{0, 2}});
}

TEST_CASE("versions are written a micro-batch and chunk when asked for", "[record]") {
  Bench without({});
  without.applied(0, 5, {3});
  CHECK(without.lines("versions").empty());
  Bench with({"record.versions=true"}, 2);
  with.applied(1, 5, {3, 4});
  CHECK(
      with.lines("versions") ==
      std::vector<std::string>{
          R"({"kind":"versions","replica":0,"batch":5,"micro_batch":0,"stage":1,"forward":3,"forward_steps":3,"backward":3,"backward_steps":0,"applied_to":5})",
          R"({"kind":"versions","replica":0,"batch":5,"micro_batch":1,"stage":1,"forward":4,"forward_steps":3,"backward":4,"backward_steps":0,"applied_to":5})"});
}

TEST_CASE("a train line has each stage's shares and each shard's staleness since the last one",
          "[record]") {
  Bench bench({"record.every=1", "pipeline.stages=2"}, 2);
  const auto step = [&](std::int64_t batch, std::int64_t first, std::int64_t second, double now) {
    CHECK_FALSE(bench.recorder->on(
        BusyRecord{.actor = 1, .start = now - 1, .end = now - 0.5, .what = "forward", .stamp = {}},
        now));
    bench.loss(batch, 0, 20, 1, now);
    bench.applied(0, batch, {first}, now);
    bench.applied(1, batch, {second}, now);
  };
  step(0, 0, 0, 1);
  step(1, 0, 1, 3);
  const auto lines = bench.lines("train");
  REQUIRE(lines.size() == 2);
  CHECK_THAT(
      lines[0],
      test::says(
          R"("stages":{"stage-0":{"busy":0,"idle":{"data":0,"activation":0,"error":0,"weights":0}},"stage-1":{"busy":0.5,)") &&
          test::says(R"("shards":{"shard-0":{"mean":0,"max":0},"shard-1":{"mean":0,"max":0}})"));
  CHECK_THAT(
      lines[1],
      test::says(R"("stage-1":{"busy":0.25,)") &&
          test::says(R"("shards":{"shard-0":{"mean":1,"max":1},"shard-1":{"mean":0,"max":0}})"));
}

TEST_CASE("a train line to which no loss has come says null, not 0", "[record]") {
  Bench bench({"record.every=1"}, 1, 4, true);
  bench.loss(0, 0, 20, 1, 1);
  bench.applied(0, 0, {0}, 1);
  bench.applied(0, 1, {1}, 2);
  const auto lines = bench.lines("train");
  REQUIRE(lines.size() == 2);
  CHECK_THAT(lines[0], test::says(R"("loss":2,"accuracy":0.1,)"));
  CHECK_THAT(lines[1], test::says(R"("loss":null,"accuracy":null,)"));
}

TEST_CASE("gaps are averaged a shard", "[record]") {
  Bench bench({});
  bench.applied(0, 0, {0}, 0, 0.5);
  bench.applied(0, 1, {0}, 0, -1);  // not measured
  bench.applied(0, 2, {0}, 0, 1.5);
  CHECK(bench.recorder->summary(0).gap.at(0) == 1);
  CHECK(bench.lines("gap").size() == 2);
  CHECK(bench.lines("gap").back() == R"({"kind":"gap","step":2,"shard":"shard-0","gap":1.5})");
}

TEST_CASE("the last evaluation counts only at the weights that are reported", "[record]") {
  Bench bench({});
  bench.recorder->on(
      EvaluationRecord{
          .step = 8, .loss = 0.5, .accuracy = 0.9, .has_accuracy = true, .samples = 100},
      3);
  CHECK(
      bench.lines("evaluation") ==
      std::vector<std::string>{
          R"({"kind":"evaluation","step":8,"epoch":2,"loss":0.5,"accuracy":0.9,"samples":100,"seconds":3})"});
  CHECK(bench.recorder->summary(8).test_accuracy == 0.9);
  CHECK_FALSE(bench.recorder->summary(9).test_loss);
  // Another, which was under way when that one ended the run, does not take its place.
  bench.recorder->on(
      EvaluationRecord{
          .step = 10, .loss = 0.4, .accuracy = 0.8, .has_accuracy = true, .samples = 100},
      4);
  CHECK(bench.recorder->summary(8).test_accuracy == 0.9);
}

TEST_CASE("how far replicas are from their mean is told with the evaluation", "[record]") {
  Bench bench({});
  CHECK_FALSE(bench.recorder->on(EvaluationRecord{.step = 2}, 1));
  CHECK_FALSE(bench.recorder->on(ConsensusRecord{.step = 4, .distances = {1, 2, -1, 6}}, 2));
  CHECK_FALSE(
      bench.recorder->on(ConsensusRecord{.chunk = 1, .step = 4, .distances = {3, 0, -1, 0}}, 2));
  CHECK_FALSE(bench.recorder->on(EvaluationRecord{.step = 4}, 2));
  const std::vector<std::string> lines = bench.lines("evaluation");
  REQUIRE(lines.size() == 2);
  CHECK(lines[0].find("consensus") == std::string::npos);
  CHECK_THAT(lines[1], test::says("\"consensus\":4,"));
  CHECK(bench.recorder->summary(2).consensus.empty());
  CHECK(bench.recorder->summary(4).consensus == std::vector<double>{4, 2, -1, 6});
  CHECK_THAT(to_json(bench.recorder->summary(4), {}),
             test::says("\"consensus\": 4,\n") && test::says("\"distances\": {"));
}

TEST_CASE("what each replica's own weights are worth is told apart", "[record]") {
  Bench bench({});
  const auto told = [&](std::int32_t replica, std::int64_t step, double loss, double accuracy) {
    bench.recorder->on(ReplicaRecord{.replica = replica,
                                     .step = step,
                                     .loss = loss,
                                     .accuracy = accuracy,
                                     .has_accuracy = true},
                       3);
  };
  told(1, 8, 0.5, 0.75);
  told(0, 8, 0.25, 1);
  told(3, 8, 0.75, 0.5);
  told(0, 12, 9, 0);
  bench.recorder->on(PassedOverRecord{4}, 3);
  bench.recorder->on(PassedOverRecord{3}, 3);
  CHECK(
      bench.lines("replica").front() ==
      R"({"kind":"replica","step":8,"epoch":2,"replica":1,"loss":0.5,"accuracy":0.75,"seconds":3})");
  const Summary s = bench.recorder->summary(8);
  REQUIRE(s.replicas.size() == 3);
  const OverReplicas loss = over_replicas(s.replicas, &ReplicaRecord::loss);
  CHECK(loss.mean == 0.5);
  CHECK(loss.deviation == Approx(std::sqrt(2 * 0.0625 / 3)));
  CHECK(loss.least == 0.25);
  CHECK(loss.greatest == 0.75);
  const std::string json = to_json(s, {});
  CHECK_THAT(json,
             test::says(R"("replica-3":{"loss":0.75,"accuracy":0.5})") &&
                 test::says(R"("replicas_accuracy": {"mean":0.75,)") &&
                 test::says(R"("evaluations_passed_over": 7)"));
  CHECK(bench.recorder->summary(9).replicas.empty());

  bench.recorder->on(ReplicaRecord{.replica = 0, .step = 20, .loss = 2}, 4);  // of values
  CHECK_THAT(bench.lines("replica").back(), test::says(R"("accuracy":null)"));
  CHECK(to_json(bench.recorder->summary(20), {}).find("replicas_accuracy") == std::string::npos);
}

TEST_CASE("the best evaluation is the last that the Director found better", "[record]") {
  Bench bench({"stop.patience=2"});
  const auto evaluated = [&](std::int64_t step, double loss, bool better, bool over) {
    bench.recorder->on(
        EvaluationRecord{.step = step, .loss = loss, .better = better, .patience_ended = over}, 1);
  };
  evaluated(2, 0.5, true, false);
  evaluated(4, 0.7, true, false);  // what was kept of the one before has died with its holder
  evaluated(6, 0.8, false, false);
  CHECK(bench.recorder->summary(2).best->loss == 0.5);
  CHECK(bench.recorder->summary(6).best->loss == 0.7);
  CHECK_FALSE(bench.recorder->summary(6).patience_ended);
  evaluated(8, 0.9, false, true);
  CHECK(bench.recorder->summary(8).patience_ended);
  CHECK_FALSE(bench.recorder->summary(9).patience_ended);
}

TEST_CASE("the training loss is that of the last epoch", "[record]") {
  Bench bench({"data.batch_size=10"}, 1, 2);
  for (std::int64_t batch = 0; batch < 5; ++batch) {
    bench.loss(batch, 0, static_cast<double>(10 * batch), 0);
    bench.applied(0, batch, {batch});
  }
  const Summary summary = bench.recorder->summary(5);
  CHECK(summary.train_loss == 3.5);  // of mini-batches 3 and 4
  CHECK(summary.epochs == 2.5);
  CHECK(summary.samples == 50);
}

TEST_CASE("of one replica on servers the training loss is of what was applied", "[record]") {
  Bench bench({"data.batch_size=10"}, 1, 2, true);
  for (std::int64_t batch = 0; batch < 5; ++batch) {
    bench.loss(batch, 0, static_cast<double>(10 * batch), 0);
    bench.applied(0, batch, {batch});
  }
  bench.loss(5, 0, 1000, 0);  // on their way when the run ends
  bench.loss(6, 0, 1000, 0);
  CHECK(bench.recorder->summary(5).train_loss == 3.5);  // of mini-batches 3 and 4
}

TEST_CASE("a loss that comes when its chunk is an epoch further is kept", "[record]") {
  Bench bench({"data.batch_size=10"}, 1, 2, true);
  for (std::int64_t batch = 0; batch < 10; ++batch) {
    bench.applied(0, batch, {batch});
  }
  for (std::int64_t batch = 0; batch < 10; ++batch) {
    bench.loss(batch, 0, 10 * static_cast<double>(batch), 0);
  }
  CHECK(bench.recorder->summary(10).train_loss == 8.5);  // of mini-batches 8 and 9
}

TEST_CASE("a stage's busy share is of the run's seconds", "[record]") {
  Bench bench({"pipeline.stages=2"}, 2);
  bench.recorder->on(BusyRecord{.actor = 0, .start = 0, .end = 3, .what = "forward", .stamp = {}},
                     0);
  bench.recorder->on(BusyRecord{.actor = 9, .start = 0, .end = 3, .what = "update", .stamp = {}},
                     0);  // no stage's
  bench.recorder->on(StageRecord{.stage = 1, .stashes_max = 4}, 6);
  bench.recorder->finish(12);  // nothing happened in the second half
  const Summary summary = bench.recorder->summary(0);
  CHECK(summary.seconds == 12);
  CHECK(summary.busy.at(0) == 0.25);
  CHECK(summary.busy.at(1) == 0);
  CHECK(summary.stashes == std::map<std::int32_t, std::int64_t>{{1, 4}});
}

TEST_CASE("a stage waits for something, but not while its optimizer works", "[record]") {
  Bench bench({"pipeline.stages=2"}, 2);
  const auto busy = [&](double start, double end, const char* what) {
    bench.recorder->on(
        BusyRecord{.actor = 0, .start = start, .end = end, .what = what, .stamp = {}}, end);
  };
  const auto waited = [&](Want want, double start, double end) {
    bench.recorder->on(WaitRecord{.actor = 0, .want = want, .start = start, .end = end}, end);
  };
  waited(Want::data, 0, 1);
  busy(1, 3, "backward");
  busy(3.5, 4.5, "update");
  waited(Want::weights, 3, 5);
  busy(5, 6, "forward");
  waited(Want::error, 6, 6.25);
  busy(6.25, 7, "backward");
  bench.recorder->on(WaitRecord{.actor = 9, .want = Want::data, .start = 0, .end = 7},
                     7);  // no stage's
  bench.recorder->finish(10);
  const Summary summary = bench.recorder->summary(0);
  CHECK(summary.idle == std::map<std::int32_t, IdleTimes>{
                            {0, {0.1, 0, 0.025, 0.1}}});  // data, activation, error, weights
  CHECK_THAT(summary.busy.at(0), Catch::Matchers::WithinAbs(0.475, 1e-12));
}

TEST_CASE("the summary is JSON with the names that scripts rely on", "[record]") {
  proto::Experiment experiment;
  REQUIRE(resolve(experiment));
  Summary summary;
  summary.outcome = "interrupted";
  summary.clock = "virtual";
  summary.train_loss = std::numeric_limits<double>::quiet_NaN();
  summary.test_accuracy = 0.5;
  summary.staleness[0] = {.mean = 1, .max = 2, .histogram = {{0, 1}, {2, 1}}, .seconds_mean = 0.25};
  for (std::int32_t stage = 0; stage < 12; ++stage) {
    summary.stashes[stage] = stage;
  }
  const std::string text = to_json(summary, experiment);
  for (
      const char* part :
      {R"("outcome": "interrupted")",
       R"("clock": "virtual")",
       R"("updates": 0)",
       R"("epochs": 0)",
       R"("samples": 0)",
       R"("seconds": 0)",
       R"("wall_seconds": 0)",
       R"("samples_per_second": 0)",
       R"("train_loss": null)",
       R"("test_loss": null)",
       R"("test_accuracy": 0.5)",
       R"("staleness": {"shard-0":{"mean":1,"max":2,"histogram":{"0":1,"2":1},"seconds_mean":0.25}})",
       R"("gap": {})",
       R"("stage-1":1,"stage-2":2,)",
       R"("stage-9":9,"stage-10":10,"stage-11":11})",
       R"("bytes_sent": 0)",
       R"("weights_sha256": "")",
       R"("lost": {},)",
       R"("returned": {},)",
       R"("lost_copies": {},)",
       R"("restarts": {},)",
       R"("order_sha256": "")",
       R"("experiment": {)"}) {
    CHECK_THAT(text, test::says(part));
  }
}

TEST_CASE("replicas that come back are told with where they go on", "[record]") {
  Bench bench({"replicas.count=2"}, 1, 4, true);
  CHECK_FALSE(bench.recorder->on(ReturnOfReplica{.replica = 1, .batch = 8, .missed = 3}, 2.5));
  CHECK(bench.lines("returned") ==
        std::vector<std::string>{
            R"({"kind":"returned","replica":1,"batch":8,"missed":3,"seconds":2.5})"});
  CHECK(bench.recorder->summary(0).told.at("returned") ==
        std::vector<std::string>{"replica 1 (at its mini-batch 8, without 3)"});
}

TEST_CASE("copies of servers that are lost are told, and what is told again counts once",
          "[record]") {
  Bench bench({"replicas.count=2", "replicas.copies=3"}, 1, 4, true);
  const auto tell = [&](RecordEntry entry, std::int64_t number, double now) {
    entry.teller = 9;
    entry.number = static_cast<std::uint64_t>(number);
    if (bench.recorder->is_news(entry)) {
      CHECK_FALSE(bench.recorder->on(entry, now));
    }
  };
  const auto applied = [&](std::int32_t replica, std::int64_t batch, std::int64_t to) {
    const AppliedRecord record{.stamp = {.replica = replica, .batch = batch},
                               .applied_to = to,
                               .reads = {{.forward_version = to}}};
    tell(record, to + 1, 1);
  };
  applied(0, 0, 0);
  applied(1, 0, 1);
  applied(0, 1, 2);
  CHECK_FALSE(bench.recorder->on(
      LossOfCopy{
          .of = "server-0.0", .copy = 1, .left = 2, .cause = "server-0.0-copy-1: it is gone"},
      2.5));
  applied(1, 0, 1);
  applied(0, 1, 2);
  applied(1, 1, 3);
  for (int twice = 0; twice < 2; ++twice) {
    tell(ServerRecord{.version = 4, .applied = 4, .bytes = 10}, 5, 3);
  }
  CHECK(bench.lines("lost_copy") ==
        std::vector<std::string>{R"({"kind":"lost_copy","of":"server-0.0","copy":1,"left":2,)"
                                 R"("cause":"server-0.0-copy-1: it is gone","seconds":2.5})"});
  const Summary told = bench.recorder->summary(4);
  CHECK(
      told.told.at("lost_copies") ==
      std::vector<std::string>{"copy 1 of server-0.0 (server-0.0-copy-1: it is gone; 2 are left)"});
  CHECK(told.staleness.at(0).histogram.at(0) == 4);
  CHECK(told.servers.at(0).applied == 4);
  CHECK(told.bytes_sent == 10);
}

TEST_CASE("what is told of modules: angles, shares of updates by estimates, locks", "[record]") {
  Bench bench({"pipeline.stages=3"}, 3, 4, false, 2);
  const auto angle = [&](std::int32_t module, std::int64_t batch, double a, double b, double c) {
    CHECK_FALSE(bench.recorder->on(
        AngleRecord{
            .stamp = {.chunk = module, .batch = batch}, .product = a, .update = b, .truth = c},
        1));
  };
  angle(0, 0, 0, 0, 9);  // no update
  angle(0, 1, 6, 9, 16);
  angle(0, 2, -12, 9, 16);
  angle(1, 2, 0, 9, 16);
  angle(2, 2, 3, 3, 3);
  for (const bool synthetic : {true, false, true, true}) {
    CHECK_FALSE(bench.recorder->on(SignalRecord{.stamp = {}, .synthetic = synthetic}, 1));
  }
  CHECK_FALSE(bench.recorder->on(WaitRecord{0, Want::error, 1, 3.5}, 4));
  CHECK_FALSE(bench.recorder->on(WaitRecord{1, Want::activation, 0, 2}, 4));
  CHECK_FALSE(bench.recorder->on(WaitRecord{1, Want::weights, 2, 2.5}, 4));
  const Summary summary = bench.recorder->summary(0);
  CHECK(summary.modules.at(0).angles == 2);
  CHECK(summary.modules.at(0).degrees == Approx(60 + 180).epsilon(1e-12));
  CHECK(summary.modules.at(0).last == 180);
  CHECK(summary.modules.at(1).last == Approx(90).epsilon(1e-12));
  CHECK(summary.modules.at(2).last == 0);
  CHECK(summary.modules.at(0).synthetic == 3);
  CHECK(summary.modules.at(0).mini_batches == 4);
  CHECK(summary.locks.at(0).backward == 2.5);
  CHECK(summary.locks.at(0).forward == 0);
  CHECK(summary.locks.at(1).forward == 2);
  CHECK(summary.locks.count(2) == 0);  // it has told nothing
  CHECK(
      by_number<Summary::Module>(
          "module", {{0, {4, 3, 2, 240, 180}}, {1, {4, 0, 0, 0, 0}}, {2, {0, 0, 1, 5, 5, 9, 4, 2}}})
          .text() ==
      "{\"module-0\":{\"synthetic\":0.75,\"angle\":120,\"angle_last\":180},"
      "\"module-1\":{\"synthetic\":0},\"module-2\":{\"inputs\":9,\"reused\":4,\"replaced\":2,"
      "\"angle\":5,\"angle_last\":5}}");
  std::map<std::string, Summary::Predictor> predictors;
  CHECK_FALSE(mean_of_estimates(predictors, &Summary::Predictor::cosine));
  predictors["input-predictor-1"] = {.lessons = 3, .error = 9, .variance = 1};
  predictors["predictor-2"] = {};  // it had no lesson
  CHECK_FALSE(mean_of_estimates(predictors, &Summary::Predictor::cosine));
  predictors["predictor-0"] = {
      .lessons = 2, .error = 3, .variance = 4, .signal = 9, .estimate = 4, .product = 3};
  predictors["predictor-1"] = {
      .lessons = 1, .error = 1, .variance = 4, .signal = 1, .estimate = 1, .product = -1};
  CHECK(mean_of_estimates(predictors, &Summary::Predictor::relative_error) == Approx(0.5));
  CHECK(mean_of_estimates(predictors, &Summary::Predictor::cosine) == Approx(-0.25));
  const std::vector<std::string> lines = bench.lines("angle");
  REQUIRE(lines.size() == 5);
  CHECK(lines[0] == "{\"kind\":\"angle\",\"step\":0,\"module\":\"module-0\",\"degrees\":null}");
  CHECK(lines[2] == "{\"kind\":\"angle\",\"step\":2,\"module\":\"module-0\",\"degrees\":180}");
}

}  // namespace recorder_test
