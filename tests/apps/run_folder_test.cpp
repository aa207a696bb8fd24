#include "apps/run/run_folder.hpp"

#include "apps/cli/version.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/program.hpp"
#include "tests/support/surroundings.hpp"

#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace run_folder_test {

using namespace troupe;
using namespace troupe::test;
namespace fs = std::filesystem;

namespace {

RunFolder made(const std::string& runs, const std::string& experiment) {
  auto folder = RunFolder::make(runs, experiment);
  INFO((folder ? "" : folder.error().message));
  REQUIRE(folder);
  return *std::move(folder);
}

/// One in which something has been kept.
std::string used(const std::string& runs, const std::string& experiment) {
  const RunFolder folder = made(runs, experiment);
  std::ofstream(folder.path() / "summary.json") << "{}";
  return folder.path().filename();
}

std::string latest(const std::string& runs) {
  std::error_code code;
  return fs::read_symlink(fs::path(runs) / "latest", code);
}

const std::vector<std::string> kShort{"sim", "quadratic", "--quiet", "--set", "stop.updates=10"};

}  // namespace

TEST_CASE("runs are numbered by what is run, and the newest one has a link", "[apps]") {
  const Folder folder;
  const std::string runs = folder / "deep/runs";
  CHECK(used(runs, "glyphs-mlp") == "glyphs-mlp-1");
  CHECK(used(runs, "glyphs-mlp") == "glyphs-mlp-2");
  CHECK(used(runs, "elsewhere/mine.textproto") == "mine-1");
  CHECK(latest(runs) == "mine-1");
  fs::remove_all(fs::path(runs) / "glyphs-mlp-1");
  CHECK(used(runs, "glyphs-mlp") == "glyphs-mlp-3");  // no number comes again below a newer one
  CHECK(latest(runs) == "glyphs-mlp-3");
  CHECK(used(runs, "some run") == "some_run-1");
  CHECK(used(runs, runs + "/glyphs-mlp-3") == "glyphs-mlp-4");  // once more
  CHECK(used(runs, runs + "/latest") == "glyphs-mlp-5");
  CHECK(used(runs, "dir/.textproto") == "run-1");
  fs::create_directory(runs + "/mine-2147483647");  // somebody's
  CHECK(used(runs, "mine.textproto") == "mine-2");
  CHECK(used(runs, "a\nb") == "a_b-1");
}

TEST_CASE("the link leads to a folder that a user has named inside the runs", "[apps]") {
  const Folder folder;
  const std::string runs = folder / "runs";
  const auto run_in = [&](const std::string& out) {
    const auto named = RunFolder::named(runs, out);
    fs::create_directories(out);  // by the run
    std::ofstream(fs::path(out) / "summary.json") << "{}";
    return named.has_value();
  };
  CHECK(run_in(runs + "/teacher"));
  CHECK(latest(runs) == "teacher");
  CHECK(run_in(runs + "/deep/er/"));
  CHECK(fs::equivalent(runs + "/latest", runs + "/deep/er"));
  CHECK_FALSE(run_in(folder / "elsewhere"));
  CHECK_FALSE(run_in(folder / "runs-too/a"));
  CHECK_FALSE(RunFolder::named(runs, runs));
  fs::create_directory(runs + "/mine");
  { const auto empty = RunFolder::named(runs, runs + "/mine"); }  // could not begin
  { const auto none = RunFolder::named(runs, runs + "/none"); }
  CHECK(fs::exists(runs + "/mine"));
  CHECK(fs::equivalent(runs + "/latest", runs + "/deep/er"));
}

TEST_CASE("the link leads to runs, not to figures", "[apps]") {
  const Folder folder;
  const std::string runs = folder / "runs";
  used(runs, "a");
  {
    auto plot = RunFolder::make(runs, "plot", RunFolder::Of::figures);
    REQUIRE(plot);
    std::ofstream(plot->path() / "curves.gnuplot") << "plot 0";
  }
  CHECK(latest(runs) == "a-1");
  const auto dropped = RunFolder::make(runs, "plot", RunFolder::Of::figures);
  CHECK(latest(runs) == "a-1");
}

TEST_CASE("a folder that nothing was put into is taken away again", "[apps]") {
  const Folder folder;
  const std::string runs = folder / "runs";
  { const RunFolder first = made(runs, "a"); }
  CHECK(fs::is_empty(runs));
  used(runs, "a");
  {
    const RunFolder second = made(runs, "a");
    CHECK(latest(runs) == "a-2");
  }
  CHECK(latest(runs) == "a-1");
  CHECK_FALSE(fs::exists(fs::path(runs) / "a-2"));
  {
    const RunFolder removed = made(runs, "a");
    fs::remove_all(removed.path());  // by a run that could not begin
  }
  CHECK(latest(runs) == "a-1");
}

TEST_CASE("somebody's own file of that name is left alone", "[apps]") {
  const Folder folder;
  std::ofstream(folder / "latest") << "mine";
  CHECK(used(folder.path(), "a") == "a-1");
  CHECK(contents(folder / "latest") == "mine");
}

TEST_CASE("runs that begin at the same moment have folders of their own", "[apps]") {
  const Folder folder;
  std::array<std::string, 16> names;
  std::vector<std::thread> threads;
  for (std::string& name : names) {
    threads.emplace_back([&] {  // no check in here: Catch2's assertions belong to one thread
      auto mine = RunFolder::make(folder.path(), "a");
      if (mine) {
        std::ofstream(mine->path() / "summary.json") << "{}";
        name = mine->path().filename();
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  CHECK_FALSE(std::set<std::string>(names.begin(), names.end()).contains(""));
  CHECK(std::set<std::string>(names.begin(), names.end()).size() == names.size());
}

TEST_CASE("where no folder can be made is told, and what does", "[apps]") {
  const Folder folder;
  std::ofstream(folder / "runs") << "a file";
  const auto refused = RunFolder::make(folder / "runs", "a");
  REQUIRE_FALSE(refused);
  CHECK(refused.error().kind == ErrorKind::lost);
  CHECK_THAT(refused.error().message,
             Catch::Contains(folder / "runs") && Catch::Contains("--out none keeps nothing"));
}

TEST_CASE("a run that is told nothing keeps its files, and where they are from", "[apps]") {
  const Folder folder;
  const Environment runs("TROUPE_RUNS", folder / "runs");
  const Said said = run_program(kShort);
  CHECK(said.code == 0);
  const std::string kept = folder / "runs/quadratic-1";
  CHECK_THAT(said.out, Catch::Contains("files      " + kept));
  const std::string summary = contents(folder / "runs/latest/summary.json");
  std::array<char, 256> host{};
  REQUIRE(::gethostname(host.data(), host.size() - 1) == 0);
  for (const std::string& word : {concat("\"version\": \"", version(), "\""),
                                  concat("\"commit\":\"", commit(), "\""),
                                  concat("\"host\":\"", host.data(), "\""),
                                  std::string("\"outcome\": \"done\""),
                                  std::string("sim quadratic --quiet --set stop.updates=10\"")}) {
    CHECK_THAT(summary, Catch::Contains(word));
  }
  CHECK(fs::exists(kept + "/order.log"));
  CHECK(run_program(kShort).code == 0);
  CHECK(latest(folder / "runs") == "quadratic-2");
  const Said wrong = run_program(with(kShort, {"--set", "model.quadratic.layers=0"}));
  CHECK(wrong.code == 2);
  CHECK(latest(folder / "runs") == "quadratic-2");
  CHECK_FALSE(fs::exists(folder / "runs/quadratic-3"));
}

TEST_CASE("a run keeps nothing where it is asked to", "[apps]") {
  const Folder folder;
  const WorkingFolder here(folder.path());
  CHECK(run_program(kShort).code == 0);  // TROUPE_RUNS=none, as tests are run
  const Environment runs("TROUPE_RUNS", "");
  CHECK(run_program(with(kShort, {"--out", "none"})).code == 0);
  CHECK(fs::is_empty(folder.path()));
  CHECK(run_program(kShort).code == 0);
  CHECK(fs::exists("runs/quadratic-1/summary.json"));
}

TEST_CASE("phases are kept in a folder of the whole", "[apps]") {
  const Folder folder;
  const Environment runs("TROUPE_RUNS", folder.path());
  std::ofstream(folder / "two.textproto")
      << "model { quadratic {} } data { none {} } optimizer { learning_rate: 0.01 } "
         "stop { updates: 5 } phases { name: \"a\" } phases { name: \"b\" }";
  const Said said = run_program({"sim", folder / "two.textproto", "--quiet"});
  INFO(said.err);
  CHECK(said.code == 0);
  CHECK(fs::exists(folder / "two-1/01-a/summary.json"));
  CHECK(fs::exists(folder / "two-1/summary.json"));
}

TEST_CASE("the folder has the name of the experiment, or where it has none that of its file",
          "[apps]") {
  const Folder folder;
  const Environment runs("TROUPE_RUNS", folder / "runs");
  CHECK(run_program(with(kShort, {"--set", "name=my steps"})).code == 0);
  CHECK(fs::exists(folder / "runs/my_steps-1/summary.json"));
  const std::string file = folder / "unnamed.textproto";
  std::ofstream(file)
      << "model { quadratic {} } data { none {} batch_size: 1 } stop { updates: 5 }";
  CHECK(run_program({"sim", file, "--quiet"}).code == 0);
  CHECK(fs::exists(folder / "runs/unnamed-1/summary.json"));
}

TEST_CASE("a run on data of one's own is named after the data, unless it has a name", "[apps]") {
  const Folder folder;
  const Environment runs("TROUPE_RUNS", folder / "runs");
  std::ofstream(folder / "roses.csv") << "a,b,kind\n1,2,x\n2,1,y\n1,3,x\n3,1,y\n";
  const auto run = [&](const Words& more) {
    const Said said = run_program(with({"sim",
                                        "--quiet",
                                        "--epochs",
                                        "1",
                                        "--set",
                                        "data.csv.path=" + (folder / "roses.csv"),
                                        "--set",
                                        "data.batch_size=1"},
                                       more));
    INFO(said.err);
    REQUIRE(said.code == 0);
    return latest(folder / "runs");
  };
  CHECK(run({}) == "roses-1");
  CHECK(run({"glyphs-mlp"}) == "glyphs-mlp-1");
  CHECK(run({"--set", "name=mine"}) == "mine-1");
  REQUIRE(run_program({"sim", "--quiet", "--epochs", "1", "--set", "data.glyphs.limit=256"}).code ==
          0);
  CHECK(latest(folder / "runs") == "glyphs-mlp-2");
  REQUIRE(run_program({"sim",
                       "--quiet",
                       "--epochs",
                       "1",
                       "--set",
                       "data=teacher",
                       "--set",
                       "data.teacher.train=200"})
              .code == 0);
  CHECK(latest(folder / "runs") == "teacher-1");
}

TEST_CASE("a run takes a folder that is there and empty", "[apps]") {
  const Folder folder;
  fs::create_directory(folder / "mine");
  const Said said = run_program(with(kShort, {"--out", folder / "mine"}));
  INFO(said.err);
  CHECK(said.code == 0);
  CHECK(fs::exists(folder / "mine/summary.json"));
  CHECK(run_program(with(kShort, {"--out", folder / "mine"})).code == 2);
}

}  // namespace run_folder_test
