// Replicas on GPUs of several processes whose gradients NCCL adds up (synchronous.reduction nccl), on GPUs that the CPU plays,
// with a stand-in for NCCL that adds up in the order of the ranks:
//   - any number of processes ends with the weights of one process, and two replicas with those of a ring
//   - a process that dies ends the run soon, in a sentence, whatever the others wait for; or the run begins again
//   - a run goes on from a checkpoint in another number of processes; replay repeats it
//   - GPUs that cannot be a group are refused
#include "tests/support/catch.hpp"
#include "tests/support/program.hpp"

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <utility>

namespace group_processes_test {

using namespace troupe::test;

namespace {

/// The program with four GPUs, and a folder for its temporary files.
class OnGpus {
 public:
  OnGpus() {
    ::setenv("TROUPE_DEVICES", "4", 1);
    ::setenv("TMPDIR", temporary_.path().c_str(), 1);
  }

  ~OnGpus() {
    ::unsetenv("TROUPE_DEVICES");
    ::unsetenv("TMPDIR");
  }

  OnGpus(const OnGpus&) = delete;
  OnGpus& operator=(const OnGpus&) = delete;

  static Program start(const Words& words) { return Program(words, "", TROUPE_EMULATED_PROGRAM); }

  static Said run(const Words& words) { return start(words).wait(); }

 private:
  Folder temporary_;
};

const std::string kTwo = "placement.devices=[cuda:0,cuda:1]";
const std::string kFour = "placement.devices=[cuda:0,cuda:1,cuda:2,cuda:3]";
const std::string kShort = "stop.updates=8";
const std::string kEndless = "stop.updates=1000000000";

/// `settings`: KEY=VALUE.
Words training(const std::string& reduction, const Words& settings) {
  Words all{"run", "teacher-mlp", "--quiet"};
  Words set{"data.teacher.train=400",
            "data.teacher.test=40",
            "pipeline.stages=1",
            "pipeline.weights=latest",
            "stop.epochs=0",
            "record.every=1",
            "clock.modelled=false",
            "replicas.exchange.synchronous.reduction=" + reduction};
  set.insert(set.end(), settings.begin(), settings.end());
  for (const std::string& setting : set) {
    all.insert(all.end(), {"--set", setting});
  }
  return all;
}

Words in_processes(const Words& words, int processes) {
  return with(words, {"--processes", std::to_string(processes)});
}

}  // namespace

TEST_CASE("GPUs of several processes end with the weights of one process", "[apps]") {
  const OnGpus gpus;
  const Words two = training("nccl", {"replicas.count=2", kTwo, kShort});
  const Said one = gpus.run(two);
  INFO(one.err);
  REQUIRE(one.code == 0);
  const Said ring = gpus.run(training("ring", {"replicas.count=2", kTwo, kShort}));
  CHECK(digest_of(one) == digest_of(ring));  // of two terms there is one order
  const Said apart = gpus.run(in_processes(two, 2));
  INFO(apart.err);
  CHECK(apart.code == 0);
  CHECK(digest_of(apart) == digest_of(one));

  const Words four = training("nccl", {"replicas.count=4", kFour, kShort});
  const Said together = gpus.run(four);
  REQUIRE(together.code == 0);
  for (const int processes : {2, 3, 4}) {
    const Said several = gpus.run(in_processes(four, processes));
    INFO(processes << several.err);
    CHECK(several.code == 0);
    CHECK(digest_of(several) == digest_of(together));
  }
}

TEST_CASE("stages that share a GPU, and chunks of one stage, take turns over all processes",
          "[apps]") {
  const OnGpus gpus;
  for (const Words& pipeline :
       {Words{"pipeline.stages=2", "placement.devices=[cuda:0,cuda:0,cuda:1,cuda:1]"},
        {"pipeline.stages=2", "placement.devices=[cuda:0,cuda:1,cuda:2,cuda:3]"},
        {"pipeline.stages=2",
         "placement.devices=[cuda:0,cuda:1,cuda:1,cuda:0]",
         "optimizer.clip_norm=0.05"}}) {
    const Words run = training("nccl",
                               with({"replicas.count=2",
                                     kShort,
                                     "pipeline.schedule=async_one_f_one_b",
                                     "pipeline.weights=stash"},
                                    pipeline));
    const Said one = gpus.run(run);
    INFO(one.err);
    REQUIRE(one.code == 0);
    const Said two = gpus.run(in_processes(run, 2));
    INFO(two.err);
    CHECK(two.code == 0);
    CHECK(digest_of(two) == digest_of(one));
    // Each stage of all replicas in a process of its own: no sum crosses.
    const Said by_stage = gpus.run(
        with(in_processes(run, 2), {"--set", "placement.on=[\"stage-0*=0\",\"stage-1*=1\"]"}));
    CHECK(by_stage.code == 0);
    CHECK(digest_of(by_stage) == digest_of(one));
  }
}

TEST_CASE("a process that dies ends a run of GPUs soon, at any moment", "[apps]") {
  const OnGpus gpus;
  std::mt19937 random(1);
  std::uniform_int_distribution<int> delay(0, 300'000);  // us
  for (int i = 0; i < 6; ++i) {
    const Folder folder;
    // Of the last two the process dies in the midst of checkpoints, for which all sums have to end.
    const char* const every = i < 4 ? "record.checkpoint.every=0" : "record.checkpoint.every=1";
    Program run =
        gpus.start(with(in_processes(training("nccl", {"replicas.count=4", kFour, kEndless, every}),
                                     i % 2 == 0 ? 4 : 2),
                        {"--out", folder / "run"}));
    wait_until([&] { return !contents(folder / "run/metrics.jsonl").empty(); });
    std::this_thread::sleep_for(std::chrono::microseconds(delay(random)));
    const auto nodes = nodes_of(run.pid());
    REQUIRE(nodes.size() == (i % 2 == 0 ? 3 : 1));
    ::kill(nodes.back(), SIGKILL);
    const auto begin = std::chrono::steady_clock::now();
    const Said said = run.wait();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    INFO(said.err);
    CHECK(said.code == 5);
    CHECK_THAT(said.err, says("was killed by signal 9") && says("an all-reduce needs all of them"));
    CHECK(took.count() < 15);
    for (const pid_t node : nodes) {
      wait_until([&] { return !std::filesystem::exists("/proc/" + std::to_string(node)); });
    }
  }
}

TEST_CASE("sums of GPUs that have begun end before each checkpoint", "[apps]") {
  const OnGpus gpus;
  const Folder folder;
  const Words words = training(
      "nccl", {"replicas.count=4", kFour, "stop.updates=120", "record.checkpoint.every=1"});
  const Said said = gpus.run(with(in_processes(words, 4), {"--out", folder / "run"}));
  INFO(said.err);
  CHECK(said.code == 0);
  CHECK(digest_of(said) ==
        digest_of(gpus.run(training("nccl", {"replicas.count=4", kFour, "stop.updates=120"}))));
}

TEST_CASE("a run of GPUs that loses a process begins again from its checkpoint", "[apps]") {
  const OnGpus gpus;
  const Folder folder;
  const Words words =
      training("nccl", {"replicas.count=2", kTwo, "stop.updates=60", "record.checkpoint.every=5"});
  Program run =
      gpus.start(with(in_processes(words, 2), {"--out", folder / "run", "--restarts", "1"}));
  wait_until([&] { return has_checkpoint(folder / "run"); });
  ::kill(nodes_of(run.pid()).at(0), SIGKILL);
  const Said said = run.wait();
  INFO(said.err);
  CHECK(said.code == 0);
  CHECK_THAT(contents(folder / "run/metrics.jsonl"), says("\"kind\":\"restart\""));
  CHECK(digest_of(said) == digest_of(gpus.run(words)));
}

TEST_CASE("a run of GPUs goes on in another number of processes, and is replayed in one",
          "[apps]") {
  const OnGpus gpus;
  const Words words = training("nccl",
                               {"replicas.count=4",
                                kFour,
                                "stop.updates=40",
                                "record.checkpoint.every=5",
                                "record.order=true"});
  const std::string digest = digest_of(gpus.run(words));
  for (const auto& [before, after] : {std::pair{2, 4}, {4, 1}, {1, 2}}) {
    const Folder folder;
    const std::string out = folder / "run";
    Program stopped = gpus.start(with(in_processes(words, before), {"--out", out}));
    wait_until([&] { return has_checkpoint(out); });
    stopped.signal(SIGINT);
    const Said halted = stopped.wait();
    INFO(before << " and then " << after << halted.err);
    CHECK(halted.code == 130);
    const Said gone_on = gpus.run(in_processes({"run", "--resume", out, "--quiet"}, after));
    INFO(gone_on.err);
    CHECK(gone_on.code == 0);
    CHECK(digest_of(gone_on) == digest);
    const Said replayed = gpus.run({"replay", out});
    INFO(replayed.out << replayed.err);
    CHECK(replayed.code == 0);
  }
}

TEST_CASE("each host calls its own GPU as it likes, and two replicas of one have two", "[apps]") {
  const OnGpus gpus;
  const Folder folder;
  Program node = gpus.start({"node", "--listen", "127.0.0.1:0", "--once"});
  const std::string before = "listening at ";
  wait_until([&] { return node.err().find('\n') != std::string::npos; });
  const std::string told = node.err();
  std::ofstream(folder / "hosts") << told.substr(told.find(before) + before.size());
  const std::string one = "placement.devices=[cuda:0]";
  const Words words = training("nccl", {"replicas.count=2", one, kShort});
  // Two replicas in the lead's process, or in the node's: before anybody is reached.
  const Said crowded = gpus.run(
      with(training("nccl", {"replicas.count=4", one, kShort}), {"--hosts", folder / "hosts"}));
  CHECK(crowded.code == 2);
  CHECK_THAT(crowded.err, says("two of process 0 are on cuda:0"));
  const Said said = gpus.run(with(words, {"--hosts", folder / "hosts"}));
  INFO(said.err);
  CHECK(said.code == 0);
  CHECK(digest_of(said) ==
        digest_of(gpus.run(training("ring", {"replicas.count=2", one, kShort}))));
  CHECK(node.wait().code == 0);
}

TEST_CASE("GPUs that cannot be a group are refused", "[apps]") {
  const OnGpus gpus;
  const Words shared = training("nccl", {"replicas.count=2", "placement.devices=[cuda:0]", kShort});
  for (const Words& words : {shared, in_processes(shared, 2)}) {
    const Said said = gpus.run(words);
    CHECK(said.code == 2);
    CHECK_THAT(said.err, says("each named once; here it would be between cuda:0, cuda:0"));
  }
  const Said copies = gpus.run(in_processes(
      training("nccl", {"replicas.count=2", kTwo, kShort, "placement.copies=[\"stage-*=2\"]"}), 3));
  CHECK(copies.code == 2);
  CHECK_THAT(copies.err, says("one GPU for each replica, so nothing has copies"));
}

}  // namespace group_processes_test
