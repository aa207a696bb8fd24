#include "tests/support/catch.hpp"
#include "tests/support/csv_fields.hpp"
#include "tests/support/program.hpp"

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

namespace eval_test {

using namespace troupe::test;

namespace {

Words settings(const Words& keys) {
  Words all;
  for (const std::string& key : keys) {
    all.insert(all.end(), {"--set", key});
  }
  return all;
}

/// Trains into `folder`.
void train(const std::string& folder, const std::string& experiment, const Words& keys) {
  const Said said =
      run_program(with({"sim", experiment, "--quiet", "--out", folder}, settings(keys)));
  INFO(said.err);
  REQUIRE(said.code == 0);
}

const Words kGlyphs{"data.glyphs.limit=2000", "data.glyphs.test_limit=310", "stop.epochs=3"};
const Words kTeacher{"data.teacher.train=500",
                     "data.teacher.test=90",
                     "data.teacher.outputs=2",
                     "data.teacher.values=true",
                     "stop.epochs=2"};

/// A number behind "key": in JSON.
double member(const std::string& json, const std::string& key) {
  std::smatch found;
  const std::regex pattern("\"" + key + "\": ([-0-9.e]+)");
  INFO(json);
  REQUIRE(std::regex_search(json, found, pattern));
  return std::stod(found[1]);
}

}  // namespace

TEST_CASE("eval finds what the run found at its end", "[apps]") {
  const Folder folder;
  const std::string run = folder / "run";

  struct Case {
    std::string experiment;
    Words keys;
  };

  // Its running statistics and its dropout are not those of training; modules have predictors besides.
  const std::string normalized = folder / "normalized.textproto";
  std::ofstream(normalized)
      << "model { layers { layer { dense { outputs: 16 } } layer { batch_norm {} } "
         "layer { activation {} } layer { dropout {} } layer { dense {} } } } "
         "data { glyphs {} batch_size: 50 } pipeline { stages: 2 cut: [4] "
         "schedule { sequential {} } } decoupled { synthetic {} }";
  for (const Case& c : {Case{"glyphs-mlp", kGlyphs},
                        Case{"glyphs-mlp", with(kGlyphs, {"pipeline.stages=3"})},
                        Case{normalized, kGlyphs},
                        Case{"teacher-mlp", kTeacher}}) {
    std::filesystem::remove_all(run);
    train(run, c.experiment, c.keys);
    const std::string json = folder / (c.keys.back() + ".json");
    const Said said = run_program({"eval", run, "--out", json});
    INFO(said.err << said.out);
    REQUIRE(said.code == 0);
    const std::string summary = contents(run + "/summary.json");
    const std::string found = contents(json);
    CHECK(member(found, "loss") == Approx(member(summary, "test_loss")).epsilon(1e-6));
    if (c.experiment != "teacher-mlp") {
      CHECK(member(found, "accuracy") == member(summary, "test_accuracy"));
      CHECK(member(found, "samples") == 310);
    } else {
      CHECK(found.find("accuracy") == std::string::npos);
    }
    std::filesystem::remove(json);
  }
}

TEST_CASE("eval counts classes, and which was taken for which", "[apps]") {
  const Folder folder;
  const std::string run = folder / "run";
  train(run, "glyphs-mlp", kGlyphs);
  const Said said = run_program({"eval", run, "--confusion", "--out", folder / "json"});
  REQUIRE(said.code == 0);
  CHECK_THAT(said.out,
             Catch::Contains("310 test samples") && Catch::Contains("recall") &&
                 Catch::Contains("taken for"));
  // The table of the JSON, row by row.
  const std::string json = contents(folder / "json");
  const std::regex row("\\[((?:\\d+,){9}\\d+)\\]");
  double all = 0;
  double right = 0;
  int label = 0;
  for (std::sregex_iterator at(json.begin(), json.end(), row), end; at != end; ++at, ++label) {
    const Words counts = csv_fields((*at)[1].str()).front();
    for (std::size_t c = 0; c < counts.size(); ++c) {
      all += std::stod(counts[c]);
      right += static_cast<int>(c) == label ? std::stod(counts[c]) : 0;
    }
  }
  CHECK(label == 10);
  CHECK(all == 310);
  CHECK(right / all == Approx(member(json, "accuracy")));
  const Said training = run_program({"eval", run, "--split", "train"});
  CHECK_THAT(training.out, Catch::Contains("2,000 training samples"));
  // Other data for the same weights.
  const Said other = run_program({"eval", run, "--set", "data.glyphs.test_limit=50"});
  CHECK_THAT(other.out, Catch::Contains("50 test samples"));
}

TEST_CASE("predict has a line for each sample", "[apps]") {
  const Folder folder;
  const std::string run = folder / "run";
  train(run, "glyphs-mlp", kGlyphs);
  const Said said = run_program({"predict", run, "--probabilities"});
  REQUIRE(said.code == 0);
  const std::vector<Words> lines = csv_fields(said.out);
  REQUIRE(lines.size() == 311);
  CHECK(lines.front()[3] == "probability");
  double right = 0;
  for (std::size_t i = 1; i < lines.size(); ++i) {
    REQUIRE(lines[i].size() == 14);
    CHECK(std::stoul(lines[i][0]) == i - 1);
    right += lines[i][1] == lines[i][2] ? 1 : 0;
    double sum = 0;
    double most = 0;
    for (std::size_t c = 4; c < 14; ++c) {
      sum += std::stod(lines[i][c]);
      most = std::max(most, std::stod(lines[i][c]));
    }
    CHECK(sum == Approx(1).epsilon(1e-7));
    CHECK(std::stod(lines[i][3]) == most);
  }
  CHECK(right / 310 == Approx(member(contents(run + "/summary.json"), "test_accuracy")));
  const Said kept = run_program({"predict", run, "--out", folder / "csv"});
  CHECK_THAT(kept.out, Catch::Contains("310 predictions in "));
  CHECK(csv_fields(contents(folder / "csv")).size() == 311);
}

TEST_CASE("predictions of values stand beside what was due", "[apps]") {
  const Folder folder;
  const std::string run = folder / "run";
  train(run, "teacher-mlp", kTeacher);
  const std::vector<Words> lines = csv_fields(run_program({"predict", run}).out);
  REQUIRE(lines.size() == 91);
  CHECK(lines.front() == Words{"sample", "target0", "target1", "prediction0", "prediction1"});
  double loss = 0;
  for (std::size_t i = 1; i < lines.size(); ++i) {
    for (std::size_t v = 1; v <= 2; ++v) {
      loss += 0.5 * std::pow(std::stod(lines[i][v]) - std::stod(lines[i][v + 2]), 2);
    }
  }
  CHECK(loss / 90 == Approx(member(contents(run + "/summary.json"), "test_loss")).epsilon(1e-5));
}

TEST_CASE("rows without a target are predicted from one file", "[apps]") {
  const Folder folder;
  const std::string run = folder / "run";
  std::ofstream table(folder / "t.csv");
  table << "x,y,kind\n";
  for (int i = 0; i < 40; ++i) {
    table << i << ',' << 3 * i << ',' << (i < 20 ? "low" : "high") << '\n';
  }
  table.close();
  std::ofstream(folder / "new.csv") << "x,y\n1,3\n38,114\n";
  train(run, "own-data", {"data.csv.path=" + folder / "t.csv", "data.batch_size=4"});
  const Said said = run_program({"predict", run, "--data", folder / "new.csv"});
  INFO(said.err);
  REQUIRE(said.code == 0);
  const std::vector<Words> lines = csv_fields(said.out);
  REQUIRE(lines.size() == 3);
  CHECK(lines[0] == Words{"sample", "line", "prediction", "probability"});
  CHECK((lines[1][1] == "2" && lines[1][2] == "low"));
  CHECK((lines[2][1] == "3" && lines[2][2] == "high"));
  // By its key, too, all of them are shown; and what is no experiment is said to be data.
  CHECK(run_program({"predict", run, "--set", "data.csv.path=" + folder / "new.csv"}).out ==
        said.out);
  std::ofstream(folder / "one.csv") << "x,y\n38,114\n";
  const std::vector<Words> one =
      csv_fields(run_program({"predict", run, "--set", "data.csv.path=" + folder / "one.csv"}).out);
  REQUIRE(one.size() == 2);
  CHECK(one[1][2] == "high");
  const Said misplaced = run_program({"predict", run, folder / "new.csv"});
  CHECK(misplaced.code == 2);
  CHECK_THAT(
      misplaced.err,
      Catch::Contains("is no experiment; samples are named by --data " + folder / "new.csv"));
  const Said other = run_program({"eval", run, "glyphs-mlp", "--data", folder / "new.csv"});
  CHECK(other.code == 2);
  CHECK_THAT(other.err,
             Catch::Contains("what data.glyphs reads is set by --set data.glyphs.KEY=VALUE"));
  const Said judged = run_program({"eval", run, "--data", folder / "new.csv"});
  CHECK(judged.code == 2);
  CHECK_THAT(judged.err, Catch::Contains("these samples have no target"));
  CHECK_THAT(run_program({"eval", run, "--data", folder / "t.csv"}).out,
             Catch::Contains("40 test samples"));
  // Where the columns have no names, their order is told to count.
  std::ofstream(folder / "nameless.csv") << "1,3\n38,114\n";
  const Said nameless = run_program({"predict", run, "--data", folder / "nameless.csv"});
  CHECK(csv_fields(nameless.out)[2][2] == "high");
  const auto in_one_line = [](const Said& of) {  // where a line breaks depends on the folder's name
    return std::regex_replace(of.err, std::regex("\\s+"), " ");
  };
  CHECK_THAT(in_one_line(nameless),
             Catch::Contains("they are taken to be \"x\", \"y\", in this order"));
  CHECK_FALSE(Catch::Contains("in this order").match(in_one_line(said)));
  std::filesystem::rename(folder / "t.csv", folder / "moved.csv");
  for (const char* verb : {"eval", "predict"}) {
    const Said gone = run_program({verb, run});
    CHECK(gone.code == 3);
    CHECK_THAT(gone.err, Catch::Contains("; --data names another file or folder\n"));
    const Said asked = run_program({verb, run, "--data", folder / "t.csv"});
    CHECK_FALSE(Catch::Contains("--data names").match(asked.err));
  }
  std::filesystem::rename(folder / "moved.csv", folder / "t.csv");

  // A number is told as the table writes it.
  std::filesystem::remove_all(run);
  train(run,
        "own-data",
        {"data.csv.path=" + folder / "t.csv",
         "data.csv.target=y",
         "data.csv.values=true",
         "data.csv.leave_out=[kind]",
         "data.batch_size=4"});
  std::ofstream(folder / "new.csv") << "x,kind\n10,low\n";
  const Said number = run_program({"predict", run, "--data", folder / "new.csv"});
  INFO(number.err);
  REQUIRE(number.code == 0);
  CHECK(csv_fields(number.out)[0] == Words{"sample", "line", "prediction"});
  CHECK(std::stod(csv_fields(number.out)[1][2]) == Approx(30).margin(10));
}

TEST_CASE("weights that are not finite start nothing", "[apps]") {
  const Folder folder;
  const std::string file = folder / "w.safetensors";
  REQUIRE(run_program({"ckpt", "init", "glyphs-mlp", file}).code == 0);
  std::string bytes = contents(file);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::memcpy(bytes.data() + bytes.size() - sizeof nan, &nan, sizeof nan);
  std::ofstream(file, std::ios::binary) << bytes;
  for (const Words& words : {Words{"run", "--out", "none", "--set", "start_from=" + file},
                             Words{"eval", file, "glyphs-mlp"}}) {
    const Said said = run_program(words);
    CHECK(said.code == 3);
    CHECK_THAT(said.err, Catch::Contains("has numbers that are not finite, as after a run"));
  }
}

TEST_CASE("text has a perplexity, and samples instead of predictions", "[apps]") {
  const Folder folder;
  const std::string run = folder / "run";
  std::ofstream text(folder / "text");
  for (int i = 0; i < 400; ++i) {
    text << "to be or not to be, that is the question " << i << '\n';
  }
  text.close();
  train(run,
        "shakespeare-lstm",
        {"data.text.path=" + folder / "text",
         "data.text.context=8",
         "model.lstm.width=16",
         "data.batch_size=4",
         "stop.updates=20"});
  const std::string summary = contents(run + "/summary.json");  // eight tokens a sample
  CHECK(member(summary, "tokens_per_second") == Approx(8 * member(summary, "samples_per_second")));
  CHECK_THAT(contents(run + "/metrics.jsonl"), Catch::Contains("\"tokens_per_second\":"));
  const Said said = run_program({"eval", run, "--out", folder / "json"});
  INFO(said.err);
  REQUIRE(said.code == 0);
  CHECK_THAT(said.out, Catch::Contains("a token"));
  CHECK(member(contents(folder / "json"), "loss") ==
        Approx(member(contents(run + "/summary.json"), "test_loss")).epsilon(1e-6));
  const Said refused = run_program({"predict", run});
  CHECK(refused.code == 2);
  CHECK_THAT(refused.err, Catch::Contains("`troupe sample` writes some"));
  CHECK(run_program({"eval", run, "--confusion"}).code == 2);
}

TEST_CASE("what cannot be judged is refused with a sentence", "[apps]") {
  const Folder folder;
  const std::string run = folder / "run";
  const Said missing = run_program({"eval", folder / "nowhere"});
  CHECK(missing.code == 3);
  CHECK_THAT(missing.err, Catch::Contains("there is no such folder or file"));
  train(run, "quadratic", {"stop.updates=3"});
  const Said quadratic = run_program({"eval", run});
  CHECK(quadratic.code == 2);
  CHECK_THAT(quadratic.err, Catch::Contains("this network is trained without data"));
  const Said there = run_program({"predict", run, "--out", run});
  CHECK(there.code == 2);
  CHECK_THAT(there.err, Catch::Contains("exists already"));
  CHECK_THAT(run_program({"eval"}).err,
             Catch::Contains("eval: WEIGHTS is required: folder of a run, or a file of weights"));
  std::filesystem::rename(run + "/weights.safetensors", folder / "w.safetensors");
  CHECK_THAT(run_program({"eval", run}).err, Catch::Contains("it has not come to its end"));
  CHECK_THAT(run_program({"eval", folder.path().string()}).err,
             Catch::Contains("it is no folder of a run"));
  std::filesystem::rename(folder / "w.safetensors", run + "/weights.safetensors");
  std::filesystem::remove(run + "/experiment.textproto");
  CHECK_THAT(run_program({"eval", run}).err, Catch::Contains("`troupe eval WEIGHTS EXPERIMENT`"));
}

}  // namespace eval_test
