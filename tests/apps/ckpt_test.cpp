// Weights as files: what a run leaves, what a run starts from, what goes out and comes in.
#include "messages/experiment.hpp"
#include "runtime/checkpoint/safetensors.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/program.hpp"

#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <csignal>
#include <fstream>

namespace ckpt_test {

using namespace troupe;
using namespace troupe::test;
namespace fs = std::filesystem;

namespace {

/// LeNet-5 on a few glyphs: both kinds of layers whose elements stand elsewhere in a file.
std::vector<std::string> lenet(const std::string& verb,
                               const std::string& out,
                               const std::vector<std::string>& more = {}) {
  std::vector<std::string> arguments{verb, "glyphs-mlp", "--quiet", "--out", out};
  std::vector<std::string> settings{"model=lenet5",
                                    "data.batch_size=32",
                                    "data.glyphs.limit=64",
                                    "data.glyphs.test_limit=16",
                                    "pipeline.stages=3",
                                    "optimizer.rule=sgd",
                                    "stop.updates=2",
                                    "stop.epochs=0"};
  settings.insert(settings.end(), more.begin(), more.end());
  for (const std::string& setting : settings) {
    arguments.insert(arguments.end(), {"--set", setting});
  }
  return arguments;
}

std::string digest(const std::string& run) {
  google::protobuf::Struct json;
  REQUIRE(google::protobuf::util::JsonStringToMessage(contents(run + "/summary.json"), &json).ok());
  return json.fields().at("weights_sha256").string_value();
}

/// One line on stderr that begins with our name, nothing on stdout.
void check_refused(const std::vector<std::string>& arguments,
                   int code,
                   const std::string& sentence) {
  const Said said = run_program(arguments);
  CHECK(said.code == code);
  CHECK(said.out.empty());
  CHECK(said.err.starts_with("troupe: "));
  CHECK(std::count(said.err.begin(), said.err.end(), '\n') == 1);
  CHECK_THAT(said.err, says(sentence));
}

}  // namespace

TEST_CASE("weights are taken over for another head, which begins by seed and is told of",
          "[apps]") {
  const Folder folder;
  REQUIRE(run_program(lenet("run", folder / "a")).code == 0);
  const auto run = [&](const std::string& name, std::vector<std::string> more) {
    more.insert(more.begin(), {"model=lenet5", "optimizer.learning_rate=0", "seed=9"});
    std::vector<std::string> arguments = lenet("sim", folder / name, more);
    std::erase(arguments, "--quiet");
    return run_program(arguments);
  };
  const Said started = run("b", {"start_from=" + folder / "a", "start_from_skip=[dense3*]"});
  REQUIRE(started.code == 0);
  CHECK_THAT(started.err, says("by seed, not from the file: dense3.weight, dense3.bias"));
  REQUIRE(run("fresh", {}).code == 0);
  const auto entry = [&](const std::string& name, const std::string& of) {
    const auto file = SafetensorsFile::open(folder / name + "/weights.safetensors");
    REQUIRE(file);
    const auto bytes = file->find(of)->bytes;
    return std::vector<std::byte>(bytes.begin(), bytes.end());
  };
  CHECK(entry("b", "conv1.weight") == entry("a", "conv1.weight"));
  CHECK(entry("b", "dense3.weight") == entry("fresh", "dense3.weight"));
  CHECK(entry("b", "dense3.weight") != entry("a", "dense3.weight"));
  CHECK_THAT(run("c", {"start_from=" + folder / "a", "start_from_skip=[head*]"}).err,
             says("start_from_skip: no parameter of the network is called like \"head*\""));
  CHECK_THAT(run("c", {"start_from_skip=[dense3*]"}).err,
             says("start_from_skip leaves parameters out"));
  // What is offered works, and nothing is where the file has what the network has not.
  CHECK_THAT(run("d", {"start_from=" + folder / "a", "model=mlp"}).err, !says("start_from_skip"));
  const auto deep = [&](const std::string& name, const std::string& hidden, const Words& more) {
    return run(name, with({"model=mlp", "model.mlp.hidden=" + hidden}, more));
  };
  REQUIRE(deep("e", "[32,16]", {}).code == 0);
  CHECK_THAT(deep("f", "[32,20]", {"start_from=" + folder / "e"}).err,
             says("; --set start_from_skip=[dense2.weight,dense2.bias,dense3.weight] begins these "
                  "by seed"));
  CHECK(deep("f",
             "[32,20]",
             {"start_from=" + folder / "e",
              "start_from_skip=[dense2.weight,dense2.bias,dense3.weight]"})
            .code == 0);
  const Said imported = run_program({"ckpt",
                                     "import",
                                     folder / "a",
                                     folder / "fresh",
                                     folder / "mixed.safetensors",
                                     "--skip",
                                     "dense3.*"});
  REQUIRE(imported.code == 0);
  CHECK_THAT(imported.out, says("by seed, not from the file: dense3.weight, dense3.bias"));
  CHECK(contents(folder / "mixed.safetensors") == contents(folder / "b/weights.safetensors"));
  check_refused({"ckpt", "ls", folder / "a", "--skip", "x"}, 2, "ckpt: it is `troupe ckpt ls");
}

// A rate of 0 leaves the weights as they began, so the digest tells where a run began.
TEST_CASE("a run starts from the weights that another has left, bit for bit, whatever the cut",
          "[apps]") {
  const Folder folder;
  REQUIRE(run_program(lenet("run", folder / "a")).code == 0);
  REQUIRE(fs::exists(folder / "a/weights.safetensors"));
  CHECK_FALSE(fs::exists(folder / "a/weights.safetensors.partial"));
  const std::vector<std::string> still{"optimizer.learning_rate=0", "seed=9"};
  const auto again = [&](const std::string& name, const std::string& from, const char* stages) {
    std::vector<std::string> more = still;
    more.insert(more.end(), {"start_from=" + from, std::string("pipeline.stages=") + stages});
    REQUIRE(run_program(lenet("sim", folder / name, more)).code == 0);
    return digest(folder / name);
  };
  const std::string trained = digest(folder / "a");
  CHECK(again("b", folder / "a/weights.safetensors", "1") == trained);
  CHECK(again("c", folder / "a", "5") == trained);  // a run's folder will do
  CHECK(contents(folder / "b/weights.safetensors") == contents(folder / "a/weights.safetensors"));
  REQUIRE(run_program(lenet("sim", folder / "d", still)).code == 0);
  CHECK(digest(folder / "d") != trained);
}

TEST_CASE("no weights are written where they are not wanted", "[apps]") {
  const Folder folder;
  REQUIRE(run_program(lenet("sim", folder / "a", {"record.weights=false"})).code == 0);
  CHECK_FALSE(fs::exists(folder / "a/weights.safetensors"));
}

TEST_CASE("weights that do not fit are refused by name before anything is written", "[apps]") {
  const Folder folder;
  REQUIRE(run_program(lenet("sim", folder / "a")).code == 0);
  const std::string file = folder / "a/weights.safetensors";
  check_refused({"run", "--out", folder / "b", "--set", "start_from=" + file},
                3,
                "start_from: " + file +
                    " does not fit the network: dense1.weight is (120, 400), not (256, 784)");
  CHECK_FALSE(fs::exists(folder / "b"));
  check_refused(
      {"run", "--set", "start_from=/nonexistent"},
      3,
      "start_from: /nonexistent is not usable as a safetensors file: it cannot be opened");
  check_refused({"config", "validate", "--set", "start_from=" + folder / "a/summary.json"},
                3,
                "summary.json is not usable as a safetensors file: its header would be");
}

TEST_CASE("weights that cannot be written end the run with code 5", "[apps]") {
  const Folder folder;
  const std::string run = folder / "a";
  // Files may grow to 32 blocks of 512 bytes.
  const Said said = Program({"-c",
                             "ulimit -f 32; exec '" + program_path() +
                                 "' sim teacher-mlp --quiet --set stop.updates=2 --set "
                                 "record.order=false --out " +
                                 run},
                            "",
                            "/bin/sh")
                        .wait();
  CHECK(said.code == 5);
  CHECK_THAT(
      said.err,
      says("troupe: " + run + "/weights.safetensors.partial could not be written: File too large"));
  CHECK_FALSE(fs::exists(run + "/weights.safetensors"));
  CHECK_FALSE(fs::exists(run + "/weights.safetensors.partial"));
  CHECK(digest(run).size() == 64);
}

TEST_CASE("ckpt ls shows what is in a file", "[apps]") {
  const Folder folder;
  REQUIRE(run_program(lenet("sim", folder / "a")).code == 0);
  const Said said = run_program({"ckpt", "ls", folder / "a"});
  CHECK(said.code == 0);
  CHECK(said.err.empty());
  CHECK_THAT(said.out, says("name           dtype  shape          elements\n"));
  CHECK_THAT(said.out, says("conv2.weight   F32    (16, 6, 5, 5)     2,400\n"));
  CHECK_THAT(said.out, says("dense1.weight  F32    (120, 400)       48,000\n"));
  CHECK_THAT(said.out, says("\n10 tensors, 61,706 elements, 0.235 MiB\n"));
  CHECK_THAT(said.out, says("metadata format: pt\n"));
  CHECK_THAT(said.out, says("metadata troupe: 0."));
  const Said some = run_program({"ckpt", "ls", folder / "a", "--only-glob", "*.bias"});
  CHECK_THAT(some.out, says("\n5 tensors, 236 elements, 0.001 MiB\n"));
}

TEST_CASE("ckpt export copies, whole or the names that are like a pattern", "[apps]") {
  const Folder folder;
  REQUIRE(run_program(lenet("sim", folder / "a")).code == 0);
  const std::string from = folder / "a/weights.safetensors";
  const Said said = run_program({"ckpt", "export", folder / "a", folder / "all"});
  CHECK(said.code == 0);
  CHECK(said.out == "wrote " + folder / "all" + ": 10 tensors, 61,706 elements, 0.235 MiB\n");
  CHECK(contents(folder / "all") == contents(from));
  REQUIRE(run_program({"ckpt", "export", from, folder / "some", "--only-glob", "conv?.*"}).code ==
          0);
  const auto whole = SafetensorsFile::open(from);
  const auto some = SafetensorsFile::open(folder / "some");
  REQUIRE(some);
  REQUIRE(some->entries().size() == 4);
  CHECK(some->metadata() == whole->metadata());
  for (const SafetensorsEntry& entry : some->entries()) {
    CHECK(entry.name.starts_with("conv"));
    CHECK(floats_of(entry) == floats_of(*whole->find(entry.name)));
  }
}

TEST_CASE("ckpt import takes what fits an experiment and says exactly what does not", "[apps]") {
  const Folder folder;
  REQUIRE(run_program(lenet("sim", folder / "a")).code == 0);
  const std::string from = folder / "a/weights.safetensors";
  const Said said = run_program({"ckpt", "import", from, folder / "a", folder / "in"});
  CHECK(said.code == 0);
  CHECK_THAT(said.out, says("the 10 parameters of " + folder / "a"));
  CHECK(contents(folder / "in") == contents(from));

  // As another program might write it: half precision, in an order of its own.
  const auto whole = SafetensorsFile::open(from);
  REQUIRE(whole);
  std::vector<std::vector<std::uint16_t>> halves;
  std::vector<SafetensorsEntry> entries;
  for (const SafetensorsEntry& entry : whole->entries()) {
    halves.emplace_back(static_cast<std::size_t>(entry.elements()), std::uint16_t{0x3f80});
  }
  for (std::size_t i = halves.size(); i-- > 0;) {
    const SafetensorsEntry& entry = whole->entries()[i];
    entries.push_back({entry.name, "BF16", entry.shape, std::as_bytes(std::span(halves[i]))});
  }
  REQUIRE(write_safetensors(folder / "ones", entries, {}));
  REQUIRE(run_program({"ckpt", "import", folder / "ones", folder / "a", folder / "in2"}).code == 0);
  const auto ones = SafetensorsFile::open(folder / "in2");
  REQUIRE(ones);
  CHECK(ones->entries().front().name == "conv1.weight");
  CHECK(floats_of(*ones->find("dense3.bias")) == std::vector<float>(10, 1.0f));

  entries.erase(entries.begin());  // dense3.bias
  entries.push_back({"extra", "U8", {}, std::as_bytes(std::span(halves[0])).first(1)});
  REQUIRE(write_safetensors(folder / "other", entries, {}));
  check_refused({"ckpt", "import", folder / "other", folder / "a", folder / "out"},
                3,
                folder / "other" +
                    " does not fit the network: dense3.bias (10) is missing; \"extra\" () has no "
                    "place in the network\n");
  CHECK_FALSE(fs::exists(folder / "out"));
  check_refused({"ckpt", "import", from, "teacher-mlp", folder / "out"}, 3, "\"conv1.weight\"");
  check_refused({"ckpt", "import", from, "glyps-mlp", folder / "out"}, 2, "did you mean");
}

TEST_CASE("ckpt init writes what a run starts with", "[apps]") {
  const Folder folder;
  // A run at a rate of 0 leaves its weights and, with no batch norm, all that is in its file.
  REQUIRE(run_program(lenet("run", folder / "still", {"optimizer.learning_rate=0"})).code == 0);
  const auto init = [&](const std::string& experiment, const std::string& out) {
    return run_program({"ckpt", "init", experiment, out});
  };
  const Said said = init(folder / "still", folder / "w");
  CHECK(said.code == 0);
  CHECK(said.out == "wrote " + folder / "w" + ": the 10 parameters that " + folder / "still" +
                        " starts with\n");
  CHECK(contents(folder / "w") == contents(folder / "still/weights.safetensors"));
  // Other seeds, other weights; but start_from is what a run starts with.
  REQUIRE(
      run_program({"ckpt", "init", folder / "still", folder / "other", "--set", "seed=9"}).code ==
      0);
  CHECK_FALSE(contents(folder / "other") == contents(folder / "w"));
  REQUIRE(run_program({"ckpt",
                       "init",
                       folder / "still",
                       folder / "same",
                       "--set",
                       "seed=9",
                       "--set",
                       "start_from=" + folder / "w"})
              .code == 0);
  CHECK(contents(folder / "same") == contents(folder / "w"));
  check_refused({"ckpt", "init", "quadratic", folder / "w"}, 2, "exists already; name a new file");
}

TEST_CASE("ckpt never overwrites, and says how it is called", "[apps]") {
  const Folder folder;
  std::ofstream(folder / "mine") << "mine";
  for (const auto& arguments :
       {std::vector<std::string>{"ckpt", "export", folder / "x", folder / "mine"},
        std::vector<std::string>{"ckpt", "import", folder / "x", "quadratic", folder / "mine"}}) {
    check_refused(arguments, 2, "ckpt: " + folder / "mine" + " exists already; name a new file");
  }
  CHECK(contents(folder / "mine") == "mine");
  check_refused({"ckpt"}, 2, "ckpt: say one of ls, verify, export, import, init");
  check_refused(
      {"ckpt", "exprot"},
      2,
      "ckpt: \"exprot\" is none of ls, verify, export, import, init, did you mean export?");
  check_refused({"ckpt", "ls"}, 2, "ckpt: it is `troupe ckpt ls [--only-glob GLOB] FILE|RUN_DIR`");
  check_refused({"ckpt", "import", "a", "quadratic", folder / "b", "--only-glob", "x"},
                2,
                "ckpt: it is `troupe ckpt import [--set PATH=VALUE] [--skip GLOB] [--hugging-face] "
                "IN.safetensors EXPERIMENT "
                "OUT.safetensors`");
  check_refused({"ckpt", "ls", "/nonexistent"}, 3, "it cannot be opened: No such file");
  REQUIRE(write_safetensors(folder / "empty", {}, {}));
  CHECK(run_program({"ckpt", "ls", folder / "empty"}).out ==
        "name  dtype  shape  elements\n0 tensors, 0 elements, 0.000 MiB\n");
  check_refused({"ckpt", "export", folder / "empty", folder / "b", "--only-glob", "dense*"},
                2,
                "is called like \"dense*\"");
}

TEST_CASE("a name in a file cannot write to the terminal", "[apps]") {
  const Folder folder;
  const std::vector<float> one{1};
  REQUIRE(write_safetensors(
      folder / "x", {{"a\x1b[2J", "F32", {1}, std::as_bytes(std::span(one))}}, {{"k", "v\x07"}}));
  const Said said = run_program({"ckpt", "ls", folder / "x"});
  CHECK(said.out.find('\x1b') == std::string::npos);
  CHECK(said.out.find('\x07') == std::string::npos);
  CHECK_THAT(said.out, says("\"a\\u001b[2J\""));
}

TEST_CASE("checkpoints are verified: their sums, and what they keep", "[apps]") {
  const Folder folder;
  const std::string run = folder / "run";
  REQUIRE(run_program(lenet("sim", run, {"record.checkpoint.every=1"})).code == 0);
  const Said said = run_program({"ckpt", "verify", run});
  CHECK(said.code == 0);
  CHECK_THAT(said.out, says("checkpoints/step-1") && says("virtual clock") && says("whole"));
  const std::string one = run + "/checkpoints/step-1";
  CHECK(run_program({"ckpt", "verify", one}).code == 0);
  check_refused({"ckpt", "verify", folder / "none"}, 3, "there are no checkpoints in");
  const std::string state = contents(one + "/state.pb");
  std::ofstream(one + "/state.pb") << state.substr(0, state.size() / 2);
  check_refused(
      {"ckpt", "verify", run}, 3, "state.pb has another SHA-256 than when it was written");
  fs::remove(one + "/SHA256SUMS");
  check_refused({"ckpt", "verify", one}, 3, "it has no SHA256SUMS; 0 of 1 checkpoints can be used");
}

TEST_CASE("checkpoints that a run replaces meanwhile are not called broken", "[apps]") {
  const Folder folder;
  const std::string run = folder / "run";
  Program program({"run",
                   "teacher-mlp",
                   "--quiet",
                   "--out",
                   run,
                   "--set",
                   "data.teacher.train=600",
                   "--set",
                   "stop.epochs=0",
                   "--set",
                   "stop.updates=1000000000",
                   "--set",
                   "record.checkpoint.every=3"});
  wait_until([&] { return has_checkpoint(run); });
  for (int i = 0; i < 30; ++i) {
    const Said said = run_program({"ckpt", "verify", run});
    const bool all_gone = said.err.find("has replaced the checkpoints") != std::string::npos;
    INFO(said.err);
    CHECK((said.code == 0 || all_gone));
  }
  program.signal(SIGINT);
  CHECK(program.wait().code == 130);
}

TEST_CASE("imported weights keep what they say of the data that they were trained on", "[apps]") {
  const Folder folder;
  const auto write_table = [&](const char* name, double unit) {
    std::ofstream file(folder / name);
    file << "a,b,kind\n";
    for (int i = 0; i < 20; ++i) {
      file << unit * i << ',' << unit * (i % 7) << ',' << (i % 2 == 0 ? "even" : "odd") << '\n';
    }
  };
  write_table("small.csv", 1);
  write_table("large.csv", 1000);
  const auto on = [&](const char* name) {
    return Words{"--set", "data.csv.path=" + (folder / name), "--set", "data.batch_size=4"};
  };
  const auto told = [&](const std::string& file) {
    const Said said = run_program({"ckpt", "ls", file});
    REQUIRE(said.code == 0);
    const std::size_t at = said.out.find("metadata troupe.data: ");
    REQUIRE(at != std::string::npos);
    return said.out.substr(at, said.out.find('\n', at) - at);
  };
  REQUIRE(run_program(
              with({"sim", "--quiet", "--epochs", "1", "--out", folder / "run"}, on("small.csv")))
              .code == 0);
  const Said imported = run_program(
      with({"ckpt", "import", folder / "run", "own-data", folder / "in"}, on("large.csv")));
  INFO(imported.err);
  REQUIRE(imported.code == 0);
  REQUIRE(run_program(with({"ckpt", "init", "own-data", folder / "fresh"}, on("large.csv"))).code ==
          0);
  CHECK(told(folder / "in") == told(folder / "run"));
  CHECK(told(folder / "fresh") != told(folder / "run"));
}

}  // namespace ckpt_test
