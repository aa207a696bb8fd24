// Runs in several processes as users start them: the weights of one process, and what becomes of a run when one of
// its processes is killed at any moment. Which experiments keep their weights: tests/tools/processes_matrix.py. A few
// kills by default; for N of each kind set TROUPE_INTERRUPTIONS=N.
#include "tests/support/catch.hpp"
#include "tests/support/program.hpp"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace processes_test {

using namespace troupe::test;
using namespace std::chrono_literals;
namespace fs = std::filesystem;

namespace {

int kills() {
  const char* wanted = std::getenv("TROUPE_INTERRUPTIONS");
  return wanted ? std::atoi(wanted) : 2;
}

/// `settings`: KEY=VALUE. Small, so that it takes some tenths of a second.
Words training(const Words& settings) {
  Words all{"run", "teacher-mlp", "--quiet"};
  Words set{"data.teacher.train=1000",
            "data.teacher.test=100",
            "stop.epochs=0",
            "record.every=1",
            "clock.modelled=false"};
  set.insert(set.end(), settings.begin(), settings.end());
  for (const std::string& setting : set) {
    all.insert(all.end(), {"--set", setting});
  }
  return all;
}

const Words kPipeline{
    "pipeline.stages=3", "pipeline.schedule=async_one_f_one_b", "pipeline.weights=stash"};
const Words kServers{"pipeline.stages=1", "replicas.count=3"};
const Words kSynchronous{"pipeline.stages=1", "replicas.count=3", "replicas.exchange=synchronous"};
const Words kAveraging{"pipeline.stages=1", "replicas.count=3", "replicas.exchange=averaging"};

const std::string kShort = "stop.updates=120";
const std::string kEndless = "stop.updates=1000000000";

bool lives(pid_t pid) {
  const std::string stat = contents("/proc/" + std::to_string(pid) + "/stat");
  const std::size_t name_ends = stat.rfind(')');
  return name_ends != std::string::npos && stat.at(name_ends + 2) != 'Z' &&
         stat.at(name_ends + 2) != 'X';
}

/// A run in three processes that goes on until it is stopped.
class Run {
 public:
  Run(const Words& settings, const std::string& out, const Words& more = {})
      : program_(with(
            with(training(with(settings, {kEndless})), {"--out", out, "--processes", "3"}), more)),
        metrics_(out + "/metrics.jsonl") {}

  /// Lines of a kind so far.
  std::size_t told(const std::string& kind) const {
    const std::string line = "\"kind\":\"" + kind + '"';
    const std::string all = contents(metrics_);
    std::size_t count = 0;
    for (std::size_t at = all.find(line); at != std::string::npos; at = all.find(line, at + 1)) {
      ++count;
    }
    return count;
  }

  void wait_until_it_trains() {
    wait_until([&] { return told("train") > 0; });
    nodes = nodes_of(program_.pid());
    REQUIRE(nodes.size() == 2);
  }

  Program& program() { return program_; }

  /// How it has ended; no process of it is left then.
  Said wait() {
    const Said said = program_.wait();
    for (const pid_t node : nodes) {
      wait_until([&] { return !lives(node); });
    }
    return said;
  }

  std::vector<pid_t> nodes;

 private:
  Program program_;
  fs::path metrics_;
};

}  // namespace

TEST_CASE("a run in several processes ends with the weights of one", "[apps]") {
  for (const Words& settings : {kPipeline, kSynchronous, kAveraging}) {
    const Words run = training(with(settings, {kShort}));
    const Said one = run_program(run);
    REQUIRE(one.code == 0);
    for (const std::string processes : {"2", "3"}) {
      const Said several = run_program(with(run, {"--processes", processes}));
      CHECK(several.code == 0);
      CHECK(digest_of(several) == digest_of(one));
    }
  }
}

TEST_CASE("each replica's own figures are those of one process", "[apps]") {
  const Words run = training({"pipeline.stages=1",
                              "replicas.count=3",
                              "replicas.exchange=gossip",
                              "record.each_replica=always",
                              "record.evaluate_every=40",
                              kShort});
  // "step":40,"epoch":...,"replica":1,"loss":...,"accuracy":..., of each, which come in any order.
  const auto figures = [](const fs::path& folder) {
    std::set<std::string> all;
    std::istringstream lines(contents(folder / "metrics.jsonl"));
    for (std::string line; std::getline(lines, line);) {
      if (line.find(R"("kind":"replica")") != std::string::npos) {
        all.insert(line.substr(0, line.find(R"(,"seconds")")));
      }
    }
    return all;
  };
  const Folder scratch;
  const Said one = run_program(with(run, {"--out", scratch / "one"}));
  REQUIRE(one.code == 0);
  CHECK(one.out.find("\nreplicas") != std::string::npos);
  const std::set<std::string> want = figures(scratch / "one");
  CHECK(want.size() == 9);
  for (const std::string processes : {"2", "3"}) {
    const std::string out = scratch / processes;
    const Said several = run_program(with(run, {"--out", out, "--processes", processes}));
    INFO(several.err);
    REQUIRE(several.code == 0);
    CHECK(digest_of(several) == digest_of(one));
    CHECK(figures(out) == want);
  }
}

TEST_CASE("wherever stages and servers play, a run ends with the weights of one process",
          "[apps]") {
  for (const auto& [settings, on] :
       {std::pair{kPipeline, "[\"stage-1=2\",\"*-2=1\",\"stage-*=0\"]"},
        {kPipeline, "[\"stage-0=1\",\"stage-2=2\"]"},
        {kSynchronous, "[\"server-*=2\",\"stage-0.*=1\",\"stage-[12].0=0\"]"}}) {
    const Words run = training(with(settings, {kShort}));
    const Said alone = run_program(run);
    REQUIRE(alone.code == 0);
    const Said placed =
        run_program(with(run, {"--processes", "3", "--set", std::string("placement.on=") + on}));
    INFO(on << placed.err);
    CHECK(placed.code == 0);
    CHECK(digest_of(placed) == digest_of(alone));
  }
}

TEST_CASE("a run whose servers play in a process of their own ends with that process", "[apps]") {
  const Folder folder;
  Run run(kServers, folder / "run", {"--set", "placement.on=[\"server-*=2\",\"stage-*=1\"]"});
  run.wait_until_it_trains();
  ::kill(run.nodes.back(), SIGKILL);
  const Said said = run.wait();
  CHECK(said.code == 5);
  CHECK_THAT(said.err, says("server"));
}

TEST_CASE("a pipeline ends when a process of it is killed, at any moment", "[apps]") {
  std::mt19937 random(1);
  std::uniform_int_distribution<int> delay(0, 200'000);  // us
  for (int i = 0; i < kills(); ++i) {
    const Folder folder;
    Run run(kPipeline, folder / "run");
    run.wait_until_it_trains();
    std::this_thread::sleep_for(std::chrono::microseconds(delay(random)));
    ::kill(run.nodes[static_cast<std::size_t>(i % 2)], SIGKILL);
    const Said said = run.wait();
    CHECK(said.code == 5);
    CHECK_THAT(said.err, says("process " + std::to_string(1 + i % 2) + " was killed by signal 9"));
  }
}

TEST_CASE("a process that is killed while the run begins is told of", "[apps]") {
  std::mt19937 random(2);
  std::uniform_int_distribution<int> delay(0, 30'000);  // us
  for (int i = 0; i < kills(); ++i) {
    const Folder folder;
    Run run(kPipeline, folder / "run");
    wait_until([&] { return !nodes_of(run.program().pid()).empty(); });
    run.nodes = nodes_of(run.program().pid());
    std::this_thread::sleep_for(std::chrono::microseconds(delay(random)));
    ::kill(run.nodes[0], SIGKILL);
    const Said said = run.wait();
    CHECK(said.code == 5);
    CHECK_THAT(said.err, says("process 1 was killed by signal 9"));
  }
}

TEST_CASE("an interrupt ends a run in order while it begins", "[apps]") {
  std::mt19937 random(4);
  std::uniform_int_distribution<int> delay(0, 30'000);  // us
  for (int i = 0; i < kills(); ++i) {
    const Folder folder;
    Run run(kPipeline, folder / "run");
    wait_until([&] { return !nodes_of(run.program().pid()).empty(); });
    run.nodes = nodes_of(run.program().pid());
    std::this_thread::sleep_for(std::chrono::microseconds(delay(random)));
    run.program().signal(SIGINT);
    const Said said = run.wait();
    CHECK(said.code == 130);
    CHECK_THAT(said.err, says("interrupted"));
  }
}

namespace {

/// What the record of a run's deliveries tells of gradients.
struct Pushes {
  std::map<int, int> last;  // by replica: the last mini-batch
  // By replica: how often a server got a message of one mini-batch again
  std::map<int, int> repeated;
  bool in_order = true;
};

Pushes pushes_of(const fs::path& run) {
  Pushes all;
  std::map<std::pair<std::string, int>, int> last;  // by server and replica
  for (const auto& entry : fs::directory_iterator(run)) {
    std::ifstream file(entry.path());
    if (!entry.path().filename().string().starts_with("order-")) {
      continue;
    }
    for (std::string line; std::getline(file, line);) {
      std::istringstream words(line);
      std::string now;
      std::string to;
      std::string what;
      int replica = 0;
      int chunk = 0;
      int batch = 0;
      words >> now >> to >> what >> replica >> chunk >> batch;
      if (what != "Upload") {
        continue;
      }
      const auto [before, first] = last.try_emplace({to, replica}, -1);
      all.in_order = all.in_order && batch >= before->second;
      all.repeated[replica] += !first && batch == before->second ? 1 : 0;
      before->second = batch;
      all.last[replica] = std::max(all.last[replica], batch);
    }
  }
  return all;
}

}  // namespace

TEST_CASE("a process that is killed comes back, and what it makes counts again", "[apps]") {
  const Folder folder;
  const auto exchange = GENERATE(as<std::string>{}, "parameter_server", "synchronous", "wsp");
  const Words settings = with(kServers, {"replicas.exchange=" + exchange});
  INFO(settings.back());
  const std::string out = folder / "run";
  Run run(with(settings, {"record.checkpoint.every=50"}), out);
  run.wait_until_it_trains();
  constexpr std::size_t kTimes = 3;
  for (std::size_t time = 1; time <= kTimes; ++time) {
    run.nodes = nodes_of(run.program().pid());
    REQUIRE(run.nodes.size() == 2);
    ::kill(run.nodes[time % 2], SIGKILL);
    wait_until([&] { return run.told("returned") >= time; });
    const std::size_t trained = run.told("train");
    wait_until([&] { return run.told("train") > trained + 20; });
  }
  run.nodes = nodes_of(run.program().pid());
  run.program().signal(SIGINT);
  const Said said = run.wait();
  INFO(said.out << said.err);
  CHECK(said.code == 130);
  CHECK_THAT(said.out, says("was killed by signal 9") && says("returned"));
  CHECK(run.told("lost") >= kTimes);  // one that was silent for long on a busy machine was, too
  const Pushes pushes = pushes_of(out);
  CHECK(pushes.in_order);
  for (const auto& [replica, last] : pushes.last) {
    CHECK(last > 20);
  }
  CHECK(pushes.repeated.size() == 3);
  const Said again = run_program({"replay", out});
  INFO(again.out << again.err);
  CHECK(again.code == 0);
}

TEST_CASE("with --back 0 a process that was lost stays so", "[apps]") {
  const Folder folder;
  Run run(kServers, folder / "run", {"--back", "0"});
  run.wait_until_it_trains();
  ::kill(run.nodes[1], SIGKILL);
  wait_until([&] { return run.told("lost") >= 1; });
  const std::size_t trained = run.told("train");
  wait_until([&] { return run.told("train") > trained + 200; });
  CHECK(nodes_of(run.program().pid()).size() == 1);
  run.program().signal(SIGINT);
  const Said said = run.wait();
  CHECK(said.code == 130);
  CHECK_THAT(said.out, says("process 2 was killed by signal 9") && says("the others went on"));
  CHECK(run.told("returned") == 0);
}

TEST_CASE("no process survives its lead, at whatever moment that is killed", "[apps]") {
  std::mt19937 random(3);
  std::uniform_int_distribution<int> delay(0, 200'000);  // us
  for (int i = 0; i < kills(); ++i) {
    const Folder folder;
    Run run(kServers, folder / "run");
    wait_until([&] { return nodes_of(run.program().pid()).size() == 2; });
    run.nodes = nodes_of(run.program().pid());
    std::this_thread::sleep_for(std::chrono::microseconds(delay(random)));
    run.program().signal(SIGKILL);
    CHECK(run.wait().code == 128 + SIGKILL);
  }
}

TEST_CASE("whatever ends a run in several processes, any number goes on with it", "[apps]") {
  const Words settings = with(kPipeline, {"stop.updates=1500", "record.checkpoint.every=20"});
  const Said one = run_program(training(settings));
  REQUIRE(one.code == 0);
  const Folder folder;
  const auto [end, processes] = GENERATE(table<std::string, std::string>({
      {"the lead is killed", "3"},
      {"a node is killed", "2"},
      {"an interrupt", "1"},
  }));
  INFO(end);
  const std::string run = folder / "run";
  Program program(with(training(settings), {"--out", run, "--processes", "3"}));
  wait_until([&] { return has_checkpoint(run); });
  if (end == "the lead is killed") {
    program.signal(SIGKILL);
  } else if (end == "a node is killed") {
    ::kill(nodes_of(program.pid()).at(0), SIGKILL);
  } else {
    program.signal(SIGINT);
  }
  REQUIRE(program.wait().code != 0);
  const Said resumed = run_program({"run", "--resume", run, "--processes", processes});
  CHECK(resumed.code == 0);
  CHECK(digest_of(resumed) == digest_of(one));
  CHECK(run_program({"replay", run}).code == 0);
}

TEST_CASE("a run that has lost a process goes on without its replicas, and is replayed", "[apps]") {
  const Folder folder;
  const std::string path = folder / "run";
  Run run(with(kServers, {"record.checkpoint.every=20", "record.checkpoint.keep=1"}),
          path,
          {"--back", "0"});
  run.wait_until_it_trains();
  ::kill(run.nodes[1], SIGKILL);
  const auto told = [&] {
    return contents(path + "/metrics.jsonl").find("\"kind\":\"lost\"");
  };
  wait_until([&] { return told() != std::string::npos; });
  const auto steps = [&] {
    std::set<fs::path> all;
    std::error_code none_yet;
    for (const auto& entry : fs::directory_iterator(path + "/checkpoints", none_yet)) {
      all.insert(entry.path());
    }
    return all;
  };
  const std::set<fs::path> before = steps();
  wait_until([&] {
    const std::set<fs::path> now = steps();
    return !now.empty() && std::none_of(now.begin(), now.end(), [&](const fs::path& step) {
      return before.contains(step);
    });
  });
  run.program().signal(SIGINT);
  REQUIRE(run.wait().code == 130);
  CHECK(run_program({"replay", path}).code == 0);
  Program again({"run", "--resume", path, "--processes", "2"});
  const std::size_t trained = contents(path + "/metrics.jsonl").size();
  wait_until([&] {
    return contents(path + "/metrics.jsonl").find("\"kind\":\"train\"", trained) !=
           std::string::npos;
  });
  again.signal(SIGINT);
  const Said said = again.wait();
  CHECK(said.code == 130);
  CHECK_THAT(said.out, says("the others went on"));
}

TEST_CASE("an interrupt that all processes get ends the run in order", "[apps]") {
  const Folder folder;
  Run run(kServers, folder / "run");
  run.wait_until_it_trains();
  for (const pid_t node : run.nodes) {
    ::kill(node, SIGINT);
    ::kill(node, SIGTERM);
    ::kill(node, SIGHUP);
  }
  run.program().signal(SIGINT);
  const Said said = run.wait();
  CHECK(said.code == 130);
  CHECK(digest_of(said).size() == 64);
}

TEST_CASE("what cannot be played in several processes is refused, in a sentence", "[apps]") {
  const Words run = training(with(kPipeline, {kShort}));
  const std::vector<std::pair<Words, std::string>> cases{
      {{"--processes", "4"}, "name at most 3"},
      {{"--processes", "0"}, "--processes"},
      {{"--back", "2"}, "--back goes with --processes N"},
      {{"--program", "FILE"}, "--program goes with --processes N"},
      {{"--transport", "ucx"}, "--transport goes with --processes N"},
      {{"--processes", "2", "--transport", "ib"}, "--transport"},
      {{"--processes", "3", "--back", "2"},
       "--back: a replica cannot come back where there is one"},
      {{"--set", "replicas.count=2", "--processes", "6", "--back", "2"},
       "--back: a replica cannot come back if several processes run parts of it"},
      {{"--processes", "2", "--set", "placement.on=[\"stage-*=2\"]"}, "names process 2 of 2"},
      {{"--processes", "2", "--set", "placement.on=[\"stage-7=1\"]"}, "fits no stage or server"},
      {{"--processes", "2", "--set", "placement.on=[\"shard-2=0\"]"},
       "fits shard-2, which plays in process 1"},
      {{"--processes", "2", "--set", "placement.on=[\"*=0\"]"}, "process 1 of 2 has no stage"},
      {{"--processes", "2", "--set", "placement.on=[\"stage-0\"]"}, "is not NAMES=PROCESS"},
  };
  for (const auto& [more, why] : cases) {
    const Said said = run_program(with(run, more));
    CHECK(said.code == 2);
    CHECK_THAT(said.err, says(why));
  }
  const Folder folder;
  std::ofstream(folder / "phases.textproto") << "phases { name: \"first\" }";
  const Said phases = run_program({"run", folder / "phases.textproto", "--processes", "2"});
  CHECK(phases.code == 2);
  CHECK_THAT(phases.err, says("an experiment with phases runs in one process"));
  const Said by_hand = run_program({"node"});
  CHECK(by_hand.code == 2);
  CHECK_THAT(by_hand.err, says("name --listen HOST:PORT"));
}

}  // namespace processes_test
