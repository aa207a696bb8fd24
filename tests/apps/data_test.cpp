// troupe data, as a user runs it, against a server on this machine.
#include "experiment.pb.h"
#include "messages/experiment.hpp"
#include "runtime/checkpoint/safetensors.hpp"
#include "runtime/data/batch.hpp"
#include "runtime/record/sha256.hpp"
#include "tests/runtime/data/array_files.hpp"
#include "tests/support/bad_server.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/program.hpp"
#include "tests/support/sanitized.hpp"
#include "tests/support/surroundings.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace data_test {

using namespace troupe;
using namespace troupe::test;
namespace fs = std::filesystem;

namespace {

std::string text() {
  std::string text;
  for (int i = 0; i < 20'000; ++i) {
    text += static_cast<char>('a' + i * i % 23);
  }
  return text;
}

/// input.txt on a server.
struct Scene {
  Scene() {
    fs::create_directory(folder / "server");
    std::ofstream(folder / "server/input.txt") << text();
    server.emplace(folder / "server", folder / "log");
    sum = *file_sha256(folder / "server/input.txt");
  }

  std::vector<std::string> fetch(const std::string& behaviour,
                                 std::vector<std::string> more = {}) const {
    std::vector<std::string> words{
        "data", "fetch", "shakespeare", "--from", server->url(behaviour), "--to", folder / "to"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }

  Folder folder;
  std::optional<BadServer> server;
  std::string sum;
};

void check_usage(const std::vector<std::string>& words, const std::string& message) {
  const Said said = run_program(words);
  CHECK(said.code == 2);
  CHECK(said.out.empty());
  CHECK(said.err == "troupe: data: " + message + "\n");
}

}  // namespace

TEST_CASE("a set is fetched, and the key to use it is told", "[apps]") {
  const Scene scene;
  const Said said = run_program(scene.fetch("plain", {"--sha256", scene.sum}));
  CHECK(said.code == 0);
  CHECK(said.err == "input.txt: is there\n");
  CHECK(said.out == "Shakespeare is in " + (scene.folder / "to") +
                        "; use it by --set data.text.path=" + (scene.folder / "to/input.txt") +
                        "\n");
  CHECK(contents(scene.folder / "to/input.txt") == text());
  const Said again = run_program(scene.fetch("plain", {"--sha256", "input.txt=" + scene.sum}));
  CHECK(again.code == 0);
  CHECK(again.err == "input.txt: is there already\n");
}

TEST_CASE("without --to it lies where runs look for it", "[apps]") {
  const Scene scene;
  const std::string command = "XDG_CACHE_HOME='" + scene.folder.path().string() + "' '" +
                              program_path() + "' data fetch shakespeare --from " +
                              scene.server->url("plain") + " --sha256 " + scene.sum + " > '" +
                              (scene.folder / "out") + "' 2>&1";
  REQUIRE(std::system(command.c_str()) == 0);
  CHECK_THAT(contents(scene.folder / "out"), says("; use it by --set data=text\n"));
  CHECK(contents(scene.folder / "troupe/shakespeare/input.txt") == text());
}

TEST_CASE("what fails is one sentence and exit code 3", "[apps]") {
  const Scene scene;
  SECTION("what was served is not what is known by the name") {
    const Said said = run_program(scene.fetch("plain"));
    CHECK(said.code == 3);
    CHECK(said.err.ends_with("/input.txt could not be fetched: its SHA-256 is " + scene.sum +
                             ", not 86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565e"
                             "d as it should be\n"));
    CHECK(fs::is_empty(scene.folder / "to"));
  }
  SECTION("nothing is there") {
    const Said said = run_program(scene.fetch("nothing"));
    CHECK(said.code == 3);
    CHECK(said.err == "troupe: " + scene.server->url("nothing") +
                          "/input.txt could not be fetched: the server answered 404\n");
  }
}

TEST_CASE("a full disk while fetching is exit code 5", "[apps]") {
  const Scene scene;
  const std::string command = "ulimit -f 8; '" + program_path() +
                              "' data fetch shakespeare --from " + scene.server->url("plain") +
                              " --to '" + (scene.folder / "to") + "' --sha256 " + scene.sum;
  const Said said = Program({"-c", command}, "", "/bin/sh").wait();
  CHECK(said.code == 5);
  CHECK(said.err == "troupe: " + (scene.folder / "to/input.txt.part") +
                        " could not be written: File too large\n");
}

TEST_CASE("words that data does not know are refused", "[apps]") {
  const std::string sets = "mnist, fashion_mnist, cifar10, cifar100, shakespeare";
  const std::string sum(64, 'a');
  check_usage({"data"}, "say fetch, batches, tokenize or convert; what can be fetched: " + sets);
  check_usage({"data", "fetsh"},
              "\"fetsh\" is none of fetch, batches, tokenize and convert, did you mean \"fetch\"?");
  check_usage({"data", "fetch"}, "say which: " + sets);
  check_usage({"data", "fetch", "mnits"},
              "there is no \"mnits\" to fetch, did you mean \"mnist\"? (" + sets + ")");
  check_usage({"data", "fetch", "mnist", "cifar10"},
              "it is `troupe data fetch [--to DIR] [--from URL] [--sha256 [FILE=]SUM] NAME`");
  check_usage({"data", "fetch", "shakespeare", "--sha256", "abc"},
              "--sha256: \"abc\" is not 64 hexadecimal digits");
  check_usage({"data", "fetch", "shakespeare", "--sha256", "input=" + sum},
              "--sha256: shakespeare has no input (input.txt)");
  check_usage({"data", "fetch", "mnist", "--sha256", sum},
              "--sha256: say of which file, as FILE=SUM (train-images-idx3-ubyte.gz, "
              "train-labels-idx1-ubyte.gz, t10k-images-idx3-ubyte.gz, t10k-labels-idx1-ubyte.gz)");
}

TEST_CASE("data batches writes what a run reads, in its order", "[apps]") {
  const Folder folder;
  const auto batches = [&](const std::string& out, std::vector<std::string> settings) {
    std::vector<std::string> words{"data", "batches", "glyphs-mlp", "5", out};
    settings.emplace_back("data.glyphs.limit=20");
    for (const std::string& setting : settings) {
      words.insert(words.end(), {"--set", setting});
    }
    return run_program(words);
  };
  const Said said = batches(folder / "a", {"data.batch_size=8"});
  CHECK(said.code == 0);
  CHECK(said.out == "wrote " + folder / "a" + ": x and target of the first 5 mini-batches\n");
  const auto file = SafetensorsFile::open(folder / "a");
  REQUIRE(file);
  const SafetensorsEntry* x = file->find("x");
  const SafetensorsEntry* target = file->find("target");
  REQUIRE((x && target));
  CHECK(x->dtype == "F32");
  CHECK(x->shape == std::vector<std::int64_t>{5, 8, 28, 28, 1});
  CHECK(target->dtype == "I32");
  CHECK(target->shape == std::vector<std::int64_t>{5, 8});
  // Two mini-batches are an epoch of 16 of the 20 samples; the order is BatchOrder's.
  auto experiment = parse_experiment("data { batch_size: 8 glyphs { limit: 20 } }", "test");
  REQUIRE(experiment);
  REQUIRE(resolve(*experiment));
  const auto glyphs = open_dataset(experiment->data(), 1);
  REQUIRE(glyphs);
  BatchOrder order(20, 8, 1);
  Stream stream(Device{});
  const std::vector<float> all = floats_of(*x);
  for (std::int64_t batch = 0; batch < 5; ++batch) {
    const Batch want = gather_batch(
        stream, **glyphs, Split::train, order.indices(batch, 0, 1), order.epoch(batch));
    const auto values = want.x.span<float>();
    CHECK(std::equal(values.begin(), values.end(), all.begin() + batch * 8 * 784));
    const auto labels = want.target.span<std::int32_t>();
    CHECK(std::memcmp(labels.data(), target->bytes.data() + batch * 32, 32) == 0);
  }

  const std::string usual =
      "it is `troupe data batches [--set PATH=VALUE] EXPERIMENT COUNT OUT.safetensors`";
  check_usage({"data", "batches"}, usual);
  check_usage({"data", "batches", "glyphs-mlp", "2", folder / "b", "--to", "x"}, usual);
  for (const char* count : {"0", "-1", "2x", "100001", "99999999999999999999"}) {
    check_usage({"data", "batches", "glyphs-mlp", count, folder / "b"},
                concat("COUNT: \"", count, "\" is no number from 1 to 100000"));
  }
  check_usage({"data", "batches", "glyphs-mlp", "2", folder / "a"},
              folder / "a" + " exists already; name a new file");
  CHECK(run_program({"data", "batches", "glyps-mlp", "2", folder / "b"}).code == 2);
  CHECK_FALSE(fs::exists(folder / "b"));
}

TEST_CASE("tokens are refused by models that read numbers", "[apps]") {
  const Folder folder;
  std::ofstream(folder / "text") << text();
  const Said said = run_program(
      {"config", "validate", "glyphs-mlp", "--set", "data.text.path=" + (folder / "text")});
  CHECK(said.code == 2);
  CHECK(said.err ==
        "troupe: model: mlp cannot read tokens; for text choose gpt, llama, lstm or layers\n");
}

TEST_CASE(
    "a plan needs no data set that everybody has alike, and a wrong key is told before missing "
    "data",
    "[apps]") {
  const Folder folder;
  const std::string nowhere = "data.mnist.path=" + (folder / "nowhere");
  const Said plan = run_program({"plan", "mnist-lenet5", "--set", nowhere});
  INFO(plan.err);
  CHECK(plan.code == 0);
  CHECK_THAT(plan.out, says("(28, 28, 1)"));
  CHECK_THAT(plan.err, says("a run would end here: MNIST was looked for in "));
  const Said colours = run_program(
      {"plan", "cifar10-resnet20", "--set", "data.cifar10.path=" + (folder / "nowhere")});
  CHECK_THAT(colours.out, says("(32, 32, 3)"));

  const Said wrong = run_program(
      {"config", "validate", "mnist-lenet5", "--set", nowhere, "--set", "pipeline.stages=90"});
  CHECK(wrong.code == 2);
  CHECK_THAT(wrong.err, says("pipeline.stages"));
  const Said missing = run_program({"config", "validate", "mnist-lenet5", "--set", nowhere});
  CHECK(missing.code == 3);
  CHECK_THAT(missing.err, says("MNIST was looked for in "));
}

TEST_CASE("paths may begin at home", "[apps]") {
  const Folder folder;
  const Environment home("HOME", folder.path().string());
  std::ofstream(folder / "t.csv") << "a,b\n1,x\n2,y\n3,x\n4,y\n";
  std::ofstream(folder / "e.textproto")
      << "data { csv { path: \"~/t.csv\" } batch_size: 2 } stop { epochs: 1 }";
  for (const Words& words : {Words{"--set", "data.csv.path=~/t.csv", "--set", "data.batch_size=2"},
                             Words{folder / "e.textproto"}}) {
    const Said said = run_program(with({"config", "validate"}, words));
    INFO(said.err);
    CHECK(said.code == 0);
  }
  CHECK_THAT(run_program({"config", "print", folder / "e.textproto"}).out,
             says("path: \"" + (folder / "t.csv") + "\""));
}

TEST_CASE("own data trains by AdamW on one stage, and a run that has learnt nothing is told of",
          "[apps]") {
  const Folder folder;
  const auto table = [&](const std::string& name, bool tells) {
    std::ofstream file(folder / name);
    file << "x,y\n";
    for (int i = 0; i < 60; ++i) {
      file << (tells ? i % 3 : 1) << ',' << (i % 3 == 0 ? "rose" : "aster") << '\n';
    }
    return "data.csv.path=" + (folder / name);
  };
  const std::string tells = table("tells.csv", true);
  const Said said = run_program({"config", "print", "--set", tells});
  CHECK_THAT(said.out, says("name: \"own-data\"") && says("rule: adamw") && says("stages: 1"));
  const Said asked =
      run_program({"config", "print", "--set", tells, "--set", "optimizer.rule=sgd"});
  CHECK_THAT(asked.out, !says("adamw") && says("weight_decay: 0\n"));
  // Key by key, in a file without an optimizer, too.
  std::ofstream(folder / "e.textproto") << "model { mlp {} } data { csv { path: \"t.csv\" } }";
  const auto keyed = [&](const std::string& set) {
    return run_program({"config", "print", folder / "e.textproto", "--set", set}).out;
  };
  CHECK_THAT(keyed("optimizer.clip_norm=1"), says("rule: adamw") && says("learning_rate: 0.001"));
  CHECK_THAT(keyed("optimizer.learning_rate=0.02"),
             says("rule: adamw") && says("learning_rate: 0.02"));
  CHECK_THAT(keyed("optimizer.rule=adam"), says("rule: adam\n") && says("learning_rate: 0.001"));
  CHECK_THAT(keyed("optimizer.rule=sgd"), says("rule: sgd") && says("learning_rate: 0.05"));
  CHECK_THAT(keyed("pipeline.weights=nesterov"), says("rule: nadamw"));
  CHECK_THAT(keyed("replicas.exchange=sandblaster"), says("sandblaster") && !says("adamw"));
  for (const std::string own :
       {"own-data", "own-images"}) {  // nothing stands for what is not named
    const Said unnamed = run_program({"config", "validate", own});
    CHECK(unnamed.code == 2);
    CHECK_THAT(unnamed.err, says(own == "own-data" ? "data.csv.path=FILE" : "data.folder.path="));
  }
  for (const std::string text : {"data.text.path=story.txt", "data.tokens.path=story.bin"}) {
    CHECK_THAT(run_program({"config", "print", "--set", text}).out, says("gpt {"));
  }
  const Said timed = run_program({"config", "print", "--set", tells, "--set", "stop.seconds=9"});
  CHECK_THAT(timed.out, says("seconds: 9") && !says("epochs: 60") && !says("cosine"));
  const Said images = run_program({"config", "print", "--set", "data.folder.path=photos"});
  CHECK_THAT(images.out, says("name: \"own-images\"") && says("convolution") && says("adamw"));

  const std::string hint = "hint: this is no better than the most frequent class";
  const auto run = [&](const std::string& set) {
    return run_program({"sim", "--out", "none", "--set", set, "--set", "stop.epochs=40"});
  };
  const Said learnt = run(tells);
  CHECK(learnt.code == 0);
  CHECK_THAT(learnt.err, !says(hint));
  std::ofstream(folder / "prices.csv") << [] {
    std::string text = "area,price\n";
    for (int i = 0; i < 200; ++i) {
      text += concat(i * 7 % 50, ',', 20000 * (i * 7 % 50) + 300000, '\n');
    }
    return text;
  }();
  const std::string prices = "data.csv.path=" + (folder / "prices.csv");
  const Said fit = run_program(
      {"sim", "--out", folder / "run", "--set", prices, "--set", "data.csv.values=true"});
  CHECK_THAT(fit.out, says("\nR2         1.0000 on the test data") || says("\nR2         0.99"));
  CHECK_THAT(fit.out, says("e-0") && !says(" 0.0000"));
  CHECK_THAT(run_program({"eval", folder / "run"}).out, says("R2 ") && says(" on the test data"));
  // One answer for all is the best there is.
  const Said nothing = run(table("silent.csv", false));
  CHECK(nothing.code == 0);
  CHECK_THAT(nothing.err, says(hint) && says("try more epochs"));
  // What was warned of at the beginning is repeated.
  std::ofstream(folder / "counts.csv") << [] {
    std::string text = "area,price\n";
    for (int i = 0; i < 200; ++i) {
      text += concat(i * 7 % 50, ',', i, '\n');
    }
    return text;
  }();
  const Said counted = run("data.csv.path=" + (folder / "counts.csv"));
  CHECK_THAT(counted.err,
             says(hint) && says("try --set data.csv.values=true, which predicts numbers, or more"));
}

TEST_CASE("a table that is larger than memory should hold is refused before it is read", "[apps]") {
  const Folder folder;
  { const std::ofstream file(folder / "t.csv"); }
  fs::resize_file(folder / "t.csv", (std::uintmax_t{1} << 30) + 1);  // of holes
  const Said said =
      run_program({"config", "validate", "--set", "data.csv.path=" + (folder / "t.csv")});
  CHECK(said.code == 3);
  CHECK_THAT(said.err,
             says("it has 1073741825 bytes, and a table, which is kept in memory, may have "
                  "1073741824 (1 GiB)"));
}

TEST_CASE("a text that is tokenized once trains as tokens", "[apps]") {
  const Folder folder;
  std::ofstream(folder / "text") << text();
  const Said said = run_program({"data", "tokenize", folder / "text", folder / "text.bin"});
  INFO(said.err);
  REQUIRE(said.code == 0);
  CHECK(said.out == concat("wrote ",
                           folder / "text.bin",
                           ": 20000 tokens of 2 bytes; use it by --set data.tokens.path=",
                           folder / "text.bin",
                           " --set data.tokens.vocabulary=256\n"));
  const std::string bytes = contents(folder / "text.bin");
  REQUIRE(bytes.size() == 40'000);
  CHECK(bytes.substr(0, 6) == std::string("a\0b\0e\0", 6));
  const Said valid = run_program({"config",
                                  "validate",
                                  "shakespeare-gpt",
                                  "--set",
                                  "data.tokens.path=" + (folder / "text.bin"),
                                  "--set",
                                  "data.tokens.vocabulary=256"});
  INFO(valid.err);
  CHECK(valid.code == 0);
  const Said run = run_program({"sim",
                                "--quiet",
                                "--out",
                                folder / "run",
                                "--set",
                                "data.tokens.path=" + (folder / "text.bin"),
                                "--set",
                                "data.tokens.vocabulary=256",
                                "--set",
                                "model.gpt.width=16",
                                "--set",
                                "stop.updates=1"});
  INFO(run.err);
  CHECK(run.code == 0);
  CHECK_THAT(run.out, says("1 update, "));
  const Said sampled = run_program({"sample", folder / "run"});
  CHECK(sampled.code == 2);
  CHECK_THAT(sampled.err,
             says("files of tokens do not say what text they stand for: a run on the text itself, "
                  "by data.text.path, can write some"));
  check_usage({"data", "tokenize", folder / "text", folder / "text.bin"},
              folder / "text.bin" + " exists already; name a new file");
  check_usage({"data", "tokenize", folder / "text"},
              "it is `troupe data tokenize [--vocabulary DIR] TEXT OUT.bin`");
  check_usage({"data", "fetch", "mnist", "--vocabulary", "x"}, "--vocabulary is for tokenize");
  const Said none = run_program({"data", "tokenize", folder / "none", folder / "b"});
  CHECK(none.code == 3);
  CHECK_THAT(none.err, Catch::Contains("none is not usable: it cannot be opened: No such file"));
  CHECK_FALSE(fs::exists(folder / "b"));
}

namespace {

/// For a shell: what comes next has no more memory than that. AddressSanitizer reserves terabytes, and does without.
std::string with_at_most(int kibibytes) {
  return kSanitized ? "" : concat("ulimit -d ", kibibytes, "; ");
}

}  // namespace

TEST_CASE("a run reads arrays that are larger than the memory that it may have", "[apps]") {
  const Folder folder;
  fs::create_directory(folder / "large");
  // 1.25 GiB of zeros, which take no room on the disk; labels 0 and 1 in turn.
  constexpr std::uintmax_t kRows = 16384;
  constexpr std::uintmax_t kColumns = 10240;
  const std::string head = npy_file(npy_dictionary<double>("(16384, 10240)"), "");
  std::ofstream(folder / "large/x.npy", std::ios::binary) << head;
  fs::resize_file(folder / "large/x.npy", head.size() + kRows * kColumns * sizeof(double));
  std::vector<std::int64_t> labels(kRows);
  for (std::size_t i = 0; i < kRows; ++i) {
    labels[i] = static_cast<std::int64_t>(i % 2);
  }
  std::ofstream(folder / "large/y.npy", std::ios::binary) << npy<std::int64_t>("(16384,)", labels);
  const auto train = [&](int kibibytes) {
    const std::string command =
        concat(with_at_most(kibibytes),
               "TROUPE_RUNS=none '",
               program_path(),
               "' sim --quiet --set data.arrays.path='",
               folder / "large",
               "' --set data.arrays.normalize=false --set data.batch_size=4 "
               "--set model.mlp.hidden=[8] --set stop.updates=5 --set "
               "record.evaluate=false > '",
               folder / "said",
               "' 2>&1");
    return std::system(command.c_str());
  };
  const int code = train(600'000);  // less than half of it
  INFO(contents(folder / "said"));
  CHECK(code == 0);
  CHECK_THAT(contents(folder / "said"), Catch::Contains("done       5 updates"));
}

TEST_CASE("a table is converted within less memory than it has bytes", "[apps]") {
  const Folder folder;
  constexpr int kRows = 4'000'000;
  {
    std::ofstream table(folder / "large.csv");
    table << "first,second,kind\n";
    std::string rows;
    for (int i = 0; i < 1000; ++i) {
      rows += concat(0.125 * i, ",-1.00000000,", i % 2 == 0 ? "even" : "odd", "\n");
    }
    for (int i = 0; i < kRows / 1000; ++i) {
      table << rows;
    }
  }
  REQUIRE(fs::file_size(folder / "large.csv") > 90'000'000);
  const std::string command = concat(with_at_most(80'000),
                                     "'",
                                     program_path(),
                                     "' data convert '",
                                     folder / "large.csv",
                                     "' '",
                                     folder / "arrays",
                                     "' > '",
                                     folder / "said",
                                     "' 2>&1");
  const int code = std::system(command.c_str());
  INFO(contents(folder / "said"));
  CHECK(code == 0);
  CHECK_THAT(contents(folder / "said"),
             Catch::Contains("4000000 samples of 2 numbers in 2 classes; use it by --set"));
  CHECK(contents(folder / "arrays/classes.txt") == "even\nodd\n");
  CHECK(fs::file_size(folder / "arrays/x.npy") == 128 + kRows * 2 * sizeof(float));
}

TEST_CASE("mistakes in converting a table are one sentence", "[apps]") {
  const Folder folder;
  std::ofstream(folder / "t.csv") << "a,kind\n1,x\n2,y\n";
  fs::create_directory(folder / "full");
  std::ofstream(folder / "full/mine") << "x";
  check_usage({"data", "convert", folder / "t.csv"},
              "it is `troupe data convert [--set data.csv.KEY=VALUE] TABLE.csv DIR`");
  check_usage({"data", "convert", folder / "t.csv", folder / "full"},
              folder / "full" + " exists already; name a new folder");
  check_usage({"data", "convert", "--set", "seed=3", folder / "t.csv", folder / "a"},
              "convert: --set: \"seed=3\" is no key below data.csv");
  const Said none = run_program({"data", "convert", folder / "none.csv", folder / "a"});
  CHECK(none.code == 3);
  CHECK_THAT(none.err, Catch::Contains("none.csv is not usable: it cannot be opened"));
  CHECK_FALSE(fs::exists(folder / "a"));
}

}  // namespace data_test
