// Runs that follow each other: what a phase begins with, where its files are, what ends them all.
#include "apps/run/phases.hpp"

#include "experiment.pb.h"
#include "messages/experiment.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/program.hpp"

#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <new>
#include <thread>

using namespace troupe;
using namespace troupe::test;
namespace fs = std::filesystem;

namespace {

std::atomic<std::int64_t> bytes_taken{0};

/// What `work` takes from the heap, whether it gives it back or not.
template <class F>
std::int64_t bytes_of(F&& work) {
  const std::int64_t before = bytes_taken;
  work();
  return bytes_taken - before;
}

}  // namespace

// All of the program's, so that they can be counted. Not inlined: compilers complain of new beside free.
[[gnu::noinline]] void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  bytes_taken += static_cast<std::int64_t>(size);
  return std::malloc(size > 0 ? size : 1);
}

[[gnu::noinline]] void* operator new(std::size_t size) {
  if (void* const memory = operator new(size, std::nothrow)) {
    return memory;
  }
  throw std::bad_alloc();
}

[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}

[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}

namespace {

/// A small network with a buffer, and dropout, so that nothing is handed on by chance.
const std::string kBase =
    "model { layers { layer { dense { outputs: 12 activation: tanh } } layer { batch_norm {} } "
    "layer { dropout {} } layer { dense {} } } } data { batch_size: 16 teacher { inputs: 6 "
    "outputs: "
    "3 hidden: 8 train: 203 test: 40 } } stop { updates: 9 } record { every: 3 }\n";

std::string with_phases(const std::string& phases) {
  return kBase + phases;
}

std::string write(const Folder& folder, const std::string& text) {
  std::ofstream(folder / "experiment.textproto") << text;
  return folder / "experiment.textproto";
}

google::protobuf::Struct summary_of(const std::string& run) {
  google::protobuf::Struct json;
  REQUIRE(google::protobuf::util::JsonStringToMessage(contents(run + "/summary.json"), &json).ok());
  return json;
}

std::string text(const google::protobuf::Struct& json, const std::string& key) {
  return json.fields().at(key).string_value();
}

std::string digest(const std::string& run) {
  return text(summary_of(run), "weights_sha256");
}

proto::Experiment parsed(const std::string& experiment) {
  auto e = parse_experiment(experiment, "test");
  REQUIRE(e);
  REQUIRE(resolve(*e));
  return *e;
}

std::string refusal(const std::string& phases) {
  const auto made = make_phases(parsed(with_phases(phases)));
  REQUIRE_FALSE(made);
  CHECK(made.error().kind == ErrorKind::usage);
  return made.error().message;
}

}  // namespace

TEST_CASE("a phase is the run that starts from the weights and buffers of the one before",
          "[apps]") {
  const Folder folder;
  const std::string whole = write(folder,
                                  with_phases("phases { name: 'one' set: 'stop.updates=5' } "
                                              "phases { name: 'two' set: 'data.batch_size=32' set: "
                                              "'pipeline.stages=3' set: 'optimizer.rule=adam' } "
                                              "phases { name: 'three' }"));
  for (const std::string verb : {"sim", "run"}) {
    INFO(verb);
    const std::string out = folder / verb;
    const Said said = run_program({verb, whole, "--quiet", "--out", out});
    REQUIRE(said.code == 0);
    CHECK_THAT(said.out, says("phase 2 of 3: two"));
    CHECK_THAT(said.out, says("5 updates"));
    CHECK_THAT(said.out, says("files      " + out + "/02-two"));

    std::ofstream(folder / "base.textproto") << kBase;
    const std::string hand = folder / verb + "-by-hand";
    const auto by_hand = [&](const std::string& name, std::vector<std::string> set) {
      std::vector<std::string> arguments{
          verb, folder / "base.textproto", "--quiet", "--out", hand + name};
      for (const std::string& assignment : set) {
        arguments.insert(arguments.end(), {"--set", assignment});
      }
      REQUIRE(run_program(arguments).code == 0);
    };
    by_hand("1", {"stop.updates=5"});
    by_hand("2",
            {"data.batch_size=32",
             "pipeline.stages=3",
             "optimizer.rule=adam",
             "start_from=" + hand + "1"});
    by_hand("3", {"start_from=" + hand + "2"});
    CHECK(digest(out + "/01-one") == digest(hand + "1"));
    CHECK(digest(out + "/02-two") == digest(hand + "2"));
    CHECK(digest(out + "/03-three") == digest(hand + "3"));
    // Buffers, too.
    CHECK(contents(out + "/03-three/weights.safetensors") ==
          contents(hand + "3/weights.safetensors"));
    CHECK(contents(out + "/weights.safetensors") == contents(hand + "3/weights.safetensors"));

    const auto summary = summary_of(out);
    CHECK(text(summary, "weights_sha256") == digest(hand + "3"));
    const auto& phases = summary.fields().at("phases").list_value();
    REQUIRE(phases.values_size() == 3);
    const auto& two = phases.values(1).struct_value();
    CHECK(text(two, "name") == "two");
    CHECK(text(two, "folder") == "02-two");
    CHECK(text(two, "weights_sha256") == digest(hand + "2"));
    CHECK(two.fields().at("updates").number_value() == 9);
    CHECK(two.fields().at("samples").number_value() == 9 * 32);
  }
}

TEST_CASE("the folder of the whole, and of a phase, gives the same run again", "[apps]") {
  const Folder folder;
  const std::string whole =
      write(folder, with_phases("phases { name: 'a' } phases { name: 'b' set: 'seed=3' }"));
  REQUIRE(run_program({"sim", whole, "--quiet", "--out", folder / "run"}).code == 0);
  REQUIRE(run_program({"sim", folder / "run", "--quiet", "--out", folder / "again"}).code == 0);
  CHECK(contents(folder / "again/experiment.textproto") ==
        contents(folder / "run/experiment.textproto"));
  CHECK(digest(folder / "again") == digest(folder / "run"));
  REQUIRE(run_program({"sim", folder / "run/02-b", "--quiet", "--out", folder / "b"}).code == 0);
  CHECK(digest(folder / "b") == digest(folder / "run"));
  REQUIRE(run_program({"sim", whole, "--quiet", "--set", "phases=[]", "--out", folder / "plain"})
              .code == 0);
  CHECK(digest(folder / "plain") == digest(folder / "run/01-a"));
}

TEST_CASE("a phase that fails is the last, and its exit code is the run's", "[apps]") {
  const Folder folder;
  const std::string whole =
      write(folder,
            with_phases("phases { name: 'good' } phases { name: 'bad' set: "
                        "'optimizer.learning_rate=1e30' set: 'optimizer.rule=sgd' } phases { name: "
                        "'never' }"));
  const Said said = run_program({"sim", whole, "--quiet", "--out", folder / "run"});
  CHECK(said.code == 4);
  CHECK_THAT(said.err, says("troupe: training diverged"));
  CHECK_THAT(said.err, says("troupe: the run ends with phase 2 of 3"));
  CHECK_FALSE(fs::exists(folder / "run/03-never"));
  const auto summary = summary_of(folder / "run");
  CHECK(text(summary, "weights_sha256").empty());
  const auto& phases = summary.fields().at("phases").list_value();
  REQUIRE(phases.values_size() == 2);
  CHECK(phases.values(0).struct_value().fields().at("exit_code").number_value() == 0);
  CHECK(phases.values(1).struct_value().fields().at("exit_code").number_value() == 4);
  // Without weights there is nothing to go on from, allowed or not.
  const Said allowed =
      run_program({"sim", whole, "--quiet", "--set", "stop.allow_divergence=true"});
  CHECK(allowed.code == 0);
  CHECK_THAT(allowed.err, says("troupe: the run ends with phase 2 of 3"));
}

TEST_CASE("a phase keeps the cut that was measured for it", "[apps]") {
  const Folder folder;
  const std::string whole =
      write(folder,
            with_phases("phases { name: 'cut' set: 'pipeline.stages=2' set: "
                        "'pipeline.partition=profiled' } phases { name: 'mixed' set: "
                        "'pipeline.stages=2' set: 'pipeline.partition=mixed' }"));
  REQUIRE(run_program({"sim", whole, "--quiet", "--out", folder / "a"}).code == 0);
  const std::string kept = contents(folder / "a/experiment.textproto");
  const std::size_t second = kept.find("name: \"mixed\"");
  REQUIRE(second != std::string::npos);
  CHECK_THAT(kept.substr(0, second), says("pipeline.cut=["));
  CHECK(kept.substr(0, second).find("pipeline.stage_of=[") == std::string::npos);
  CHECK_THAT(kept.substr(second), says("pipeline.cut=["));
  CHECK_THAT(kept.substr(second), says("pipeline.stage_of=["));
  REQUIRE(run_program({"sim", folder / "a", "--quiet", "--out", folder / "b"}).code == 0);
  CHECK(contents(folder / "b/experiment.textproto") == kept);
  CHECK(contents(folder / "b/weights.safetensors") == contents(folder / "a/weights.safetensors"));
}

TEST_CASE("an interrupt ends all phases", "[apps]") {
  const Folder folder;
  const std::string whole =
      write(folder,
            with_phases("phases { name: 'long' set: 'stop.updates=100000000' } phases { name: "
                        "'never' }"));
  Program program({"run", whole, "--out", folder / "run", "--set", "record.order=false"});
  for (int i = 0; i < 2000 && program.err().find("step ") == std::string::npos; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  program.signal(SIGINT);
  const Said said = program.wait();
  CHECK(said.code == 130);
  CHECK_FALSE(fs::exists(folder / "run/02-never"));
  CHECK(summary_of(folder / "run").fields().at("outcome").string_value() == "interrupted");
  CHECK(summary_of(folder / "run").fields().at("phases").list_value().values_size() == 1);
}

TEST_CASE("what cannot be a phase is refused before the first begins", "[apps]") {
  CHECK_THAT(refusal("phases {} phases { set: 'stop.updates' }"),
             says("phases[1].set: \"stop.updates\" is not path=value"));
  CHECK_THAT(refusal("phases { set: 'stop.updatse=3' }"), says("phases[0].set: stop.updatse: "));
  CHECK_THAT(refusal("phases { set: 'optimizer.learning_rate=-1' }"),
             says("phases[0].set: optimizer.learning_rate: "));
  for (const char* nested : {"phases=[]", " phases = []", "phases.name=a"}) {
    CHECK(refusal(concat("phases { set: '", nested, "' }")) ==
          "phases[0].set: a phase has no phases of its own");
  }
  CHECK_THAT(refusal("phases {} phases { set: 'start_from=here' }"),
             says("phases[1].set: start_from is for the first phase"));
  CHECK_THAT(refusal("phases {} phases { set: 'pipeline.stages=40' }"), says("phases[1]: "));
  for (const char* name : {"a/b", "", "a b", ".."}) {
    const std::string phase = concat("phases { name: '", name, "' }");
    if (std::string(name) == "..") {
      CHECK(make_phases(parsed(with_phases(phase)))->front().folder == "01-..");
    } else {
      CHECK_THAT(refusal(phase), says("phases[0].name: a folder is named after it"));
    }
  }
  CHECK(refusal("phases {} phases { set: 'model.mlp.hidden=[5]' }") ==
        "phases[1].set: the network cannot take the weights of the phase before: dense1.weight is "
        "(5, 6), and there 0.weight is (12, 6)");
}

TEST_CASE("a later phase that the clock rules out ends the run before the first begins", "[apps]") {
  const Folder folder;
  const std::string whole =
      write(folder,
            with_phases("phases { name: 'one' } phases { name: 'two' set: 'replicas.count=2' set: "
                        "'replicas.exchange=hogwild' set: 'stop.updates=8' }"));
  const Said real = run_program({"run", whole, "--quiet", "--out", folder / "run"});
  CHECK(real.code == 2);
  CHECK(real.out.empty());
  CHECK_THAT(real.err, says("phases[1]: record.order: "));
  CHECK_FALSE(fs::exists(folder / "run"));
  CHECK(run_program({"sim", whole, "--quiet", "--out", folder / "sim"}).code == 0);
  const Said valid = run_program({"config", "validate", whole});
  CHECK(valid.code == 0);
  CHECK_THAT(valid.out, says("can be run by troupe sim only; phases[1]: record.order: "));
}

TEST_CASE("the hint after a divergence is that of the phase that diverged", "[apps]") {
  const Folder folder;
  const std::string whole = write(
      folder,
      with_phases("phases { name: 'one' } phases { name: 'two' set: 'replicas.count=2' set: "
                  "'replicas.exchange=easgd' set: 'optimizer.learning_rate=1e30' } phases {}"));
  const Said said = run_program({"sim", whole, "--quiet"});
  CHECK(said.code == 4);
  CHECK_THAT(said.err,
             says("hint: 2 replicas by exchange easgd: try an optimizer.learning_rate "
                  "below 1e+30, some optimizer.warm_up or a shorter "
                  "replicas.exchange.easgd.period; "));
}

TEST_CASE("phases with the same data share it", "[apps]") {
  const auto phases = make_phases(parsed(
      with_phases("phases { set: 'data.batch_size=8' } phases {} phases { set: 'seed=2' }")));
  REQUIRE(phases);
  REQUIRE(phases->size() == 3);
  CHECK((*phases)[0].blueprint.data == (*phases)[1].blueprint.data);
  CHECK((*phases)[0].blueprint.data != (*phases)[2].blueprint.data);  // drawn by seed
}

TEST_CASE("what phases take grows with their number, not with its square", "[apps]") {
  const auto many = [](int count, bool own_data) {
    std::string phases;
    for (int i = 0; i < count; ++i) {
      phases += concat("phases { name: 'p", i, "' ");
      phases += own_data ? concat("set: 'data.teacher.train=", 100 + i, "' ") : "";
      phases += "}\n";
    }
    return parsed(with_phases(phases));
  };
  for (const bool own_data : {false, true}) {
    INFO((own_data ? "each with data of its own" : "all with the same data"));
    const auto few = many(100, own_data);
    const auto all = many(1000, own_data);
    CHECK(bytes_of([&] { REQUIRE(phases_of(all)); }) <
          20 * bytes_of([&] { REQUIRE(phases_of(few)); }));
    CHECK(bytes_of([&] { REQUIRE(make_phases(all)); }) <
          20 * bytes_of([&] { REQUIRE(make_phases(few)); }));
  }
}

TEST_CASE("plan and config know phases", "[apps]") {
  const Folder folder;
  const std::string whole = write(
      folder, with_phases("phases { name: 'a' } phases { name: 'b' set: 'pipeline.stages=2' }"));
  const Said plan = run_program({"plan", whole});
  CHECK(plan.code == 0);
  CHECK_THAT(plan.out, says("phase      1 of 2: a\n"));
  CHECK_THAT(plan.out, says("phase      2 of 2: b\n"));
  CHECK_THAT(plan.out, says("latest, 2 stages"));
  CHECK(run_program({"config", "validate", whole}).code == 0);
  const Said print = run_program({"config", "print", whole});
  CHECK(print.code == 0);
  CHECK(parsed(print.out).phases_size() == 2);
  std::ofstream(folder / "wrong.textproto") << with_phases("phases { set: 'seed=x' }");
  for (const char* what : {"print", "validate"}) {
    const Said said = run_program({"config", what, folder / "wrong.textproto"});
    CHECK(said.code == 2);
    CHECK_THAT(said.err, says("phases[0].set: seed: "));
  }
}

TEST_CASE("no key is suggested that a phase may not set", "[apps]") {
  const auto said_of = [](const std::string& first, const std::string& second) {
    proto::Experiment e;
    e.add_phases()->set_name("one");
    e.mutable_phases(0)->add_set(first);
    e.add_phases()->set_name("two");
    e.mutable_phases(1)->add_set(second);
    REQUIRE(resolve(e));
    const auto phases = phases_of(e);
    REQUIRE_FALSE(phases);
    return phases.error().message;
  };
  const std::string phase = said_of("phase=1", "seed=2");
  CHECK_THAT(phase, says("phases[0].set: phase: an experiment has no key \"phase\" (legal: name,"));
  CHECK_THAT(phase, says(" start_from_skip)"));
  CHECK_THAT(phase, !says(" phases,"));
  CHECK_THAT(said_of("start_fom=a", "seed=2"), says("did you mean \"start_from\"?"));
  CHECK_THAT(said_of("seed=2", "start_fom=a"), !says("start_from"));
  CHECK_THAT(said_of("seed=2", "sed=3"), says("did you mean \"seed\"?"));
}
