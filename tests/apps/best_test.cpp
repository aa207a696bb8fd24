// Runs that end where evaluations get no better, and runs whose weights are those of the best one.
#include "tests/support/catch.hpp"
#include "tests/support/program.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <regex>
#include <string>
#include <vector>

namespace best_test {

using namespace troupe::test;

namespace {

/// All of them, in order: `member` of each line of metrics.jsonl that is an evaluation.
std::vector<double> evaluations(const std::string& run, const std::string& member) {
  const std::string metrics = contents(run + "/metrics.jsonl");
  const std::regex pattern("\"kind\": ?\"evaluation\".*\"" + member + "\": ?([-0-9.e]+)");
  std::vector<double> all;
  for (std::sregex_iterator at(metrics.begin(), metrics.end(), pattern), end; at != end; ++at) {
    all.push_back(std::stod((*at)[1]));
  }
  return all;
}

double number_in(const std::string& json, const std::string& key) {
  std::smatch found;
  const std::regex pattern("\"" + key + "\": ?([-0-9.e]+)");
  INFO(key << " in " << json);
  REQUIRE(std::regex_search(json, found, pattern));
  return std::stod(found[1]);
}

/// A network that learns few samples by heart soon: its loss on others falls, and then rises.
Words overfitting(const std::string& verb, const std::string& out, const Words& keys) {
  Words words{verb, "glyphs-mlp", "--quiet", "--out", out};
  for (const std::string& key : with({"data.glyphs.limit=60",
                                      "data.glyphs.test_limit=100",
                                      "data.batch_size=20",
                                      "optimizer.learning_rate=0.02",
                                      "record.evaluate_every=5",
                                      "stop.epochs=0",
                                      "stop.updates=300"},
                                     keys)) {
    words.insert(words.end(), {"--set", key});
  }
  return words;
}

double loss_of(const std::string& run, const std::string& json) {
  const Said judged = run_program({"eval", run, "--out", json});
  INFO(judged.err);
  REQUIRE(judged.code == 0);
  return number_in(contents(json), "loss");
}

/// Of the run; the experiment before it has a key of that name.
double updates_of(const std::string& summary) {
  return number_in(summary.substr(summary.find("\"clock\": \"")), "updates");
}

std::string best_of(const std::string& summary) {
  return summary.substr(summary.find("\"best\": {"));
}

}  // namespace

TEST_CASE("a run ends when its patience is at its end, and keeps the best weights", "[apps]") {
  const Folder folder;
  const std::vector<Words> schemes{{},
                                   {"pipeline.stages=2", "pipeline.weights=spectrain"},
                                   {"replicas.count=2", "replicas.rule=asgd"},
                                   {"replicas.count=2", "replicas.exchange=averaging"}};
  for (std::size_t i = 0; i < schemes.size(); ++i) {
    const std::string run = folder / ("run-" + std::to_string(i));
    const Words keys = with({"stop.patience=3", "record.best=true"}, schemes[i]);
    const Said said = run_program(overfitting("sim", run, keys));
    INFO(said.err << said.out);
    REQUIRE(said.code == 0);
    CHECK_THAT(said.out, says("whose weights are kept; patience ended the run"));
    const std::vector<double> losses = evaluations(run, "loss");
    const std::vector<double> steps = evaluations(run, "step");
    REQUIRE(losses.size() >= 4);
    const auto best = std::min_element(losses.begin(), losses.end());
    const std::string summary = contents(run + "/summary.json");
    const auto at = static_cast<std::size_t>(best - losses.begin());
    CHECK(updates_of(summary) == steps[at + 3]);
    CHECK(number_in(best_of(summary), "step") == steps[at]);
    CHECK(number_in(best_of(summary), "loss") == Approx(*best));
    CHECK_THAT(summary, says("\"stopped_by\": \"patience\""));
    CHECK(updates_of(summary) < 300);
    CHECK(loss_of(run, folder / (std::to_string(i) + ".json")) == Approx(*best).epsilon(1e-5));
  }
}

TEST_CASE("patience alone keeps the last weights, and the best alone does not end a run",
          "[apps]") {
  const Folder folder;
  const Said patient = run_program(overfitting("sim", folder / "patient", {"stop.patience=3"}));
  const Said keeping = run_program(overfitting("sim", folder / "keeping", {"record.best=true"}));
  REQUIRE(patient.code == 0);
  REQUIRE(keeping.code == 0);
  const std::string stopped = contents(folder / "patient/summary.json");
  const std::vector<double> losses = evaluations(folder / "patient", "loss");
  CHECK(loss_of(folder / "patient", folder / "1.json") == Approx(losses.back()).epsilon(1e-5));
  CHECK(losses.back() > number_in(best_of(stopped), "loss"));
  const std::string whole = contents(folder / "keeping/summary.json");
  CHECK(updates_of(whole) == 300);
  CHECK_THAT(whole, says("\"stopped_by\": \"\""));
  CHECK(loss_of(folder / "keeping", folder / "2.json") ==
        Approx(number_in(best_of(whole), "loss")).epsilon(1e-5));
}

TEST_CASE("the best of a network with running statistics has those of its step", "[apps]") {
  const Folder folder;
  const std::string file = folder / "normalized.textproto";
  std::ofstream(file) << "model { layers { layer { dense { outputs: 16 } } layer { batch_norm {} } "
                         "layer { activation {} } layer { dense {} } } } data { glyphs {} }";
  Words words = overfitting("sim", folder / "run", {"record.best=true", "stop.updates=100"});
  words[1] = file;
  const Said said = run_program(words);
  INFO(said.err);
  REQUIRE(said.code == 0);
  const std::string summary = contents(folder / "run/summary.json");
  CHECK(number_in(best_of(summary), "step") < 100);
  CHECK(loss_of(folder / "run", folder / "1.json") ==
        Approx(number_in(best_of(summary), "loss")).epsilon(1e-4));
  words = with(words, {"--set", "replicas.count=2"});
  words[4] = folder / "other";
  const Said refused = run_program(words);
  CHECK(refused.code == 2);
  CHECK_THAT(refused.err, says("record.best: batch normalisation keeps running statistics"));
}

TEST_CASE("patience and the best go on from a checkpoint as in one piece", "[apps]") {
  const Folder folder;
  const Words keys{"stop.patience=3",
                   "record.best=true",
                   "record.checkpoint.every=10",
                   "record.checkpoint.keep=100"};
  const std::string run = folder / "run";
  const Said whole = run_program(overfitting("sim", run, keys));
  REQUIRE(whole.code == 0);
  const std::string summary = contents(run + "/summary.json");
  const std::string best = best_of(summary);
  // The newest checkpoint has the best evaluation, which is no longer the last.
  std::int64_t newest = 0;
  for (const auto& entry : std::filesystem::directory_iterator(run + "/checkpoints")) {
    newest = std::max<std::int64_t>(newest, std::stoll(entry.path().filename().string().substr(5)));
  }
  CHECK(static_cast<double>(newest) > number_in(best, "step"));
  CHECK(static_cast<double>(newest) < number_in(summary, "updates"));
  const Said resumed = run_program({"sim", "--resume", run, "--quiet"});
  INFO(resumed.err);
  CHECK(resumed.code == 0);
  CHECK(digest_of(resumed) == digest_of(whole));
  CHECK(best_of(contents(run + "/summary.json")) == best);
}

TEST_CASE("what patience and the best cannot be asked of is said", "[apps]") {
  const Folder folder;
  const auto refusal = [&](const Words& keys) {
    const Said said = run_program(overfitting("sim", folder / "none", keys));
    CHECK(said.code == 2);
    return said.err;
  };
  CHECK_THAT(refusal({"stop.patience=2", "record.evaluate=false"}), says("need record.evaluate"));
  CHECK_THAT(refusal({"record.best=true", "replicas.count=2", "replicas.exchange=sandblaster"}),
             says("do not go with sandblaster"));
  CHECK_THAT(
      refusal(
          {"model=linear", "data=teacher", "data.teacher.values=true", "stop.monitor=accuracy"}),
      says("stop.monitor: accuracy needs data with classes"));
}

}  // namespace best_test
