// Runs that are interrupted, killed and damaged go on from their checkpoints, or say why not. Which schemes do so bit
// for bit: tests/tools/resume_matrix.py. A few kills by default; for N of each verb set TROUPE_INTERRUPTIONS=N.
#include "tests/support/catch.hpp"
#include "tests/support/program.hpp"
#include "tests/support/sanitized.hpp"

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace resume_test {

using namespace troupe::test;
namespace fs = std::filesystem;

namespace {

int kills() {
  const char* wanted = std::getenv("TROUPE_INTERRUPTIONS");
  return wanted ? std::atoi(wanted) : kSanitized ? 1 : 3;
}

/// Updates that take some tenths of a second.
const char* const kSome = kSanitized ? "500" : "2000";

/// A pipeline of four stages, with a checkpoint every hundred updates; with 40 or 60 updates with two or three.
std::vector<std::string> pipeline(const std::string& verb,
                                  const std::string& out,
                                  const std::string& updates = kSome) {
  return {verb,
          "teacher-mlp",
          "--quiet",
          "--out",
          out,
          "--set",
          "data.teacher.train=1000",
          "--set",
          "data.teacher.test=100",
          "--set",
          "stop.epochs=0",
          "--set",
          "stop.updates=" + updates,
          "--set",
          updates.size() < 3 ? "record.checkpoint.every=20" : "record.checkpoint.every=100"};
}

void wait_for_checkpoint(const std::string& run) {
  wait_until([&] { return has_checkpoint(run); });
}

}  // namespace

TEST_CASE("a run that was killed at any moment ends as if it had not been", "[apps]") {
  std::mt19937 random(1);
  std::uniform_int_distribution<int> delay(0, 100'000);  // us
  for (const std::string verb : {"sim", "run"}) {
    const Folder folder;
    const Said whole = run_program(pipeline(verb, folder / "whole"));
    REQUIRE(whole.code == 0);
    for (int i = 0; i < kills(); ++i) {
      INFO(verb << ", kill " << i);
      const std::string run = folder / ("run-" + std::to_string(i));
      Program program(pipeline(verb, run));
      wait_for_checkpoint(run);
      std::this_thread::sleep_for(std::chrono::microseconds(delay(random)));
      program.signal(SIGKILL);
      const int code = program.wait().code;
      CHECK((code == 128 + SIGKILL || code == 0));  // it may have been over
      const Said resumed = run_program({verb, "--resume", run, "--quiet"});
      CHECK(resumed.code == 0);
      CHECK(digest_of(resumed) == digest_of(whole));
    }
  }
}

TEST_CASE("a run that is interrupted writes a checkpoint first, and ends from it as in one piece",
          "[apps]") {
  for (const std::string verb : {"sim", "run"}) {
    const Folder folder;
    const std::string twice = std::to_string(2 * std::stoi(kSome));
    const Said whole = run_program(pipeline(verb, folder / "whole", twice));
    REQUIRE(whole.code == 0);
    std::string run;
    int code = 0;
    for (int i = 0; i < 8 && code == 0;
         ++i) {  // on a busy machine the signal may come after the end
      run = folder / ("run-" + std::to_string(i));
      Program program(pipeline(verb, run, twice));
      wait_for_checkpoint(run);
      program.signal(SIGINT);
      code = program.wait().code;
    }
    CHECK(code == 130);
    const Said resumed = run_program({verb, "--resume", run, "--quiet"});
    CHECK(resumed.code == 0);
    CHECK_THAT(resumed.err, says("going on from"));
    CHECK(digest_of(resumed) == digest_of(whole));
  }
}

TEST_CASE("a run that goes on from an older checkpoint takes the place of what came after it",
          "[apps]") {
  const Folder folder;
  const std::string run = folder / "run";
  const Said whole = run_program(pipeline("sim", run, "60"));
  REQUIRE(whole.code == 0);
  // With a slash at its end, as completion in a shell writes it.
  const Said older = run_program({"sim", "--resume", run + "/checkpoints/step-40/", "--quiet"});
  CHECK(older.code == 0);
  CHECK(digest_of(older) == digest_of(whole));
  fs::rename(run + "/checkpoints/step-60", folder / "later");
  REQUIRE(run_program({"sim", "--resume", run + "/checkpoints/step-40"}).code == 0);
  CHECK(fs::exists(run + "/checkpoints/step-60"));
}

TEST_CASE("what codecs have kept in an all-reduce is in a checkpoint", "[apps]") {
  for (const char* up : {"=fp16", ".powersgd.rank=1", ".random_k.density=0.1"}) {
    for (const char* how : {"ring", "tree"}) {
      INFO(up << " " << how);
      const Folder folder;
      const std::string run = folder / "run";
      std::vector<std::string> words = pipeline("sim", run, "60");
      for (const std::string& more : {std::string("replicas.count=3"),
                                      std::string("replicas.exchange.synchronous.reduction=") + how,
                                      std::string("replicas.codec.up") + up}) {
        words.insert(words.end(), {"--set", more});
      }
      const Said whole = run_program(words);
      REQUIRE(whole.code == 0);
      const Said resumed =
          run_program({"sim", "--resume", run + "/checkpoints/step-40", "--quiet"});
      CHECK(resumed.code == 0);
      CHECK(digest_of(resumed) == digest_of(whole));
    }
  }
}

TEST_CASE(
    "what codecs have kept, and what gossiping replicas know of one another, is in a checkpoint",
    "[apps]") {
  const std::string down = "replicas.codec.down.top_k.density=0.05";
  for (const std::vector<std::string>& set : std::vector<std::vector<std::string>>{
           {down, "replicas.codec.up.top_k.density=0.05"},
           {down, "replicas.codec.up.powersgd.rank=1"},
           {down, "replicas.codec.up.strom.density=0.05"},
           {"replicas.exchange.gossip.order=simultaneous", "replicas.codec.up.powersgd.rank=1"},
           {"replicas.exchange.gossip.order=sequential", "replicas.codec.up.powersgd.rank=1"}}) {
    INFO(set.front() << " " << set.back());
    const Folder folder;
    const std::string run = folder / "run";
    std::vector<std::string> words = pipeline("sim", run, "60");
    for (const std::string& more : {std::string("replicas.count=3"), set.front(), set.back()}) {
      words.insert(words.end(), {"--set", more});
    }
    const Said whole = run_program(words);
    REQUIRE(whole.code == 0);
    const Said resumed = run_program({"sim", "--resume", run + "/checkpoints/step-40", "--quiet"});
    CHECK(resumed.code == 0);
    CHECK(digest_of(resumed) == digest_of(whole));
  }
}

TEST_CASE(
    "evaluations of each replica, and those that wait or are passed over, are in a checkpoint",
    "[apps]") {
  const auto lines = [](const std::string& run, const std::string& kind) {
    std::vector<std::string> all;
    std::istringstream metrics(contents(run + "/metrics.jsonl"));
    for (std::string line; std::getline(metrics, line);) {
      if (line.find("\"kind\":\"" + kind + '"') != std::string::npos) {
        all.push_back(line);
      }
    }
    return all;
  };
  const auto passed_over = [](const std::string& run) {
    const std::string summary = contents(run + "/summary.json");
    const std::size_t at = summary.find("\"evaluations_passed_over\"");
    return at == std::string::npos ? "" : summary.substr(at, summary.find('\n', at) - at);
  };
  const Folder folder;
  const std::string run = folder / "run";
  std::vector<std::string> words = pipeline("sim", run, "60");
  for (const std::string more : {"replicas.count=3",
                                 "replicas.exchange=ad_psgd",
                                 "clock.workers.straggler.permanent.factor=30",
                                 "record.evaluate=true",
                                 "record.evaluate_every=1",
                                 "record.each_replica=always"}) {
    words.insert(words.end(), {"--set", more});
  }
  const Said whole = run_program(words);
  REQUIRE(whole.code == 0);
  const auto replicas = lines(run, "replica");
  const auto evaluations = lines(run, "evaluation");
  const std::string passed = passed_over(run);
  CHECK(replicas.size() == 3 * evaluations.size());
  CHECK(passed.size() > 0);
  const Said resumed = run_program({"sim", "--resume", run + "/checkpoints/step-40", "--quiet"});
  CHECK(resumed.code == 0);
  CHECK(digest_of(resumed) == digest_of(whole));
  CHECK(lines(run, "replica") == replicas);
  CHECK(lines(run, "evaluation") == evaluations);
  CHECK(passed_over(run) == passed);
}

TEST_CASE("predictors, their lessons under way and what is measured of them are in a checkpoint",
          "[apps]") {
  for (const std::vector<std::string>& method : std::vector<std::vector<std::string>>{
           {"decoupled.synthetic.conditioned=true"},
           {"decoupled.synthetic.unlocked=true"},
           {"decoupled.greedy.buffer=3", "clock.forward.seconds=[4,1,1,4]"},
           {"decoupled.synthetic.freshest=true", "clock.teach.seconds=[0.01]"},
           {"decoupled.synthetic.conditioned=true", "decoupled.synthetic.unlocked=true"},
           {"decoupled.synthetic.trains_on=estimate", "decoupled.synthetic.unlocked=true"}}) {
    INFO(method.front() << " " << method.back());
    const Folder folder;
    const std::string run = folder / "run";
    std::vector<std::string> words = pipeline("sim", run, "60");
    for (const std::string& more :
         {std::string("pipeline.schedule=sequential"), std::string("record.every=5")}) {
      words.insert(words.end(), {"--set", more});
    }
    if (!method.front().starts_with("decoupled.greedy.buffer")) {
      words.insert(words.end(), {"--set", "record.angle_every=3"});
    }
    for (const std::string& more : method) {
      words.insert(words.end(), {"--set", more});
    }
    const Said whole = run_program(words);
    REQUIRE(whole.code == 0);
    const std::string metrics = contents(run + "/metrics.jsonl");
    const Said resumed = run_program({"sim", "--resume", run + "/checkpoints/step-40", "--quiet"});
    CHECK(resumed.code == 0);
    CHECK(digest_of(resumed) == digest_of(whole));
    CHECK(contents(run + "/metrics.jsonl") == metrics);
  }
}

TEST_CASE("a checkpoint that is not whole is passed over", "[apps]") {
  const Folder folder;
  const std::string run = folder / "run";
  const Said whole = run_program(pipeline("sim", run, "60"));
  REQUIRE(whole.code == 0);
  std::ofstream(run + "/checkpoints/step-60/state.pb", std::ios::app) << "more";
  const Said resumed = run_program({"sim", "--resume", run, "--quiet"});
  CHECK(resumed.code == 0);
  CHECK_THAT(resumed.err, says("passed over") && says("step-60 is not whole"));
  CHECK_THAT(resumed.err, says("going on from") && says("step-40"));
  CHECK(digest_of(resumed) == digest_of(whole));

  fs::remove(run + "/checkpoints/step-40/SHA256SUMS");
  fs::remove(run + "/checkpoints/step-60/SHA256SUMS");
  const Said refused = run_program({"sim", "--resume", run});
  CHECK(refused.code == 3);
  CHECK_THAT(refused.err, says("no checkpoint to go on from") && says("it has no SHA256SUMS"));
  CHECK_THAT(contents(run + "/summary.json"), says("done"));  // nothing of the run was touched
}

TEST_CASE("what --resume cannot do is said", "[apps]") {
  const Folder folder;
  const std::string run = folder / "run";
  REQUIRE(run_program(pipeline("sim", run, "40")).code == 0);
  for (const auto& [more, why] :
       {std::pair{std::vector<std::string>{"glyphs-mlp"}, "leave out EXPERIMENT"},
        {{"--set", "seed=2"}, "seed is what the checkpoint is of, and stays"},
        {{"--out", folder / "other"}, "leave out --out, or name another topology with --set"}}) {
    std::vector<std::string> asked{"sim", "--resume", run};
    asked.insert(asked.end(), more.begin(), more.end());
    const Said said = run_program(asked);
    CHECK(said.code == 2);
    CHECK_THAT(said.err, says(why));
  }
  const Said clock = run_program({"run", "--resume", run});
  CHECK(clock.code == 2);
  CHECK_THAT(clock.err, says("on the virtual clock: troupe sim --resume goes on with it"));
  const Said nowhere = run_program({"sim", "--resume", folder / "nowhere"});
  CHECK(nowhere.code == 3);
  CHECK_THAT(nowhere.err, says("there is no such folder"));
  const Said empty = run_program({"sim", "--resume", ""});
  CHECK(empty.code == 2);
}

TEST_CASE("a run that cannot go on from an older checkpoint keeps its newer ones", "[apps]") {
  const Folder folder;
  const std::string run = folder / "run";
  REQUIRE(run_program(pipeline("sim", run, "40")).code == 0);
  fs::resize_file(run + "/metrics.jsonl", 10);
  const Said said = run_program({"sim", "--resume", run + "/checkpoints/step-20"});
  CHECK(said.code == 3);
  CHECK_THAT(said.err, says("metrics.jsonl has 10 bytes, but had"));
  CHECK(fs::exists(run + "/checkpoints/step-40"));
}

TEST_CASE("a run that goes on is not gone on with by another program", "[apps]") {
  const Folder folder;
  const std::string run = folder / "run";
  Program program(pipeline("run", run, "1000000"));
  wait_for_checkpoint(run);
  const Said said = run_program({"run", "--resume", run});
  CHECK(said.code == 2);
  CHECK_THAT(said.err, says("metrics.jsonl is being written by a run that goes on"));
  program.signal(SIGKILL);
  CHECK(program.wait().code == 128 + SIGKILL);
}

TEST_CASE("the weights of an end are not taken for those of a run that went on and was killed",
          "[apps]") {
  const Folder folder;
  const std::string run = folder / "run";
  Program first(pipeline("run", run, "1000000"));
  wait_for_checkpoint(run);
  first.signal(SIGINT);
  REQUIRE(first.wait().code == 130);
  REQUIRE(run_program({"eval", run}).code == 0);
  const auto before = fs::file_size(run + "/metrics.jsonl");
  Program second({"run", "--resume", run, "--quiet"});
  wait_until([&] { return fs::file_size(run + "/metrics.jsonl") > before + 4096; });
  second.signal(SIGKILL);
  second.wait();
  const Said said = run_program({"eval", run});
  CHECK(said.code == 3);
  CHECK_THAT(said.err, says("the run has gone on since it wrote its weights"));
  CHECK_THAT(said.err, says("`troupe eval " + run + "/checkpoints/step-"));
  CHECK(run_program({"eval", run + "/weights.safetensors"}).code == 0);
  const auto newest = said.err.find("/checkpoints/step-");
  const std::string checkpoint = said.err.substr(newest, said.err.find(' ', newest) - newest);
  CHECK(run_program({"eval", run + checkpoint, run}).code == 0);
}

TEST_CASE("the weights of an end are not taken for those of a later one that has none", "[apps]") {
  const Folder folder;
  const std::string run = folder / "run";
  REQUIRE(run_program(pipeline("sim", run, "20")).code == 0);
  REQUIRE(run_program({"eval", run}).code == 0);
  std::string summary = contents(run + "/summary.json");
  const std::string key = "\"weights_sha256\"";
  const std::size_t at = summary.find(key);
  REQUIRE(at != std::string::npos);
  std::ofstream(run + "/summary.json") << summary.replace(at, key.size(), "\"of_another\"");
  const Said said = run_program({"eval", run});
  CHECK(said.code == 3);
  CHECK_THAT(said.err, says("the run has gone on since it wrote its weights"));
}

TEST_CASE("a run that is to write checkpoints without a pause has most of the time for itself",
          "[apps]") {
  const Folder folder;
  const std::string run = folder / "run";
  std::vector<std::string> words = pipeline("sim", run);
  words.back() = "record.checkpoint.seconds=1e-9";
  words.insert(words.end(), {"--set", "record.checkpoint.keep=10000"});
  REQUIRE(run_program(words).code == 0);
  const auto all = fs::directory_iterator(run + "/checkpoints");
  const auto made = std::distance(fs::begin(all), fs::end(all));
  // Writing one takes longer than an update; without a pause there would be one an update.
  CHECK(made > 0);
  CHECK(made < 1000);  // of 2000 updates
}

TEST_CASE("where a checkpoint cannot be written the run goes on and says so", "[apps]") {
  const Folder folder;
  const std::string run = folder / "run";
  Program program(pipeline("run", run, "6000"));
  wait_for_checkpoint(run);
  fs::remove_all(run + "/checkpoints");
  std::ofstream(run + "/checkpoints") << "in the way";
  const Said said = program.wait();
  CHECK(said.code == 0);
  CHECK_THAT(said.err, says("no_checkpoint"));
}

}  // namespace resume_test
