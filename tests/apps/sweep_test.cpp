// A comparison that was ended goes on where it was, and says meanwhile where it stands.
#include "apps/cli/status_line.hpp"
#include "apps/compare/kept_trials.hpp"
#include "apps/compare/trials_progress.hpp"
#include "runtime/record/sha256.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/program.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <csignal>
#include <fstream>
#include <limits>
#include <sstream>
#include <thread>

namespace sweep_test {

using namespace troupe;
using namespace troupe::test;
namespace fs = std::filesystem;

namespace {

constexpr double kNothing = std::numeric_limits<double>::quiet_NaN();

/// 2 schemes and 3 seeds, one trial after the other.
Words sweep(const std::string& out, const Words& more = {}) {
  return with({"compare",
               "teacher-mlp",
               "--vary",
               "optimizer.learning_rate=0.1,1e30",  // of which the second diverges
               "--seeds",
               "3",
               "--jobs",
               "1",
               "--epochs",
               "2",
               "--set",
               "model.mlp.activation=relu",
               "--set",
               "data.teacher.train=1000",
               "--set",
               "data.teacher.test=200",
               "--set",
               "record.evaluate_every=4",
               "--set",
               "record.gap_every=3",
               "--out",
               out},
              more);
}

std::vector<fs::path> trials_in(const std::string& folder) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(fs::path(folder) / "trials")) {
    if (entry.path().extension() == ".trial") {
      files.push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::string table_of(const Said& said) {
  return said.out.substr(0, said.out.find("files "));
}

void check_equal(const std::string& folder, const std::string& other) {
  for (const char* name : {"compare.csv", "compare.json", "curves.csv", "curves.gnuplot"}) {
    INFO(name);
    CHECK(contents(folder + "/" + name) == contents(other + "/" + name));
  }
}

Schemes small_schemes() {
  auto made = make_schemes({"quadratic"},
                           {"stop.updates=20", "record.evaluate_every=5"},
                           {{"optimizer.learning_rate", {"0.01", "0.02"}}});
  REQUIRE(made);
  return *std::move(made);
}

Result<KeptTrials> kept_in(const Folder& folder,
                           const Schemes& schemes,
                           const std::string& maker = "me",
                           const std::string& clock = "virtual",
                           int seeds = 2) {
  return KeptTrials::open(folder.path(), schemes.schemes, clock, seeds, maker);
}

Trial finished_trial(std::uint64_t seed) {
  Trial t{.scheme = 1, .seed = seed, .outcome = troupe::Outcome::finished, .exit_code = 0};
  t.curve = {{1, 0.5, 2, 0.25, 0.125, kNothing}, {2, 1, 4, 0.2, 0.1, 0.75}};
  t.summary.samples_per_second = 1.0 / 3;
  t.summary.staleness[1] = {.mean = 1.5, .max = 2, .histogram = {{1, 5}, {2, 5}}};
  t.summary.gap[0] = 0.1;
  t.summary.weights_sha256 = "abc";
  return t;
}

/// Keeps one trial, of the second scheme and seed 2, and lets the folder go.
fs::path keep_one(const Folder& folder, const Schemes& schemes) {
  auto kept = kept_in(folder, schemes);
  REQUIRE(kept);
  REQUIRE(kept->keep(schemes.schemes[1], finished_trial(2)));
  return trials_in(folder.path().string()).front();
}

}  // namespace

TEST_CASE("a comparison that was killed goes on, and ends as one that was not", "[apps]") {
  const Folder folder;
  const Said whole = run_program(sweep(folder / "whole"));
  REQUIRE(whole.code == 0);
  CHECK_THAT(whole.out, says("diverged 3/3"));
  REQUIRE(trials_in(folder / "whole").size() == 6);

  {
    Program killed(sweep(folder / "killed"));
    wait_until([&] { return killed.err().find("[2/6]") != std::string::npos; });
    killed.signal(SIGKILL);
    killed.wait();
  }
  CHECK(trials_in(folder / "killed").size() >= 2);  // what was told as finished is kept
  for (std::vector<fs::path> there = trials_in(folder / "killed"); there.size() > 4;
       there.pop_back()) {
    fs::remove(there.back());  // where the signal came late, so that something is left to be done
  }
  const std::size_t left = trials_in(folder / "killed").size();
  const Said on = run_program(sweep(folder / "killed"));
  CHECK(on.code == 0);
  CHECK_THAT(on.err, says(concat(left, " finished trials taken from the folder")));
  CHECK(std::count(on.err.begin(), on.err.end(), '[') == static_cast<std::ptrdiff_t>(6 - left));
  CHECK_THAT(on.err, !says("made again"));
  CHECK(table_of(on) == table_of(whole));
  check_equal(folder / "killed", folder / "whole");

  // Once more with a seed less and one that is damaged: the rest is taken, and what is not asked for is told.
  const fs::path one = trials_in(folder / "killed").front();
  const std::string bytes = contents(one);
  std::ofstream(one, std::ios::binary) << bytes.substr(0, bytes.size() / 2);
  const Said again = run_program(sweep(folder / "killed"));
  CHECK_THAT(again.err, says(one.string() + " is damaged: "));
  CHECK_THAT(again.err, says("5 finished trials taken from the folder"));
  check_equal(folder / "killed", folder / "whole");
  CHECK(contents(one) == bytes);

  const Said more = run_program(with(sweep(folder / "killed"), {"--vary", "pipeline.stages=2"}));
  CHECK(more.code == 2);
  CHECK_THAT(more.err, says("has the trials of another comparison (learning_rate="));
}

TEST_CASE("a trial that is kept comes back as it was", "[apps]") {
  const Folder folder;
  const Schemes schemes = small_schemes();
  keep_one(folder, schemes);
  auto kept = kept_in(folder, schemes);
  REQUIRE(kept);
  Trial back{.scheme = 1, .seed = 2};
  REQUIRE(kept->recall(schemes.schemes[1], back));
  const Trial was = finished_trial(2);
  CHECK(back.scheme == 1);
  CHECK(back.outcome == troupe::Outcome::finished);
  REQUIRE(back.curve.size() == 2);
  CHECK(std::isnan(back.curve[0].accuracy));
  CHECK(back.curve[1].accuracy == 0.75);
  CHECK(back.summary.samples_per_second == was.summary.samples_per_second);
  CHECK(back.summary.staleness[1].histogram == was.summary.staleness.at(1).histogram);
  CHECK(back.summary.gap == was.summary.gap);
  CHECK(back.summary.weights_sha256 == "abc");
  Trial other{.scheme = 0, .seed = 2};
  CHECK_FALSE(kept->recall(schemes.schemes[0], other));
  CHECK(kept->notes().empty());
}

TEST_CASE("a trial of another program is told and not taken", "[apps]") {
  const Folder folder;
  const Schemes schemes = small_schemes();
  keep_one(folder, schemes);
  auto kept = kept_in(folder, schemes, "somebody else");
  REQUIRE(kept);
  Trial back{.scheme = 1, .seed = 2};
  CHECK_FALSE(kept->recall(schemes.schemes[1], back));
  REQUIRE(kept->notes().size() == 1);
  CHECK(kept->notes().front() ==
        "learning_rate=0.02 seed 2 is made again, as another program or another kind of machine "
        "has made it: me");
}

TEST_CASE("every damage of a kept trial is met", "[apps]") {
  const Folder folder;
  const Schemes schemes = small_schemes();
  const fs::path path = keep_one(folder, schemes);
  const std::string sound = contents(path);
  const auto taken = [&](const std::string& bytes) {
    std::ofstream(path, std::ios::binary) << bytes;
    auto kept = kept_in(folder, schemes);
    REQUIRE(kept);
    Trial back{.scheme = 1, .seed = 2};
    const bool there = kept->recall(schemes.schemes[1], back);
    CHECK(kept->notes().size() == (there ? 0 : 1));
    return there;
  };
  CHECK(taken(sound));
  for (std::size_t size = 0; size < sound.size(); size += 7) {
    CHECK_FALSE(taken(sound.substr(0, size)));
  }
  for (std::size_t i = 0; i < sound.size(); i += 11) {
    std::string turned = sound;
    turned[i] = static_cast<char>(turned[i] ^ 1);
    CHECK_FALSE(taken(turned));
  }
  CHECK_FALSE(taken(sound + "x"));
}

TEST_CASE("what stands in a trial's place and is no file is damage, and is not waited for",
          "[apps]") {
  const Folder folder;
  const Schemes schemes = small_schemes();
  const fs::path path = keep_one(folder, schemes);
  for (const bool pipe : {true, false}) {
    fs::remove_all(path);
    REQUIRE((pipe ? ::mkfifo(path.c_str(), 0600) : ::mkdir(path.c_str(), 0700)) == 0);
    auto kept = kept_in(folder, schemes);
    REQUIRE(kept);
    Trial back{.scheme = 1, .seed = 2};
    CHECK_FALSE(kept->recall(schemes.schemes[1], back));
    REQUIRE(kept->notes().size() == 1);
    CHECK_THAT(kept->notes().front(), says("is damaged"));
    CHECK_FALSE(kept->keep(schemes.schemes[1], finished_trial(2)));
  }
}

TEST_CASE("a trial that cannot be kept is told before the next one is begun", "[apps]") {
  const Folder folder;
  REQUIRE(run_program(sweep(folder / "c", {"--quiet"})).code == 0);
  for (const fs::path& path : trials_in(folder / "c")) {
    fs::remove(path);
    fs::create_directory(path);
  }
  const Said said = run_program(sweep(folder / "c"));
  CHECK(said.code == 5);
  const std::size_t told =
      said.err.find(" could not be written: it is no file; the comparison goes on");
  REQUIRE(told != std::string::npos);
  CHECK(told < said.err.find("[1/6] "));
  CHECK_THAT(said.out, says("diverged 3/3"));  // the table is there all the same
}

TEST_CASE("the program that makes trials is known by its file", "[apps]") {
  const std::string maker = maker_of_trials();
  CHECK(maker == maker_of_trials());
  Sha256 digest;
  const std::string program = contents("/proc/self/exe");
  digest.update(program.data(), program.size());
  CHECK_THAT(maker, says("program " + digest.finish().substr(0, 16)));
}

TEST_CASE("of comparisons that begin in one folder at once one goes on", "[apps]") {
  const Schemes schemes = small_schemes();
  for (int round = 0; round < 20; ++round) {
    const Folder folder;
    std::atomic<int> inside{0};
    std::atomic<int> went_on{0};
    std::atomic<bool> together{false};
    std::atomic<int> begun{0};
    std::vector<std::jthread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] {
        ++begun;
        while (begun < 4) {
        }
        const auto kept = kept_in(folder, schemes);
        if (kept) {
          // A late thread may rightly go on once an early one has left: only two at once are wrong.
          ++went_on;
          if (++inside > 1) {
            together = true;
          }
          std::this_thread::sleep_for(std::chrono::milliseconds(20));
          --inside;
        }
      });
    }
    threads.clear();
    REQUIRE_FALSE(together);
    REQUIRE(went_on >= 1);
  }
}

TEST_CASE("trials are taken by what was trained and on which clock", "[apps]") {
  const Folder folder;
  const Schemes schemes = small_schemes();
  keep_one(folder, schemes);
  const auto other_clock = kept_in(folder, schemes, "me", "real");
  REQUIRE_FALSE(other_clock);
  CHECK(other_clock.error().kind == ErrorKind::usage);
  CHECK_THAT(
      other_clock.error().message,
      says("has the trials of another comparison (learning_rate=0.02, seed 2), and none of"));
  Schemes fewer = schemes;
  fewer.schemes.erase(fewer.schemes.begin());
  {
    const auto kept = kept_in(folder, fewer);
    REQUIRE(kept);
    CHECK(kept->notes().empty());
  }
  auto longer = make_schemes({"quadratic"},
                             {"stop.updates=21", "record.evaluate_every=5"},
                             {{"optimizer.learning_rate", {"0.01", "0.02"}}});
  REQUIRE(longer);
  const auto of_longer = kept_in(folder, *longer);
  REQUIRE_FALSE(of_longer);
  CHECK_THAT(of_longer.error().message, says("has the trials of another comparison"));
  const auto held = kept_in(folder, schemes);
  REQUIRE(held);
  const auto second = kept_in(folder, schemes);
  REQUIRE_FALSE(second);
  CHECK_THAT(second.error().message, says("another troupe is at work in "));
}

TEST_CASE("trials that are not asked for are told", "[apps]") {
  const Folder folder;
  const Schemes schemes = small_schemes();
  {
    auto kept = kept_in(folder, schemes);
    REQUIRE(kept);
    REQUIRE(kept->keep(schemes.schemes[1], finished_trial(1)));
    REQUIRE(kept->keep(schemes.schemes[1], finished_trial(2)));
  }
  const auto fewer = kept_in(folder, schemes, "me", "virtual", 1);
  REQUIRE(fewer);
  REQUIRE(fewer->notes().size() == 1);
  CHECK_THAT(fewer->notes().front(), says("1 trial in "));
  CHECK_THAT(fewer->notes().front(), says("belongs to other schemes or seeds"));
}

TEST_CASE("a trial says where it stands", "[apps]") {
  const Schemes schemes = small_schemes();
  std::vector<TrialStanding> standings;
  TrialOptions options{
      .virtual_clock = true, .seeds = 1, .jobs = 1, .interrupted = {}, .on_finish = {}};
  options.standing_every = std::chrono::milliseconds(0);
  options.on_way = [&](const Trial& trial, const TrialStanding& standing) {
    if (trial.scheme == 1) {
      standings.push_back(standing);
    }
  };
  const auto trials = run_trials(schemes.schemes, options);
  REQUIRE(standings.size() >= 20);
  CHECK(standings.front().share == Approx(0.05));
  CHECK(standings.back().share == Approx(1));
  CHECK(std::is_sorted(standings.begin(), standings.end(), [](const auto& a, const auto& b) {
    return a.share < b.share;
  }));
  CHECK(standings.back().loss < standings.front().loss);
  CHECK(trials[1].outcome == troupe::Outcome::finished);
}

TEST_CASE("the progress of trials is a line that says which, how far, and how long", "[apps]") {
  Comparison c;
  c.schemes = small_schemes();
  c.seeds = 3;
  std::ostringstream out;
  {
    StatusLine line(out, false, std::chrono::milliseconds(0));
    TrialsProgress progress(line, c, 1);
    CHECK(progress.standing_text(10).empty());
    progress.on_way({.scheme = 1, .seed = 1}, {.share = 0.5, .epochs = 1.5, .loss = 0.25});
    CHECK(progress.standing_text(10) ==
          "[1/6] learning_rate=0.02 seed 1: epoch 1.50, 50 % done, loss 0.2500; eta 01:30");
    progress.on_way({.scheme = 0, .seed = 2}, {.share = 0.5, .epochs = 1.5, .loss = kNothing});
    CHECK(progress.standing_text(10) ==
          "[1/6] learning_rate=0.02 seed 1: epoch 1.50, 50 % done, loss 0.2500; 1 more beside it; "
          "eta 00:40");
    progress.on_finish({.scheme = 1, .seed = 1, .outcome = troupe::Outcome::finished});
    CHECK_THAT(progress.standing_text(10), Catch::StartsWith("[2/6] learning_rate=0.01 seed 2: "));
  }
  CHECK_THAT(out.str(), says("[1/6] learning_rate=0.02 seed 1: epoch 1.50, 50 % done"));
  CHECK_THAT(out.str(), says("[2/6] learning_rate=0.02 seed 1: 0 updates"));
}

TEST_CASE("a status line is rewritten on a terminal and comes seldom elsewhere", "[apps]") {
  std::ostringstream terminal;
  {
    StatusLine line(terminal, true);
    CHECK(line.due());
    line.show("one");
    CHECK_FALSE(line.due());
    line.note("stays");
    line.show(std::string(1000, 'x'));
  }
  CHECK_THAT(terminal.str(), Catch::StartsWith("\rone\033[K\r\033[Kstays\n\rxxx"));
  CHECK(terminal.str().size() < 1000);
  CHECK_THAT(terminal.str(), Catch::EndsWith("\r\033[K"));
  std::ostringstream file;
  StatusLine line(file, false);
  CHECK_FALSE(line.due());  // what takes less than half a minute is not told
  CHECK(eta_text(0.25, 30) == "eta 01:30");
  CHECK(eta_text(0, 30).empty());
}

}  // namespace sweep_test
