// `troupe replay`: what it says and leaves; records that are not what happened, and files that are none; runs that
// were interrupted, killed and resumed, or had phases. Which experiments replay bit for bit: tests/system/replay_test.cpp.
#include "tests/support/catch.hpp"
#include "tests/support/program.hpp"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace replay_test {

using namespace troupe::test;
namespace fs = std::filesystem;

namespace {

/// Three replicas on a server, on 14 threads.
std::vector<std::string> asynchronous(const std::string& out,
                                      const std::vector<std::string>& set = {}) {
  std::vector<std::string> words{"run", "teacher-mlp", "--quiet", "--out", out};
  std::vector<std::string> all{"data.teacher.train=600",
                               "data.teacher.test=60",
                               "replicas.count=3",
                               "pipeline.stages=2",
                               "stop.epochs=0",
                               "stop.updates=40"};
  all.insert(all.end(), set.begin(), set.end());
  for (const std::string& one : all) {
    words.insert(words.end(), {"--set", one});
  }
  return words;
}

Said replayed(const std::string& run) {
  return run_program({"replay", run, "--quiet"});
}

std::vector<std::string> lines_of(const fs::path& path) {
  std::istringstream text(contents(path));
  std::vector<std::string> lines;
  for (std::string line; std::getline(text, line);) {
    lines.push_back(line);
  }
  return lines;
}

void write(const fs::path& path, const std::vector<std::string>& lines) {
  std::ofstream file(path);
  for (const std::string& line : lines) {
    file << line << '\n';
  }
}

std::string replaced(std::string text, const std::string& what, const std::string& by) {
  const std::size_t at = text.find(what);
  REQUIRE(at != std::string::npos);
  return text.replace(at, what.size(), by);
}

std::string sender_of(const std::string& line) {
  return line.substr(line.rfind(' ') + 1);
}

/// The order of the thread that the server of chunk 0 is on, and its lines with uploads.
struct Uploads {
  fs::path path;
  std::vector<std::string> lines;
  std::vector<std::size_t> at;  // of `lines`

  explicit Uploads(const std::string& run) {
    for (int thread = 0; at.empty(); ++thread) {
      path = fs::path(run) / ("order-" + std::to_string(thread) + ".log");
      REQUIRE(fs::exists(path));
      lines = lines_of(path);
      for (std::size_t i = 0; i < lines.size(); ++i) {
        if (lines[i].find(" server-0.0 Upload ") != std::string::npos) {
          at.push_back(i);
        }
      }
    }
  }

  std::string place(std::size_t line) const {
    return path.string() + ":" + std::to_string(line + 1) + ":";
  }

  /// What was delivered at one of these places is delivered at the other.
  void swap(std::size_t i, std::size_t j) {
    const std::size_t a = lines[i].find(' ');
    const std::size_t b = lines[j].find(' ');
    const std::string first = lines[i].substr(a);
    lines[i].replace(a, std::string::npos, lines[j].substr(b));
    lines[j].replace(b, std::string::npos, first);
    write(path, lines);
  }
};

}  // namespace

TEST_CASE("a replay says that all is equal, and leaves the same files", "[apps][replay]") {
  const Folder folder;
  const std::string run = folder / "run";
  const std::string again = folder / "again";
  REQUIRE(run_program(asynchronous(run)).code == 0);
  const Said said = run_program({"replay", run, "--out", again});
  CHECK(said.code == 0);
  CHECK_THAT(said.out, says("replayed") && says("14 threads in"));
  CHECK_THAT(said.out, says("weights, updates, staleness, test results, order of deliveries"));
  CHECK_THAT(said.err, says("40"));  // progress
  const std::string weights = said.out.substr(said.out.find("sha256 ") + 7, 64);
  CHECK_THAT(contents(run + "/summary.json"), says("\"weights_sha256\": \"" + weights));
  int orders = 0;
  for (const auto& entry : fs::directory_iterator(run)) {
    const std::string name = entry.path().filename().string();
    INFO(name);
    if (name != "summary.json" && name != "metrics.jsonl") {  // they have times of jobs
      CHECK((contents(entry.path()) == contents(again + "/" + name)));
    }
    orders += name.starts_with("order-");
  }
  CHECK(orders == 14);
  CHECK(replayed(again).code == 0);  // it is a record, too
  CHECK(run_program({"replay", run, "--out", again}).code == 2);
}

TEST_CASE("a record that is not what happened departs, and says where", "[apps][replay]") {
  const Folder folder;
  const std::string run = folder / "run";
  REQUIRE(run_program(asynchronous(run)).code == 0);
  Uploads uploads(run);
  const std::vector<std::string> lines = uploads.lines;
  const auto other_sender = [&](std::size_t than) {
    return std::find_if(uploads.at.rbegin(), uploads.at.rend(), [&](std::size_t i) {
      return sender_of(lines[i]) != sender_of(lines[than]);
    });
  };

  SECTION("two deliveries far apart, of different senders to one recipient, are swapped") {
    const std::size_t early = uploads.at[3];
    const auto late = other_sender(early);
    REQUIRE((late != uploads.at.rend() && *late > early));
    uploads.swap(early, *late);
    const Said said = replayed(run);
    CHECK(said.code == 1);
    CHECK_THAT(said.err, says("the replay departs from the record at " + uploads.place(early)));
    CHECK_THAT(said.err,
               says("server-0.0 got \"Upload ") && says("from " + sender_of(lines[*late])));
  }
  SECTION("two neighbours of different senders are swapped") {
    for (std::size_t i = 0; i + 1 < uploads.at.size(); i += 5) {
      const auto [one, next] = std::pair(uploads.at[i], uploads.at[i + 1]);
      if (sender_of(lines[one]) == sender_of(lines[next])) {
        continue;
      }
      uploads.lines = lines;
      uploads.swap(one, next);
      const Said said = replayed(run);
      CHECK(said.code == 1);
      // Where both had come before the first was delivered it can be as the record now says; the digest tells.
      CHECK_THAT(said.err,
                 says("the replay departs from the record at ") || says("order_sha256: "));
    }
  }
  SECTION("a message has another sender") {
    const std::size_t line = uploads.at[5];
    uploads.lines[line] =
        replaced(lines[line], sender_of(lines[line]), sender_of(lines[*other_sender(line)]));
    write(uploads.path, uploads.lines);
    const Said said = replayed(run);
    CHECK(said.code == 1);
    CHECK_THAT(said.err, says("departs from the record at " + uploads.place(line)));
  }
  SECTION("a message has other numbers") {
    const std::size_t line = uploads.at[5];
    uploads.lines[line] = replaced(lines[line], " Upload ", " Upload 1");
    write(uploads.path, uploads.lines);
    CHECK_THAT(replayed(run).err, says("departs from the record at " + uploads.place(line)));
  }
  SECTION("a delivery is missing") {
    uploads.lines.erase(uploads.lines.begin() + static_cast<std::ptrdiff_t>(uploads.at[5]));
    write(uploads.path, uploads.lines);
    const Said said = replayed(run);
    CHECK(said.code == 1);
    CHECK_THAT(said.err, says("departs from the record at "));
  }
  SECTION("a time is another") {
    uploads.lines.back().insert(uploads.lines.back().find(' '), "1");  // a tenth of a nanosecond
    write(uploads.path, uploads.lines);
    const Said said = replayed(run);
    CHECK(said.code == 1);
    CHECK_THAT(said.err, says("order_sha256: "));
  }
  SECTION("the weights were others") {
    const std::string summary = contents(run + "/summary.json");
    std::ofstream(run + "/summary.json")
        << replaced(summary, "\"weights_sha256\": \"", "\"weights_sha256\": \"0");
    const Said said = replayed(run);
    CHECK(said.code == 1);
    CHECK_THAT(said.err, says("weights_sha256: \"0"));
  }
}

TEST_CASE("files that are no record are refused with what is wrong", "[apps][replay]") {
  const Folder folder;
  const std::string run = folder / "run";
  REQUIRE(run_program(asynchronous(run, {"stop.updates=6"})).code == 0);
  const std::string order = contents(run + "/order-1.log");
  const std::string summary = contents(run + "/summary.json");
  const std::string experiment = contents(run + "/experiment.textproto");
  const std::size_t first = order.find('\n');
  const auto first_line = [&](const std::string& line) {
    return line + order.substr(first);
  };

  struct Wrong {
    std::string file;
    std::string text;
    std::string says;
  };

  const std::vector<Wrong> all{
      {"order-1.log", order.substr(0, order.size() - 3), "the file ends within a line"},
      {"order-1.log",
       order + "# the text ends here; deliveries after it are in the digest alone\n",
       "the text ends here, as it had come to 64 MiB"},
      {"order-1.log", first_line("0 stage-0 Start 0 0 0"), "a line has 8 words, this one 6"},
      {"order-1.log", first_line("0 director Halt 0 0 0 0"), "a line has 8 words, this one 7"},
      {"order-1.log", first_line(""), "a line has 8 words, this one 1"},
      {"order-1.log", first_line("0 nobody Halt 0 0 0 0 -"), "no actor \"nobody\""},
      {"order-1.log", first_line("0 director Halt 0 0 0 0 me"), "no actor \"me\""},
      {"order-1.log", first_line("0 - Halt 0 0 0 0 -"), "- is not on thread 1"},
      {"order-1.log", first_line("0 source-0 Halt 0 0 0 0 -"), "source-0 is not on thread 1"},
      {"order-1.log", first_line("0 director Hold 0 0 0 0 -"), "no message \"Hold\""},
      {"order-1.log", first_line("0 director Halt 0 0 x 0 -"), "whole numbers"},
      {"order-1.log", first_line("0 director Halt 0 0 99999999999999999999 0 -"), "whole numbers"},
      {"order-1.log", first_line("nan director Halt 0 0 0 0 -"), "\"nan\" is no time"},
      {"order-1.log", first_line("-1 director Halt 0 0 0 0 -"), "\"-1\" is no time"},
      {"order-1.log", order + "0 director Halt 0 0 0 0 -\n", "before that of the line above"},
      {"order-1.log", first_line("\x1b[2J\x01 \xff"), "\"?[2J? ?\""},
      {"order-14.log", order, "this experiment has 14 threads alone"},
      {"order-13.log", "", "order-13.log: there is no such file"},
      {"summary.json", "", "the run has not come to an end"},
      {"summary.json", "{", "this is no JSON"},
      {"summary.json", "[]", "this is no JSON"},
      {"summary.json", std::string(100000, '['), "this is no JSON"},
      {"summary.json", "{}", "the run was made by an earlier troupe"},
      {"summary.json",
       replaced(summary, "\"version\": \"", "\"version\": \"9."),
       "the run was made by troupe 9."},
      {"experiment.textproto",
       replaced(experiment, "seed: 1", "seed: 2"),
       "this is not what was run: experiment.seed: 1 then, 2 now"},
      {"experiment.textproto",
       replaced(experiment, "count: 3", "count: 2"),
       "experiment.replicas.count"},
      {"experiment.textproto", "seed: x", "experiment.textproto:1"},
  };
  for (const Wrong& wrong : all) {
    INFO(wrong.file << ": " << wrong.says);
    const std::string copy = folder / "copy";
    fs::remove_all(copy);
    fs::copy(run, copy);
    if (wrong.text.empty()) {
      fs::remove(copy + "/" + wrong.file);
    } else {
      std::ofstream(copy + "/" + wrong.file) << wrong.text;
    }
    const Said said = replayed(copy);
    CHECK((said.code == 3 || said.code == 2));
    CHECK_THAT(said.err, says(wrong.says));
    CHECK(std::count(said.err.begin(), said.err.end(), '\n') == 1);  // one sentence
  }
}

TEST_CASE("what has no record is told so", "[apps][replay]") {
  const Folder folder;
  REQUIRE(run_program(asynchronous(folder / "silent", {"record.order=false"})).code == 0);
  const Said silent = replayed(folder / "silent");
  CHECK(silent.code == 3);
  CHECK_THAT(silent.err, says("has not recorded its order") && says("hogwild"));

  std::vector<std::string> words = asynchronous(folder / "virtual");
  words.front() = "sim";
  REQUIRE(run_program(words).code == 0);
  const Said simulated = replayed(folder / "virtual");
  CHECK(simulated.code == 2);
  CHECK_THAT(simulated.err, says("is of a run on the virtual clock") && says("troupe sim "));

  CHECK(replayed(folder / "nothing").code == 3);
  CHECK(run_program({"replay"}).code == 2);
}

TEST_CASE("a run that was interrupted is replayed to its end", "[apps][replay]") {
  for (const int signals : {1, 2}) {
    INFO(signals);
    const Folder folder;
    const std::string run = folder / "run";
    Program program(asynchronous(run, {"stop.updates=1000000", "record.every=10"}));
    wait_until([&] { return fs::exists(run + "/order-13.log"); });
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    for (int i = 0; i < signals; ++i) {
      program.signal(SIGINT);
      std::this_thread::sleep_for(std::chrono::milliseconds(150));
    }
    REQUIRE(program.wait().code == 130);
    const Said said = replayed(run);
    INFO(said.err);
    CHECK(said.code == 0);
    CHECK_THAT(said.out, says("replayed"));
  }
}

TEST_CASE("a run that was killed and went on is replayed as if in one piece", "[apps][replay]") {
  const Folder folder;
  const std::string run = folder / "run";
  Program program(asynchronous(run, {"record.checkpoint.every=20", "stop.updates=3000"}));
  wait_until([&] { return has_checkpoint(run); });
  program.signal(SIGKILL);
  program.wait();
  if (!fs::exists(run + "/summary.json")) {
    CHECK_THAT(replayed(run).err, says("the run has not come to an end"));
  }
  REQUIRE(run_program({"run", "--resume", run, "--quiet"}).code == 0);
  const Said said = replayed(run);
  INFO(said.err);
  CHECK(said.code == 0);
}

TEST_CASE("the end that a run had before it went on is not taken for its end", "[apps][replay]") {
  const Folder folder;
  const std::string run = folder / "run";
  Program first(asynchronous(run, {"stop.updates=1000000000", "record.every=10"}));
  wait_until([&] { return fs::exists(run + "/order-13.log"); });
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  first.signal(SIGINT);
  REQUIRE(first.wait().code == 130);
  REQUIRE(fs::exists(run + "/summary.json"));
  const auto before = fs::file_size(run + "/metrics.jsonl");
  Program second({"run", "--resume", run, "--quiet"});
  wait_until([&] { return fs::file_size(run + "/metrics.jsonl") > before + 4096; });
  const Said meanwhile = replayed(run);
  CHECK(meanwhile.code == 3);
  CHECK_THAT(meanwhile.err, says("the run goes on, so that its order is not whole yet"));
  second.signal(SIGKILL);
  second.wait();
  const Said killed = replayed(run);
  CHECK(killed.code == 3);
  CHECK_THAT(killed.err, says("the run went on after the end that summary.json tells"));
}

TEST_CASE("all phases of a run are replayed, or one of them", "[apps][replay]") {
  const Folder folder;
  const std::string run = folder / "run";
  std::vector<std::string> words = asynchronous(run);
  words[1] = folder / "two.textproto";
  std::ofstream(words[1]) << "model { mlp { hidden: [6] } } data { teacher {} batch_size: 12 }\n"
                             "phases { name: \"a\" }\n"
                             "phases { name: \"b\" set: \"replicas.rule=softsync\" }\n";
  REQUIRE(run_program(words).code == 0);
  const Said said = run_program({"replay", run, "--quiet", "--out", folder / "again"});
  INFO(said.err);
  CHECK(said.code == 0);
  CHECK(fs::exists(folder / "again/02-b/weights.safetensors"));
  CHECK((contents(folder / "again/02-b/weights.safetensors") ==
         contents(run + "/02-b/weights.safetensors")));
  CHECK(replayed(run + "/02-b").code == 0);

  fs::remove(run + "/02-b/order-0.log");
  const Said half = replayed(run);
  CHECK(half.code == 3);
  CHECK_THAT(half.err, says("02-b/order-0.log: there is no such file"));
}

}  // namespace replay_test
