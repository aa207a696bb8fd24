// Experiments that cannot be run for want of memory or of samples, and data that is not here: told by every verb that would
// run them, in one sentence, before anything is allocated or downloaded.
#include "apps/plan/room.hpp"

#include "apps/presets/presets.hpp"
#include "experiment.pb.h"
#include "tests/support/catch.hpp"
#include "tests/support/program.hpp"

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace room_test {

using namespace troupe;
using namespace troupe::test;

namespace {

using Words = std::vector<std::string>;

/// What `verb` (of one or two words) says of the experiment with `sets`.
Said asked(Words verb, const std::string& experiment, const Words& sets) {
  verb.push_back(experiment);
  for (const std::string& set : sets) {
    verb.insert(verb.end(), {"--set", set});
  }
  if (verb.front() == "run" || verb.front() == "sim") {
    verb.insert(verb.end(), {"--out", "none"});
  }
  return run_program(verb);
}

void check_refused(const Said& said, const std::string& sentence) {
  CHECK(said.code == 2);
  CHECK_THAT(said.err, says(sentence));
  CHECK(said.err.find("troupe: [") == std::string::npos);  // no check of a function within
}

const std::vector<Words> kVerbs{{"config", "validate"}, {"plan"}, {"run"}, {"sim"}, {"compare"}};

/// Some 300 GiB, and as much again for moments and for gradients.
const std::string kWide =
    "model.mlp.hidden=[65536,65536,65536,65536,65536,65536,65536,65536,65536,65536,"
    "65536,65536,65536,65536,65536,65536,65536,65536,65536,65536]";

Blueprint blueprint(const Words& sets) {
  auto experiment = load_experiment("teacher-mlp", sets);
  REQUIRE(experiment);
  auto made = make_blueprint(*experiment);
  REQUIRE(made);
  return *std::move(made);
}

double part(const Blueprint& b, const std::string& name) {
  for (const MemoryPart& one : memory_parts(b)) {
    if (one.name == name) {
      return one.bytes;
    }
  }
  FAIL("there is no part " << name);
  return 0;
}

}  // namespace

TEST_CASE("what cannot fit into memory is refused by every verb, with what is the greatest part",
          "[apps]") {
  const Words wide{kWide, "pipeline.stages=1"};
  for (const Words& verb : kVerbs) {
    INFO(verb.front());
    const Said said = asked(verb, "teacher-mlp", wide);
    check_refused(said, "the run needs more memory than there is: at least ");
    CHECK_THAT(said.err, says("the weights of the replicas "));
  }
  const Words many{"model.mlp.hidden=[8192,8192,8192]",
                   "pipeline.stages=1",
                   "replicas.count=4000",
                   "stop.updates=100000",
                   "optimizer.rule=adam"};
  check_refused(asked({"sim"}, "teacher-mlp", many), "MiB: gradients ");
  const Words deep{"model.mlp.hidden=[65536]",
                   "pipeline.stages=1",
                   "replicas.count=1000",
                   "data.batch_size=20000"};
  check_refused(asked({"sim"}, "teacher-mlp", deep), "MiB: activations ");
}

TEST_CASE("each phase has to fit", "[apps]") {
  const std::filesystem::path file =
      std::filesystem::temp_directory_path() / "troupe-room-test.textproto";
  std::ofstream(file) << R"(
      model { mlp { hidden: [4] } } data { teacher {} batch_size: 8 } stop { updates: 4 }
      phases { name: "small" } phases { name: "large" set: ")"
                      << "replicas.count=4000\" set: \"data.batch_size=20000\" }";
  const Said said = asked({"config", "validate"}, file.string(), {"model.mlp.hidden=[65536]"});
  check_refused(said, "phases[1]: the run needs more memory");
  std::filesystem::remove(file);
}

TEST_CASE("memory is counted by who keeps what", "[apps]") {
  const Words one{"pipeline.stages=1", "replicas.count=1", "stop.updates=100"};
  const auto with = [&](Words more) {
    more.insert(more.begin(), one.begin(), one.end());
    return blueprint(more);
  };
  const std::string weights = "the weights of the replicas";
  const double single = part(with({}), weights);
  CHECK(single > 0);
  CHECK(part(with({}), "the servers") == 0);
  // Each on its own; one for each version that is out, which are as many as replicas; all the same one.
  CHECK(part(with({"replicas.count=10", "replicas.exchange=gossip"}), weights) == 10 * single);
  CHECK(part(with({"replicas.count=10"}), weights) == 10 * single);
  CHECK(part(with({"replicas.count=10", "stop.updates=3"}), weights) == 3 * single);
  CHECK(part(with({"replicas.count=10", "replicas.exchange=synchronous"}), weights) == single);
  // Weights and a momentum.
  CHECK(part(with({"replicas.count=10"}), "the servers") == 2 * single);
  CHECK(part(with({"replicas.count=10"}), "the moments of their optimizers") == 0);
  CHECK(part(with({"replicas.count=10", "replicas.exchange=gossip"}),
             "the moments of their optimizers") == 10 * single);
  // Further copies have their own.
  const Words copies{
      "replicas.exchange=gossip", "replicas.count=2", "placement.copies=[\"*-0.0=3\"]"};
  CHECK(part(with(copies), weights) == 4 * single);
  CHECK(part(with(copies), "the moments of their optimizers") == 4 * single);
  CHECK(part(with(copies), "gradients") == 4 * part(with({}), "gradients"));
  CHECK(part(with(copies), "activations") == 4 * part(with({}), "activations"));
}

TEST_CASE("a mini-batch of more samples than there are is refused whether the data is here or not",
          "[apps]") {
  for (const std::string& data : Words{"mnist", "fashion_mnist", "cifar10", "cifar100"}) {
    for (const Words& verb : kVerbs) {
      INFO(verb.front() << " " << data);
      check_refused(
          asked(verb,
                data.starts_with("cifar") ? "cifar10-resnet20" : "mnist-mlp",
                {"data=" + data, "data." + data + ".path=/nowhere", "data." + data + ".limit=10"}),
          "data.batch_size is 128, but there are only 10 training samples: --set "
          "data.batch_size=10");
    }
  }
  for (const Words& verb : kVerbs) {
    INFO(verb.front());
    check_refused(
        asked(verb, "glyphs-mlp", {"data.glyphs.limit=10"}),
        "data.batch_size is 128, but there are only 10 training samples: --set data.batch_size=10");
    check_refused(
        asked(verb, "teacher-mlp", {"data.teacher.train=99"}),
        "data.batch_size is 100, but there are only 99 training samples: --set data.batch_size=99");
  }
}

TEST_CASE("what is wrong with an experiment is told before data is asked for", "[apps]") {
  for (const Words& verb : kVerbs) {
    INFO(verb.front());
    const Words nowhere{"data.mnist.path=/nowhere"};
    const Words wrong{"data.mnist.path=/nowhere", "pipeline.stages=50"};
    const Said said = asked(verb, "mnist-mlp", wrong);
    CHECK(said.code == 2);
    CHECK_THAT(said.err, says("pipeline.stages"));
    const Said right = asked(verb, "mnist-mlp", nowhere);
    CHECK(right.code == (verb.front() == "plan" ? 0 : 3));
    CHECK_THAT(right.err, says("/nowhere"));
  }
}

}  // namespace room_test
