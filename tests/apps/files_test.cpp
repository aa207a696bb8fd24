// Runs of the program that leave files: what stands in them, how they end, and what happens where
// they cannot be written.
#include "messages/experiment.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/program.hpp"

#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <map>
#include <sstream>
#include <thread>

namespace files_test {

using namespace troupe::test;
namespace fs = std::filesystem;

namespace {

using Json = google::protobuf::Struct;

/// Parsed by protobuf's own JSON parser: ours only writes.
Json parse(const std::string& text) {
  Json json;
  const auto status = google::protobuf::util::JsonStringToMessage(text, &json);
  INFO(text);
  REQUIRE(status.ok());
  return json;
}

double number(const Json& json, const std::string& key) {
  return json.fields().at(key).number_value();
}

std::string text(const Json& json, const std::string& key) {
  return json.fields().at(key).string_value();
}

std::vector<Json> lines(const std::string& path) {
  std::vector<Json> all;
  std::istringstream in(contents(path));
  for (std::string line; std::getline(in, line);) {
    all.push_back(parse(line));
  }
  return all;
}

/// A tiny run in well under a second.
std::vector<std::string> tiny(const std::string& verb,
                              const std::string& out,
                              std::vector<std::string> more = {}) {
  std::vector<std::string> arguments{verb,
                                     "teacher-mlp",
                                     "--quiet",
                                     "--out",
                                     out,
                                     "--set",
                                     "model.mlp.hidden=[16,16]",
                                     "--set",
                                     "pipeline.stages=2",
                                     "--set",
                                     "data.teacher.train=1000",
                                     "--set",
                                     "data.teacher.test=100",
                                     "--set",
                                     "stop.epochs=3",
                                     "--set",
                                     "record.every=10"};
  for (std::string& argument : more) {
    arguments.push_back(std::move(argument));
  }
  return arguments;
}

}  // namespace

TEST_CASE("a virtual run leaves its experiment, metrics, order and summary", "[apps]") {
  const Folder folder;
  const std::string run = folder / "new/run";
  const Said said = run_program(tiny("sim", run, {"--set", "record.versions=true"}));
  CHECK(said.code == 0);
  CHECK_THAT(said.out, says("files      " + run));

  const Json summary = parse(contents(run + "/summary.json"));
  CHECK(text(summary, "outcome") == "done");
  CHECK(text(summary, "clock") == "virtual");
  CHECK(number(summary, "updates") == 30);
  CHECK(number(summary, "epochs") == 3);
  CHECK(number(summary, "samples") == 3000);
  CHECK(number(summary, "seconds") > 0);
  CHECK(number(summary, "samples_per_second") > 0);
  CHECK(contents(run + "/summary.json").find("tokens_per_second") == std::string::npos);
  CHECK(number(summary, "test_accuracy") > 0);
  CHECK(text(summary, "weights_sha256").size() == 64);
  CHECK(text(summary, "order_sha256").size() == 64);
  const Json& staleness =
      summary.fields().at("staleness").struct_value().fields().at("shard-0").struct_value();
  CHECK(number(staleness, "max") == 1);
  CHECK(number(staleness.fields().at("histogram").struct_value(), "1") == 29);
  CHECK(text(summary.fields().at("experiment").struct_value(), "name") == "teacher-mlp");

  const std::vector<Json> metrics = lines(run + "/metrics.jsonl");
  CHECK(text(metrics.front(), "kind") == "header");
  std::vector<double> train;
  std::vector<double> evaluations;
  int versions = 0;
  for (const Json& line : metrics) {
    if (text(line, "kind") == "train") {
      train.push_back(number(line, "step"));
    } else if (text(line, "kind") == "evaluation") {
      evaluations.push_back(number(line, "step"));
    } else if (text(line, "kind") == "versions") {
      ++versions;
      const double behind = number(line, "applied_to") - number(line, "forward");
      CHECK(behind == (number(line, "stage") == 0 && number(line, "batch") > 0 ? 1 : 0));
    }
  }
  CHECK(train == std::vector<double>{1, 10, 20, 30});
  CHECK(evaluations == std::vector<double>{10, 20, 30});
  CHECK(versions == 60);
  CHECK_THAT(contents(run + "/order.log"), says(" stage-0 Activation 0 0 0 0 source\n"));
}

TEST_CASE("a run's own experiment.textproto gives the same run again, bit for bit", "[apps]") {
  const Folder folder;
  REQUIRE(run_program(tiny("sim", folder / "a")).code == 0);
  REQUIRE(run_program({"sim", folder / "a/experiment.textproto", "--quiet", "--out", folder / "b"})
              .code == 0);
  REQUIRE(run_program({"sim", folder / "a", "--quiet", "--out", folder / "c"}).code ==
          0);  // a run's folder will do
  for (const char* file : {"/experiment.textproto", "/metrics.jsonl", "/order.log"}) {
    CHECK(contents(folder / "a" + file) == contents(folder / "b" + file));
    CHECK(contents(folder / "a" + file) == contents(folder / "c" + file));
  }
  const Json a = parse(contents(folder / "a/summary.json"));
  const Json b = parse(contents(folder / "b/summary.json"));
  CHECK(text(a, "weights_sha256") == text(b, "weights_sha256"));
  CHECK(text(a, "order_sha256") == text(b, "order_sha256"));
}

TEST_CASE("the real clock makes the same weights, and keeps an order a thread", "[apps]") {
  const Folder folder;
  REQUIRE(run_program(tiny("sim", folder / "sim")).code == 0);
  REQUIRE(run_program(tiny("run", folder / "run")).code == 0);
  const Json virtual_run = parse(contents(folder / "sim/summary.json"));
  const Json real_run = parse(contents(folder / "run/summary.json"));
  CHECK(text(real_run, "clock") == "real");
  CHECK(text(real_run, "weights_sha256") == text(virtual_run, "weights_sha256"));
  CHECK(number(real_run, "train_loss") == number(virtual_run, "train_loss"));
  CHECK(text(real_run, "order_sha256").size() == 64);
  CHECK(fs::exists(folder / "run/order-0.log"));
  REQUIRE(run_program(tiny("run", folder / "silent", {"--set", "record.order=false"})).code == 0);
  CHECK(text(parse(contents(folder / "silent/summary.json")), "order_sha256").empty());
  CHECK_FALSE(fs::exists(folder / "silent/order-0.log"));
}

TEST_CASE("an existing run directory is refused and left alone", "[apps]") {
  const Folder folder;
  fs::create_directory(folder / "here");
  std::ofstream(folder / "here/metrics.jsonl") << "mine";
  const Said said = run_program(tiny("run", folder / "here"));
  CHECK(said.code == 2);
  CHECK(said.err == "troupe: --out: " + folder / "here" +
                        " exists already; name a new folder, a run never overwrites another\n");
  CHECK(contents(folder / "here/metrics.jsonl") == "mine");
}

TEST_CASE("a run directory may be named with a slash behind it", "[apps]") {
  const Folder folder;
  CHECK(run_program(tiny("sim", folder / "new/run/")).code == 0);
  CHECK(fs::exists(folder / "new/run/summary.json"));
  CHECK(run_program(tiny("sim", folder / "new/run/")).code == 2);
}

TEST_CASE("nothing is made for an experiment that cannot be run", "[apps]") {
  const Folder folder;
  CHECK(run_program(tiny("run", folder / "bad", {"--set", "pipeline.stages=40"})).code == 2);
  CHECK_FALSE(fs::exists(folder / "bad"));
}

TEST_CASE("training that diverges ends with code 4 at the first bad mini-batch, on either clock",
          "[apps]") {
  const Folder folder;
  double step = -1;
  for (const std::string verb : {"sim", "run"}) {
    const Said said = run_program(
        tiny(verb,
             folder / verb,
             {"--set", "optimizer.learning_rate=1e30", "--set", "model.mlp.activation=relu"}));
    CHECK(said.code == 4);
    CHECK_THAT(said.err, says("troupe: training diverged: the loss of mini-batch "));
    CHECK_THAT(said.err, says("hint: a smaller optimizer.learning_rate"));
    const Json summary = parse(contents(folder / (verb + "/summary.json")));
    CHECK(summary.fields().at("train_loss").has_null_value());
    CHECK(text(summary, "weights_sha256").empty());
    CHECK((step < 0 || number(summary, "updates") == step));
    step = number(summary, "updates");
  }
  const Said allowed = run_program(tiny("sim",
                                        folder / "allowed",
                                        {"--set",
                                         "optimizer.learning_rate=1e30",
                                         "--set",
                                         "model.mlp.activation=relu",
                                         "--set",
                                         "stop.allow_divergence=true"}));
  CHECK(allowed.code == 0);
}

TEST_CASE("replicas that diverge are told how late their gradients were", "[apps]") {
  const Folder folder;
  const std::vector<std::string> server{"--set",
                                        "optimizer.learning_rate=1e30",
                                        "--set",
                                        "model.mlp.activation=relu",
                                        "--set",
                                        "replicas.count=3"};
  const Said late = run_program(tiny("sim", folder / "late", server));
  CHECK(late.code == 4);
  CHECK_THAT(late.err, says("hint: gradients were late, staleness shard-0 "));
  CHECK_THAT(late.err, says("replicas.rule=dana_slim"));
  auto averaging = server;
  averaging.insert(averaging.end(), {"--set", "replicas.exchange=averaging"});
  const Said local = run_program(tiny("sim", folder / "local", averaging));
  CHECK(local.code == 4);
  CHECK_THAT(local.err, says("hint: 3 replicas by exchange averaging: "));
  CHECK_THAT(local.err, says("or a shorter replicas.exchange.averaging.period; "));
}

TEST_CASE("the hint after a divergence names only keys that the experiment reads", "[apps]") {
  const auto hint = [](const std::vector<std::string>& set) {
    std::vector<std::string> arguments{"--set",
                                       "optimizer.learning_rate=1e30",
                                       "--set",
                                       "model.mlp.activation=relu",
                                       "--set",
                                       "record.order=false"};
    for (const std::string& assignment : set) {
      arguments.insert(arguments.end(), {"--set", assignment});
    }
    const Folder folder;
    const Said said = run_program(tiny("sim", folder / "run", arguments));
    INFO(said.err);
    CHECK(said.code == 4);
    const std::size_t at = said.err.find("hint: ");
    REQUIRE(at != said.err.npos);
    return said.err.substr(at);
  };
  const auto lacks = [](const std::string& text, const std::string& part) {
    INFO(text);
    CHECK(text.find(part) == text.npos);
  };
  const std::string three = "replicas.count=3";
  for (const std::string exchange : {"synchronous", "hogwild", "wsp"}) {
    lacks(hint({three, "replicas.exchange=" + exchange, "pipeline.weights=latest"}), "period");
  }
  CHECK_THAT(hint({three, "replicas.exchange=hogwild", "pipeline.weights=latest"}),
             says("or fewer replicas; "));
  CHECK_THAT(hint({three, "replicas.exchange=wsp"}), says("replicas.exchange.wsp.distance; "));
  lacks(hint({three, "replicas.exchange.wsp.distance=0"}), "distance");

  const std::string aware = hint({three, "replicas.rule=staleness_aware"});
  CHECK_THAT(aware, says("replicas.rule=dana_slim or gap_aware; "));
  CHECK_THAT(hint({three, "replicas.rule=gap_aware"}),
             says("replicas.rule=dana_slim or staleness_aware; "));
  // dana_slim pushes changes, which are not summed.
  lacks(hint({three, "replicas.exchange.parameter_server.n_push=2"}), "dana_slim");
  lacks(hint({three, "optimizer.rule=rmsprop"}), "dana_slim");
  lacks(hint({three, "replicas.rule=dana_zero", "replicas.scale=gap_aware"}), "replicas.rule");

  CHECK_THAT(hint({"pipeline.weights=latest"}), says("pipeline.weights=stash or "));
  lacks(hint({"pipeline.stages=1"}), "pipeline.weights");
  lacks(hint({"pipeline.schedule=gpipe"}), "pipeline.weights");
  lacks(hint({"replicas.exchange=hogwild", "pipeline.weights=latest"}), "pipeline.weights");
}

TEST_CASE("sandblaster that diverges is told to look at what it began with", "[apps]") {
  const Folder folder;
  std::ofstream(folder / "e.textproto")
      << "model { quadratic { curvature: 1e300 condition: 1e300 } } data { batch_size: 1048576 "
         "none {} } "
         "replicas { exchange { sandblaster { portions: 1 } } } stop { updates: 3 }";
  const Said said = run_program({"sim", folder / "e.textproto", "--quiet"});
  CHECK(said.code == 4);
  CHECK_THAT(said.err, says("hint: sandblaster takes no step "));
  CHECK(said.err.find("learning_rate") == said.err.npos);
}

TEST_CASE("a last update that diverged is seen, evaluated or not", "[apps]") {
  const Folder folder;
  for (const std::string evaluate : {"true", "false"}) {
    std::vector<std::string> arguments{"sim",
                                       "quadratic",
                                       "--quiet",
                                       "--out",
                                       folder / evaluate,
                                       "--set",
                                       "stop.updates=1",
                                       "--set",
                                       "optimizer.learning_rate=1e38",
                                       "--set",
                                       "model.quadratic.curvature=1e20",
                                       "--set",
                                       "record.evaluate=" + evaluate};
    const Said said = run_program(arguments);
    INFO(evaluate);
    CHECK(said.code == 4);
    CHECK_THAT(said.err,
               says(evaluate == "true" ? "training diverged: the loss on the test data is "
                                       : "training diverged: the final weights are not finite"));
    const Json summary = parse(contents(folder / evaluate + "/summary.json"));
    CHECK(text(summary, "outcome") == "diverged");
    CHECK(text(summary, "weights_sha256").empty());
    CHECK_FALSE(fs::exists(folder / evaluate + "/weights.safetensors"));
    arguments[4] = folder / "allowed" + evaluate;
    arguments.insert(arguments.end(), {"--set", "stop.allow_divergence=true"});
    CHECK(run_program(arguments).code == 0);
    CHECK_FALSE(fs::exists(folder / "allowed" + evaluate + "/weights.safetensors"));
  }
}

TEST_CASE("a disk that is full ends the run with code 5 and the file's name", "[apps]") {
  const Folder folder;
  // Files may grow to 16 blocks of 512 bytes. The event file passes that first, which begins with the experiment; without it
  // order.log, or metrics.jsonl where there is no order.
  for (const auto& [name, more] : std::map<std::string, std::string>{
           {"tensorboard/events.out.tfevents.0000000001", ""},
           {"order.log", " --set record.tensorboard=false"},
           {"metrics.jsonl",
            " --set record.tensorboard=false --set record.order=false --set "
            "record.versions=true"}}) {
    const std::string run = folder / std::to_string(more.size());
    const std::string file = run + '/' + name;
    const Said said = Program({"-c",
                               "ulimit -f 16; exec '" + program_path() +
                                   "' sim teacher-mlp --quiet --set stop.updates=1000000 --set "
                                   "record.evaluate=false --out " +
                                   run + more},
                              "",
                              "/bin/sh")
                          .wait();
    CHECK(said.code == 5);
    CHECK_THAT(said.err, says("troupe: " + file + " could not be written: File too large"));
    const Json summary = parse(contents(run + "/summary.json"));  // small enough to be kept
    CHECK(summary.fields().contains("updates"));
    CHECK(text(summary, "outcome") == "lost");
  }
}

TEST_CASE("an interrupt finishes what was admitted, a second one ends at once", "[apps]") {
  for (const std::string verb : {"run", "sim"}) {
    for (const int interrupts : {1, 2}) {
      INFO(verb << " " << interrupts);
      const Folder folder;
      Program program({verb,
                       "teacher-mlp",
                       "--out",
                       folder / "run",
                       "--set",
                       "stop.updates=100000000",
                       "--set",
                       "record.order=false"});
      for (int i = 0; i < 2000 && program.err().find("step ") == std::string::npos; ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      }
      program.signal(SIGINT);
      if (interrupts == 2) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        program.signal(SIGINT);
      }
      const Said said = program.wait();
      CHECK(said.code == 130);
      CHECK_THAT(said.err, says("interrupted"));
      CHECK_THAT(said.out, says("ended"));
      const Json summary = parse(contents(folder / "run/summary.json"));
      CHECK(number(summary, "updates") > 0);
      CHECK(text(summary, "outcome") == "interrupted");
      // The second may come after what was admitted has ended.
      const bool has_weights = !text(summary, "weights_sha256").empty();
      CHECK(has_weights == fs::exists(folder / "run/weights.safetensors"));
      if (interrupts == 1) {
        CHECK(has_weights);
        CHECK(number(summary, "test_accuracy") > 0);  // evaluated at the end
      }
    }
  }
}

TEST_CASE("a terminal that goes away interrupts a run, but for nohup's", "[apps]") {
  const Folder folder;
  const std::string rest =
      "' run teacher-mlp --out " + folder / "run" + " --set record.order=false --set stop.updates=";
  for (const bool ignored : {false, true}) {
    fs::remove_all(folder / "run");
    Program program({"-c",
                     (ignored ? "trap '' HUP; exec '" : "exec '") + program_path() + rest +
                         (ignored ? "3000" : "100000000")},
                    "",
                    "/bin/sh");
    for (int i = 0; i < 2000 && program.err().find("step ") == std::string::npos; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    program.signal(SIGHUP);
    const Said said = program.wait();
    CHECK(said.code == (ignored ? 0 : 130));
    CHECK(text(parse(contents(folder / "run/summary.json")), "weights_sha256").size() == 64);
  }
}

TEST_CASE("seconds end a run whose updates are counted too", "[apps]") {
  const Folder folder;
  const Said said = run_program(tiny("sim",
                                     folder / "run",
                                     {"--set",
                                      "stop.updates=1000000",
                                      "--set",
                                      "stop.epochs=0",
                                      "--set",
                                      "stop.seconds=0.001",
                                      "--set",
                                      "record.evaluate=false"}));
  CHECK(said.code == 0);
  const Json summary = parse(contents(folder / "run/summary.json"));
  CHECK(number(summary, "updates") > 0);
  CHECK(number(summary, "updates") < 100000);
  CHECK(summary.fields().at("test_loss").has_null_value());
}

TEST_CASE("a target ends the run at the evaluation that met it", "[apps]") {
  const Folder folder;
  const Said said = run_program(tiny(
      "sim", folder / "run", {"--set", "stop.target_accuracy=0.05", "--set", "stop.epochs=100"}));
  CHECK(said.code == 0);
  const Json summary = parse(contents(folder / "run/summary.json"));
  CHECK(number(summary, "updates") == 10);  // the first epoch's
  CHECK(number(summary, "test_accuracy") >= 0.05);
}

}  // namespace files_test
