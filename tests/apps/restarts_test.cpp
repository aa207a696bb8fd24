// Runs in several processes that lose one without which they cannot go on, and begin again by themselves: with the
// weights of a run that was not disturbed, whoever is killed, and whenever.
#include "tests/support/catch.hpp"
#include "tests/support/program.hpp"
#include "tests/support/sanitized.hpp"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

namespace restarts_test {

using namespace troupe::test;
using namespace std::chrono_literals;
namespace fs = std::filesystem;

namespace {

/// Long enough to be disturbed, and short: some seconds.
Words training(const Words& settings) {
  Words all{"run", "teacher-mlp", "--quiet"};
  Words set{"data.teacher.train=1000",
            "data.teacher.test=100",
            "stop.epochs=0",
            kSanitized ? "stop.updates=400" : "stop.updates=1000",
            "clock.modelled=false"};
  set.insert(set.end(), settings.begin(), settings.end());
  for (const std::string& setting : set) {
    all.insert(all.end(), {"--set", setting});
  }
  return all;
}

const std::string kOften = "record.checkpoint.every=20";
const Words kPipeline{
    "pipeline.stages=4", "pipeline.schedule=async_one_f_one_b", "pipeline.weights=stash", kOften};
const Words kSynchronous{"pipeline.stages=1",
                         "replicas.count=3",
                         "replicas.exchange=synchronous",
                         kSanitized ? "stop.updates=120" : "stop.updates=300",
                         kOften};

std::string digest_undisturbed(const Words& settings) {
  const Said said = run_program(training(settings));
  REQUIRE(said.code == 0);
  return digest_of(said);
}

std::size_t restarts_in(const std::string& run) {
  const std::string all = contents(run + "/metrics.jsonl");
  std::size_t count = 0;
  for (std::size_t at = 0; (at = all.find("\"kind\":\"restart\"", at)) != std::string::npos; ++at) {
    ++count;
  }
  return count;
}

void wait_for_checkpoint(const std::string& run) {
  wait_until([&] { return has_checkpoint(run); });
}

/// Steps of the checkpoints that are there, the newest last.
std::vector<int> steps_of(const std::string& run) {
  std::vector<int> steps;
  std::error_code none_yet;
  for (const auto& entry : fs::directory_iterator(run + "/checkpoints", none_yet)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("step-") && name.find_first_not_of("0123456789", 5) == name.npos) {
      steps.push_back(std::stoi(name.substr(5)));
    }
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

/// A run in several processes, and its folder.
class Run {
 public:
  Run(const Words& settings, const std::string& processes, const Words& more)
      : folder(files_ / "run"),
        program(with(with(training(settings), {"--out", folder, "--processes", processes}), more)),
        count_(static_cast<std::size_t>(std::stoi(processes)) - 1) {}

  /// Process `number`, from 1.
  void kill(std::size_t number, int signal = SIGKILL) const {
    wait_until([&] { return nodes().size() == count_; });
    ::kill(nodes().at(number - 1), signal);
  }

  std::vector<pid_t> nodes() const { return nodes_of(program.pid()); }

 private:
  Folder files_;

 public:
  const std::string folder;
  Program program;

 private:
  std::size_t count_;
};

}  // namespace

TEST_CASE("a pipeline that loses any process of it goes on, and ends as if it had not", "[apps]") {
  static const std::string undisturbed = digest_undisturbed(kPipeline);
  const auto [processes, lost] =
      GENERATE(table<std::string, std::size_t>({{"2", 1}, {"4", 1}, {"4", 2}, {"4", 3}}));
  INFO(processes << " processes without " << lost);
  Run run(with(kPipeline, {"record.order=true"}), processes, {"--restarts", "1"});
  wait_for_checkpoint(run.folder);
  run.kill(lost);
  const Said said = run.program.wait();
  INFO(said.out << said.err);
  CHECK(said.code == 0);
  CHECK(digest_of(said) == undisturbed);
  CHECK_THAT(said.out,
             says("process " + std::to_string(lost) + " was killed by signal 9") &&
                 says("goes on from update"));
  CHECK(restarts_in(run.folder) == 1);
  CHECK_THAT(contents(run.folder + "/summary.json"), says("\"lost_updates\":"));
  CHECK(run_program({"replay", run.folder}).code == 0);
}

TEST_CASE("a run goes on that has lost its servers, or one of those that reduce", "[apps]") {
  const auto [more, lost] = GENERATE(table<std::string, std::size_t>({
      {"placement.on=[\"server-*=2\",\"stage-*=1\"]", 2},
      {"replicas.exchange.synchronous.reduction=ring", 1},
      {"replicas.exchange.synchronous.reduction=tree", 2},
  }));
  INFO(more);
  const Words settings = with(kSynchronous, {more});
  Run run(settings, "3", {"--restarts", "1"});
  wait_for_checkpoint(run.folder);
  run.kill(lost);
  const Said said = run.program.wait();
  INFO(said.out << said.err);
  CHECK(said.code == 0);
  CHECK(digest_of(said) == digest_undisturbed(settings));
  CHECK(restarts_in(run.folder) == 1);
}

TEST_CASE("a run that has no checkpoint begins from its beginning", "[apps]") {
  const Words settings = with(kPipeline, {"record.checkpoint.every=0", "record.every=1"});
  Run run(settings, "2", {"--restarts", "1"});
  wait_until([&] {
    return contents(run.folder + "/metrics.jsonl").find("\"kind\":\"train\"") != std::string::npos;
  });
  run.kill(1);
  const Said said = run.program.wait();
  INFO(said.out << said.err);
  CHECK(said.code == 0);
  CHECK(digest_of(said) == digest_undisturbed(settings));
  CHECK_THAT(said.out, says("goes on from its beginning"));
  const std::string metrics = contents(run.folder + "/metrics.jsonl");
  CHECK(metrics.find("\"kind\":\"header\"") == metrics.rfind("\"kind\":\"header\""));
}

TEST_CASE("a process that is killed or frozen while the run begins again is no end", "[apps]") {
  const auto [signal, delay] =
      GENERATE(table<int, int>({{SIGKILL, 0}, {SIGKILL, 30}, {SIGSTOP, 50}}));
  Run run(kPipeline, "4", {"--restarts", "3", "--restart-wait", "1"});
  wait_for_checkpoint(run.folder);
  const std::vector<pid_t> before = run.nodes();
  REQUIRE(before.size() == 3);
  run.kill(2);
  const auto anew = [&] {
    std::vector<pid_t> now = run.nodes();
    std::erase_if(now, [&](pid_t pid) {
      return std::find(before.begin(), before.end(), pid) != before.end();
    });
    return now;
  };
  wait_until([&] { return !anew().empty(); });
  std::this_thread::sleep_for(std::chrono::milliseconds(delay));
  ::kill(anew().at(0), signal);
  const Said said = run.program.wait();
  INFO(said.out << said.err);
  CHECK(said.code == 0);
  CHECK(digest_of(said) == digest_undisturbed(kPipeline));
}

TEST_CASE("a run that loses a process while a checkpoint is written goes on", "[apps]") {
  // One after the other: some checkpoint is always being made.
  const std::string length = kSanitized ? "stop.updates=200" : "stop.updates=1000";
  const Words settings = with(kPipeline, {"record.checkpoint.every=1", length});
  Run run(settings, "2", {"--restarts", "2"});
  for (int i = 0; i < 2; ++i) {
    wait_until([&] {
      const auto steps = steps_of(run.folder);
      return restarts_in(run.folder) == static_cast<std::size_t>(i) && !steps.empty() &&
             steps.back() > 10 * (i + 1);
    });
    run.kill(1);
  }
  const Said said = run.program.wait();
  INFO(said.out << said.err);
  CHECK(said.code == 0);
  CHECK(digest_of(said) == digest_undisturbed(settings));
  CHECK(restarts_in(run.folder) == 2);
}

TEST_CASE("a run begins again from the checkpoint before one that is not whole", "[apps]") {
  Run run(kPipeline, "2", {"--restarts", "1"});
  wait_until([&] { return steps_of(run.folder).size() == 2; });
  run.kill(1, SIGSTOP);  // no checkpoint is made any more, and the lead has not noticed
  std::vector<int> steps;
  do {
    steps = steps_of(run.folder);
    std::this_thread::sleep_for(200ms);  // one may be on its way to the disk
  } while (steps != steps_of(run.folder) || steps.size() != 2);
  std::ofstream(run.folder + "/checkpoints/step-" + std::to_string(steps[1]) + "/state.pb",
                std::ios::app)
      << "more";
  run.kill(1);
  const Said said = run.program.wait();
  INFO(said.out << said.err);
  CHECK(said.code == 0);
  CHECK(digest_of(said) == digest_undisturbed(kPipeline));
  CHECK_THAT(said.err, says("passed over") && says("is not whole"));
  CHECK_THAT(said.out, says("goes on from update " + std::to_string(steps[0])));
}

TEST_CASE("a run begins again as often as was asked for, and no more", "[apps]") {
  const std::string times = GENERATE("0", "1");
  Run run(with(kPipeline, {"stop.updates=1000000000"}), "2", {"--restarts", times});
  wait_for_checkpoint(run.folder);
  run.kill(1);
  if (times == "1") {
    wait_until([&] { return restarts_in(run.folder) == 1; });
    run.kill(1);
  }
  const Said said = run.program.wait();
  INFO(said.out << said.err);
  CHECK(said.code == 5);
  const std::string advice =
      times == "1" ? "It was begun again 1 time (--restarts)"
                   : "`troupe run --resume " + run.folder + "` goes on with it. With --restarts N";
  CHECK_THAT(said.err, says(advice));
  CHECK_THAT(contents(run.folder + "/summary.json"), says("\"outcome\": \"lost\""));
}

TEST_CASE("an interrupt after a restart ends the run in order", "[apps]") {
  Run run(with(kPipeline, {"stop.updates=1000000000"}), "2", {"--restarts", "1"});
  wait_for_checkpoint(run.folder);
  run.kill(1);
  wait_until([&] { return restarts_in(run.folder) == 1; });
  run.program.signal(SIGINT);
  const Said said = run.program.wait();
  INFO(said.out << said.err);
  CHECK(said.code == 130);
  CHECK_THAT(contents(run.folder + "/summary.json"), says("\"outcome\": \"interrupted\""));
  CHECK(has_checkpoint(run.folder));
}

TEST_CASE("a run in one process has nobody to lose", "[apps]") {
  const Said said = run_program(with(training(kPipeline), {"--restarts", "1"}));
  CHECK(said.code == 2);
  CHECK_THAT(said.err, says("--restarts goes with --processes N, --hosts FILE or --join env"));
}

}  // namespace restarts_test
