// Interrupts at random moments of runs whose threads are mostly inside oneDNN's kernels. A few by default; for N of each
// verb set TROUPE_INTERRUPTIONS=N.
#include "apps/cli/interrupts.hpp"

#include "runtime/record/json.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/program.hpp"
#include "tests/support/skip.hpp"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <thread>

namespace interrupts_test {

using namespace troupe;
using namespace troupe::test;

namespace {

int interruptions() {
  const char* wanted = std::getenv("TROUPE_INTERRUPTIONS");
  return wanted ? std::atoi(wanted) : 3;
}

void wait_for_first_steps(const Program& program) {
  for (int i = 0; i < 2000 && program.err().find("step ") == std::string::npos; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

/// `command` of the shell, as a user whom limits bind, which they do not root.
Said as_a_user(const std::string& command) {
  if (geteuid() != 0) {
    return Program({"-c", command}, "", "/bin/sh").wait();
  }
  return Program({"--reuid", "65534", "--clear-groups", "/bin/sh", "-c", command},
                 "",
                 "/usr/bin/setpriv")
      .wait();
}

}  // namespace

TEST_CASE("without room for a single thread a run says which limits there are", "[apps]") {
  // The leak checker of asan makes a thread, too.
  const std::string troupe = "ASAN_OPTIONS=$ASAN_OPTIONS:detect_leaks=0 exec " + program_path();
  const std::string alone = "prlimit --nproc=1 --pid $$ && ";  // not every shell's ulimit knows -u
  if (!std::filesystem::exists("/usr/bin/setpriv") || as_a_user(troupe + " --version").code != 0) {
    return skip("no user but root may run the program");
  }
  for (const char* verb : {"run", "sim"}) {
    const Said said = as_a_user(concat(alone, troupe, " ", verb, " quadratic --quiet"));
    CHECK(said.code == 5);
    CHECK(said.out.empty());
    CHECK_THAT(said.err, says("troupe: the thread that waits for Ctrl-C could not be made: "));
    CHECK_THAT(said.err, says("(`ulimit -u`, or a container's limit, says how many there may be;"));
  }
}

TEST_CASE("an interrupt at any moment ends a run in order, with its weights", "[apps]") {
  constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP};
  std::signal(SIGHUP, SIG_DFL);  // it may be ignored here, and would be there
  std::mt19937 random(1);
  std::uniform_int_distribution<int> delay(0, 50'000);  // us
  for (const std::string verb : {"sim", "run"}) {
    for (int i = 0; i < interruptions(); ++i) {
      const int signal = kSignals[i % 3];
      INFO(verb << ", interruption " << i << ", signal " << signal);
      const Folder folder;
      const std::string run = folder / "run";
      Program program({verb, "glyphs-mlp", "--out", run, "--set", "stop.epochs=1000000"});
      wait_for_first_steps(program);
      std::this_thread::sleep_for(std::chrono::microseconds(delay(random)));
      program.signal(signal);
      const Said said = program.wait();
      CHECK(said.code == 130);
      CHECK_THAT(said.err, says("interrupted"));
      CHECK_THAT(contents(run + "/summary.json"), says(R"("outcome": "interrupted")"));
      CHECK(std::filesystem::exists(run + "/weights.safetensors"));
    }
  }
}

TEST_CASE("an interrupted run says how it goes on where its files are kept", "[apps]") {
  for (const std::string verb : {"sim", "run"}) {
    const Folder folder;
    const std::string out = folder / "run";
    const auto interrupted = [&](const Words& words) {
      Program program(words);
      wait_for_first_steps(program);
      program.signal(SIGINT);
      const Said said = program.wait();
      INFO(verb << ": " << said.err);
      CHECK(said.code == 130);
      return said.err;
    };
    const Words begun{verb, "teacher-mlp", "--set", "stop.epochs=1000000", "--out"};
    const std::string line = concat("goes on by `troupe ", verb, " --resume ", out, "`\n");
    CHECK_THAT(interrupted(with(begun, {out})), says(line));
    CHECK(has_checkpoint(out));
    CHECK_THAT(interrupted({verb, "--resume", out}), says("going on from") && says(line));
    CHECK_THAT(interrupted(with(begun, {"none"})), !says("goes on by"));
  }
}

// Memory is wrong after a signal only where it came at a bad moment, which a test can miss; who takes it can be seen every
// time.
TEST_CASE("an interrupt ends a run whose first update is far away, because nobody waits for it",
          "[apps]") {
  for (const std::string verb : {"sim", "run"}) {
    for (const char* preset : {"halos", "decoupled-diloco"}) {
      INFO(verb << " " << preset);
      const Folder folder;
      const std::string run = folder / "run";
      Words words{verb, preset, "--quiet", "--out", run};
      for (const char* set : {"data=glyphs",
                              "data.batch_size=4",
                              "stop.epochs=0",
                              "stop.updates=1000000",
                              "clock.modelled=true",
                              "clock.forward.seconds=[1e-3]",
                              "clock.bandwidth=1e9"}) {
        words.insert(words.end(), {"--set", set});
      }
      const bool halos = std::string(preset) == "halos";
      words.insert(
          words.end(),
          {"--set",
           halos ? "clock.between_servers.seconds=[1e6]" : "clock.exchange.seconds=[1e6]"});
      Program program(words);
      wait_until([&] { return std::filesystem::exists(run + "/experiment.textproto"); });
      std::this_thread::sleep_for(std::chrono::milliseconds{700});
      program.signal(SIGTERM);
      const Said said = program.wait();
      INFO(said.out << said.err);
      CHECK(said.code == 130);
      CHECK(std::filesystem::exists(run + "/weights.safetensors"));
      // On the real clock none can be made while messages are under way that come in days; nothing may be so far.
      const bool told = said.err.find("come in more than a minute") != std::string::npos;
      CHECK((std::filesystem::exists(run + "/checkpoints") || (verb == "run" && told)));
      CHECK_THAT(contents(run + "/summary.json"), says("\"outcome\": \"interrupted\""));
    }
  }
}

TEST_CASE("after a second interrupt a program that is busy with something else ends, too",
          "[apps]") {
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    try {
      const Interrupts interrupts;
      kill(getpid(), SIGTERM);
      // A second one that comes before the first is taken is none.
      while (Interrupts::count() == 0) {
        usleep(1000);
      }
      kill(getpid(), SIGTERM);
      for (;;) {
        pause();
      }
    } catch (...) {
      _exit(1);
    }
  }
  int status = 0;
  pid_t ended = 0;
  for (int i = 0; i < 6000 && ended == 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    ended = waitpid(child, &status, WNOHANG);
  }
  if (ended == 0) {
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
  }
  CHECK(ended == child);
  CHECK(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == SIGTERM);
}

TEST_CASE("threads that work while interrupts are counted never take one", "[apps]") {
  const auto blocked = [](int signal) {
    sigset_t mask;
    pthread_sigmask(SIG_SETMASK, nullptr, &mask);
    return sigismember(&mask, signal) == 1;
  };
  std::signal(SIGHUP, SIG_DFL);  // one that is ignored stays so
  REQUIRE_FALSE(blocked(SIGINT));
  {
    const Interrupts interrupts;
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
      INFO(signal);
      CHECK(blocked(signal));
      bool blocked_there = false;
      std::thread([&] { blocked_there = blocked(signal); }).join();
      CHECK(blocked_there);
    }
    CHECK(Interrupts::count() == 0);
    kill(getpid(), SIGTERM);
    for (int i = 0; i < 2000 && Interrupts::count() == 0; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    CHECK(Interrupts::count() == 1);
  }
  {
    const Interrupts next;  // of another run of the same program, which has not been interrupted
    CHECK(Interrupts::count() == 0);
  }
  CHECK_FALSE(blocked(SIGINT));
}

}  // namespace interrupts_test
