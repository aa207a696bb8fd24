// Copies of servers in processes of their own, which are killed and frozen: the run goes on by itself and ends with the
// weights of a run that was not disturbed, as long as one copy of each server is left.
#include "tests/support/catch.hpp"
#include "tests/support/program.hpp"
#include "tests/support/sanitized.hpp"

#include <chrono>
#include <csignal>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace copies_test {

using namespace troupe::test;
using namespace std::chrono_literals;

namespace {

/// All replicas in the lead, so that other processes have copies of servers alone.
Words training(const Words& settings) {
  Words all{"run", "teacher-mlp", "--quiet"};
  Words set{"data.teacher.train=1000",
            "data.teacher.test=100",
            "pipeline.stages=1",
            "replicas.count=3",
            "stop.epochs=0",
            kSanitized ? "stop.updates=200" : "stop.updates=600",
            "clock.modelled=false",
            "record.every=1",
            "record.checkpoint.every=50",
            "placement.on=[\"stage-*=0\"]"};
  set.insert(set.end(), settings.begin(), settings.end());
  for (const std::string& setting : set) {
    all.insert(all.end(), {"--set", setting});
  }
  return all;
}

const std::string kSynchronous = "replicas.exchange=synchronous";
const std::string kAveraging = "replicas.exchange=averaging";

/// A run with `copies` copies, each in a process of its own, that has begun to train.
class Run {
 public:
  Run(int copies, const Words& settings)
      : folder(files_ / "run"),
        program_(with(training(with({"replicas.copies=" + std::to_string(copies)}, settings)),
                      {"--out", folder, "--processes", std::to_string(copies + 1)})) {
    wait_until([&] {
      return contents(folder + "/metrics.jsonl").find("\"kind\":\"train\"") != std::string::npos;
    });
    nodes_ = nodes_of(program_.pid());
  }

  /// Copy `copy` of each server, with its process.
  void disturb(std::size_t copy, int signal = SIGKILL) const { ::kill(nodes_.at(copy), signal); }

  std::size_t processes() const { return nodes_.size() + 1; }

  Said wait() { return program_.wait(); }

  std::string summary() const { return contents(folder + "/summary.json"); }

 private:
  Folder files_;

 public:
  const std::string folder;

 private:
  Program program_;
  std::vector<pid_t> nodes_;
};

std::string digest_undisturbed(const Words& settings) {
  const Said said = run_program(training(settings));
  INFO(said.err);
  REQUIRE(said.code == 0);
  return digest_of(said);
}

}  // namespace

TEST_CASE("a process with copies of servers is killed and no weight changes", "[apps]") {
  std::mt19937 random(7);
  for (const std::string& scheme : {kSynchronous, kAveraging}) {
    const std::string undisturbed = digest_undisturbed({scheme});
    for (const std::size_t copy : {0, 1, 2}) {
      INFO(scheme << ", copy " << copy);
      Run run(3, {scheme});
      REQUIRE(run.processes() == 4);
      std::this_thread::sleep_for(std::uniform_int_distribution(0, 200)(random) * 1ms);
      run.disturb(copy);
      const Said said = run.wait();
      INFO(said.err);
      CHECK(said.code == 0);
      CHECK(digest_of(said) == undisturbed);
      CHECK_THAT(run.summary(),
                 says("copy " + std::to_string(copy) + " of server-0.0 (server-0.0") &&
                     says("was killed by signal 9 (Killed); 2 are left"));
    }
  }
}

TEST_CASE("all processes with copies but one are killed, and what is left suffices", "[apps]") {
  const std::string undisturbed = digest_undisturbed({kSynchronous});
  Run run(3, {kSynchronous});
  run.disturb(0);
  std::this_thread::sleep_for(50ms);
  run.disturb(1);
  const Said said = run.wait();
  INFO(said.err);
  REQUIRE(said.code == 0);
  CHECK(digest_of(said) == undisturbed);
  CHECK_THAT(run.summary(), says("; 1 is left)"));
}

TEST_CASE("a run with copies in several processes is replayed in one", "[apps]") {
  Run run(2, {"replicas.rule=asgd", "record.order=true"});
  const Said said = run.wait();
  REQUIRE(said.code == 0);
  const Said replayed = run_program({"replay", run.folder});
  INFO(replayed.err << replayed.out);
  CHECK(replayed.code == 0);
}

TEST_CASE("a head that is frozen for too long is given up", "[apps]") {
  const std::string undisturbed = digest_undisturbed({kSynchronous});
  Run run(2, {kSynchronous});
  run.disturb(0, SIGSTOP);
  const Said said = run.wait();
  INFO(said.err);
  CHECK(said.code == 0);
  CHECK(digest_of(said) == undisturbed);
  CHECK_THAT(run.summary(), says("was silent for too long; 1 is left"));
}

TEST_CASE("asynchronous replicas lose no push with a copy", "[apps]") {
  Run run(2, {"replicas.rule=asgd"});
  run.disturb(0);
  const Said said = run.wait();
  INFO(said.err);
  CHECK(said.code == 0);
  CHECK_THAT(said.out, says(kSanitized ? "200 updates" : "600 updates"));
}

TEST_CASE("a copy of a stage that has become the head is answered as the first one was", "[apps]") {
  const Words stages{"pipeline.stages=2",
                     "pipeline.schedule=gpipe",
                     "optimizer.clip_norm=0.5",
                     "replicas.count=1"};
  const std::string undisturbed = digest_undisturbed(stages);
  Run run(2,
          with(stages,
               {"placement.copies=[\"stage-1=2\"]",
                "placement.on=[\"stage-0=0\"]",
                "replicas.copies=1"}));
  run.disturb(0);
  const Said said = run.wait();
  INFO(said.err);
  CHECK(said.code == 0);
  CHECK(digest_of(said) == undisturbed);
  CHECK_THAT(run.summary(), says("copy 0 of stage-1") && says("1 is left"));
}

TEST_CASE("the last copy ends the run, and a checkpoint goes on without copies elsewhere",
          "[apps]") {
  const std::string undisturbed = digest_undisturbed({kSynchronous});
  Run run(2, {kSynchronous, kSanitized ? "stop.updates=400" : "stop.updates=1200"});
  wait_until([&] { return has_checkpoint(run.folder); });
  run.disturb(0);
  run.disturb(1);
  const Said said = run.wait();
  CHECK(said.code == 5);
  CHECK_THAT(said.err, says("server-0.0-copy-1 is lost") || says("server-0.0 is lost"));
  const Said resumed = run_program({"run", "--resume", run.folder, "--quiet"});
  INFO(resumed.err);
  CHECK(resumed.code == 0);
  const Said whole =
      run_program(training({kSynchronous, kSanitized ? "stop.updates=400" : "stop.updates=1200"}));
  CHECK(digest_of(resumed) == digest_of(whole));
  CHECK(digest_of(whole) != undisturbed);
}

TEST_CASE("copies that could be lost together are refused, in a sentence", "[apps]") {
  const auto refused = [](const Words& settings, const std::string& processes) {
    const Said said = run_program(with(training(settings), {"--processes", processes}));
    CHECK(said.code == 2);
    return said.err;
  };
  CHECK_THAT(refused({kSynchronous, "replicas.copies=2"}, "2"),
             says("placement.copies: 2 copies of server-0.0 need 2 processes besides the first"));
  CHECK_THAT(refused({kSynchronous, "replicas.copies=2", "placement.on=[\"server-*=1\"]"}, "3"),
             says("server-0.0 and server-0.0-copy-1 would both be lost with process 1"));
  CHECK_THAT(refused({kSynchronous, "replicas.copies=2", "placement.on=[\"server-0.0=0\"]"}, "3"),
             says("process 0, with which the run is lost anyhow, needs none"));
  const Said planned = run_program({"plan",
                                    "teacher-mlp",
                                    "--set",
                                    "pipeline.stages=1",
                                    "--set",
                                    "replicas.count=3",
                                    "--set",
                                    "replicas.copies=2",
                                    "--set",
                                    "placement.on=[\"stage-*=0\",\"server-0.0-copy-1=1\"]",
                                    "--processes",
                                    "3"});
  INFO(planned.err);
  CHECK_THAT(planned.out, says("copies     2 of each server"));
  CHECK_THAT(planned.out,
             says("process 0 plays replicas 0-2, 1 copy 1 of the servers, 2 the servers"));
}

}  // namespace copies_test
