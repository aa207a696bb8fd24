// Training from within a program: its own data, callbacks in order, a stop from inside and outside, and
// the weights that a run of the same experiment ends with.
#include "apps/run/train.hpp"

#include "apps/presets/presets.hpp"
#include "apps/run/run.hpp"
#include "experiment.pb.h"
#include "kernels/stream.hpp"
#include "runtime/data/memory.hpp"
#include "tests/support/catch.hpp"

#include <filesystem>
#include <functional>

namespace train_test {

using namespace troupe;

namespace {

MemorySamples line(std::int64_t n) {
  MemorySamples samples;
  for (std::int64_t i = 0; i < n; ++i) {
    samples.x.push_back(static_cast<float>(i % 7) - 3);
    samples.x.push_back(static_cast<float>(i % 5) - 2);
    samples.labels.push_back(i % 7 < 3 ? 0 : 1);
  }
  return samples;
}

std::shared_ptr<const Dataset> data() {
  return *memory_dataset({.sample = {2}, .classes = 2, .train = line(320), .test = line(64)});
}

const std::vector<std::string> kSmall{"model.mlp.hidden=[6]",
                                      "data.batch_size=16",
                                      "pipeline.stages=2",
                                      "stop.epochs=3",
                                      "optimizer.learning_rate=0.05"};

}  // namespace

TEST_CASE("a program trains on its own data, hears of it and takes the weights", "[apps]") {
  for (const bool virtual_clock : {true, false}) {
    std::vector<std::int64_t> batches;
    std::vector<TestResult> tests;
    TrainOptions options{.virtual_clock = virtual_clock, .data = data()};
    options.on_loss = [&](const TrainingLoss& loss) {
      CHECK(loss.loss > 0);
      batches.push_back(loss.batch);
      return true;
    };
    options.on_evaluation = [&](const TestResult& result) {
      tests.push_back(result);
      return true;
    };
    const auto trained = train("glyphs-mlp", kSmall, options);
    REQUIRE(trained);
    CHECK(trained->exit_code == 0);
    CHECK(trained->summary.updates == 60);
    REQUIRE(batches.size() == 60);
    CHECK(std::is_sorted(batches.begin(), batches.end()));
    REQUIRE(tests.size() == 3);
    CHECK(tests.back().step == 60);
    CHECK(tests.back().accuracy == trained->summary.test_accuracy);
    CHECK(tests.back().loss == trained->summary.test_loss);
    REQUIRE(trained->weights.size() == 4);
    CHECK(trained->weights.at("dense1.weight").shape() == Shape{6, 2});
    CHECK(trained->weights.at("dense2.bias").shape() == Shape{2});
  }
}

TEST_CASE("its weights are those of the run", "[apps]") {
  const std::vector<std::string> set{"data.glyphs.limit=640",
                                     "data.glyphs.test_limit=64",
                                     "model.mlp.hidden=[8]",
                                     "pipeline.stages=1",
                                     "stop.epochs=1"};
  const auto trained = train("glyphs-mlp", set, {.virtual_clock = true});
  REQUIRE(trained);
  const auto blueprint = make_blueprint(*load_experiment("glyphs-mlp", set));
  REQUIRE(blueprint);
  const auto ran = run_experiment(
      *blueprint, {.virtual_clock = true, .directory = {}, .interrupts = {}, .recast = {}});
  REQUIRE(ran);
  CHECK(trained->summary.weights_sha256 == ran->summary.weights_sha256);
  const auto specs = weight_specs(blueprint->network);
  const auto values = values_of(blueprint->chunks, ran->weights, ran->buffers);
  REQUIRE(specs.size() == trained->weights.size());
  for (std::size_t i = 0; i < specs.size(); ++i) {
    const auto taken = trained->weights.at(specs[i].name).span<float>();
    CHECK(std::equal(taken.begin(), taken.end(), values[i].begin(), values[i].end()));
  }
}

TEST_CASE("a callback or a token stops the run, which ends with weights", "[apps]") {
  std::vector<std::string> endless = kSmall;
  endless.emplace_back("stop.epochs=100000");
  for (const bool virtual_clock : {true, false}) {
    TrainOptions options{.virtual_clock = virtual_clock, .data = data()};
    options.on_evaluation = [](const TestResult&) {
      return false;
    };
    const auto stopped = train("glyphs-mlp", endless, options);
    REQUIRE(stopped);
    CHECK(stopped->exit_code == 130);
    CHECK(stopped->summary.updates >= 20);
    CHECK(stopped->weights.size() == 4);
  }
  std::stop_source source;
  TrainOptions options{.data = data(), .stop = source.get_token()};
  options.on_loss = [&](const TrainingLoss& loss) {
    if (loss.batch == 30) {
      source.request_stop();
    }
    return true;
  };
  const auto stopped = train("glyphs-mlp", endless, options);
  REQUIRE(stopped);
  CHECK(stopped->exit_code == 130);
  CHECK(stopped->weights.size() == 4);
}

TEST_CASE("what cannot begin is told as troupe run tells it", "[apps]") {
  const auto misspelt = train("glyphs-mpl", {});
  REQUIRE_FALSE(misspelt);
  CHECK(misspelt.error().message.find("glyphs-mlp") != std::string::npos);
  const auto phases = train("warm-start", {});
  REQUIRE_FALSE(phases);
  CHECK(phases.error().message == "phases: train() makes a single run; phases=[] makes one of it");
  CHECK_FALSE(train("glyphs-mlp", {"pipeline.stages=99"}, {.data = data()}));
}

TEST_CASE("a run whose folder, or a file in it, is taken away under it says so and is lost",
          "[apps]") {
  namespace fs = std::filesystem;
  const fs::path folder = fs::temp_directory_path() / "troupe-train-test";
  const fs::path run = folder / "run";
  const fs::path away = folder / "away";
  const auto move = [&] {
    fs::rename(run, away);
  };

  struct Row {
    std::string name;
    std::function<void()> happens;
    std::string sentence;
  };

  const std::vector<Row> rows{{"removed", [&] { fs::remove_all(run); }, "the run's folder "},
                              {"moved", move, "the run's folder "},
                              {"replaced",
                               [&] {
                                 move();
                                 fs::create_directory(run);
                               },
                               "the run's folder "},
                              {"its metrics removed",
                               [&] { fs::remove(run / "metrics.jsonl"); },
                               "metrics.jsonl could not"},
                              {"its metrics moved",
                               [&] { fs::rename(run / "metrics.jsonl", folder / "metrics.jsonl"); },
                               "metrics.jsonl could not"}};
  for (const Row& row : rows) {
    for (const bool virtual_clock : {true, false}) {
      INFO(row.name << (virtual_clock ? ", virtual clock" : ", real clock"));
      fs::remove_all(folder);
      fs::create_directories(folder);
      TrainOptions options{.virtual_clock = virtual_clock, .data = data(), .directory = run};
      options.on_loss = [&](const TrainingLoss& loss) {
        if (loss.batch == 20) {
          row.happens();
        }
        return true;
      };
      const auto trained = train("glyphs-mlp", kSmall, options);
      REQUIRE(trained);
      CHECK(trained->exit_code == 5);
      CHECK_THAT(trained->cause, test::says(row.sentence));
      CHECK_THAT(trained->cause, test::says("removed, moved or replaced by another"));
      if (row.name == "replaced") {
        CHECK(fs::is_empty(run));  // another's folder is not written to
      }
    }
  }
  fs::remove_all(folder);
}

}  // namespace train_test
