// Checkpoints with right sums whose numbers are not what a run has written: each number of what the machines keep in turn.
// Every run that goes on from one ends, by itself and with a sentence: as it should, or refused (3), or lost (5), or diverged.
//
// TROUPE_STATES=stride: every stride-th byte begins a number; 1: all, each with every value. TROUPE_SCHEME=name: of one alone.
#include "apps/run/run.hpp"
#include "apps/topologies/topology.hpp"
#include "experiment.pb.h"
#include "messages/experiment.hpp"
#include "runtime/checkpoint/store.hpp"
#include "tests/support/catch.hpp"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <limits>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace states_test {

using namespace troupe;

namespace {

constexpr unsigned kSecondsMax = 10;
constexpr rlim_t kMemoryMax = rlim_t{4} << 30;
constexpr int kDay = 97;  // stride of every day

const char* const kTask =
    "model { mlp { hidden: 3 hidden: 3 } } stop { updates: 6 }"
    "data { teacher { inputs: 2 outputs: 2 hidden: 2 train: 32 test: 4 } batch_size: 4 }"
    "record { checkpoint { every: 3 } evaluate_every: 2 }";

struct Scheme {
  const char* name;
  const char* text;
};

constexpr Scheme kSchemes[] = {
    {"1f1b", "pipeline { stages: 2 micro_batches: 2 schedule { one_f_one_b {} } }"},
    {"stash", "pipeline { stages: 2 schedule { async_one_f_one_b {} } weights { stash {} } }"},
    {"spectrain",
     "pipeline { stages: 2 schedule { async_one_f_one_b {} } weights { spectrain {} } }"},
    {"downpour", "replicas { count: 2 } pipeline { stages: 2 }"},
    {"softsync", "replicas { count: 3 rule { softsync {} } }"},
    {"synchronous", "replicas { count: 2 exchange { synchronous {} } }"},
    {"ring", "replicas { count: 2 exchange { synchronous { reduction: ring } } }"},
    {"diloco", "replicas { count: 2 exchange { diloco { period: 2 } } }"},
    {"gossip", "replicas { count: 2 exchange { gossip {} } }"},
    {"sgp", "replicas { count: 3 exchange { sgp { overlap: 1 } } }"},
    {"ad_psgd", "replicas { count: 4 exchange { ad_psgd {} } }"},
    {"strom", "replicas { count: 3 exchange { strom {} } codec { up { one_bit {} } } }"},
    {"choco", "replicas { count: 3 exchange { gossip {} } codec { up { one_bit {} } } }"},
    {"top_k", "replicas { count: 2 codec { up { top_k {} } } }"},
    {"copies", "replicas { count: 2 copies: 2 }"},
    {"synthetic", "pipeline { stages: 2 } decoupled { synthetic {} }"},
};

Result<Blueprint> blueprint_of(const Scheme& scheme) {
  auto experiment = parse_experiment(std::string(kTask) + scheme.text, scheme.name);
  if (!experiment) {
    return experiment.error();
  }
  if (auto resolved = resolve(*experiment); !resolved) {
    return resolved.error();
  }
  return make_blueprint(*experiment);
}

Checkpoint checkpoint_of(const Blueprint& blueprint) {
  std::vector<Checkpoint> kept;
  RunOptions options;
  options.virtual_clock = true;
  options.kept = &kept;
  const auto result = run_experiment(blueprint, options);
  if (!result || kept.empty()) {
    throw std::runtime_error(result ? "no checkpoint was made" : result.error().message);
  }
  return kept.front();
}

/// In a process of its own: the exit code that the program would have.
int go_on_from(const Blueprint& blueprint, const Checkpoint& checkpoint) {
  const rlimit memory{kMemoryMax, kMemoryMax};
  ::setrlimit(RLIMIT_AS, &memory);
  ::alarm(kSecondsMax);
  RunOptions options;
  options.virtual_clock = true;
  options.resume = &checkpoint;
  try {
    const auto result = run_experiment(blueprint, options);
    if (!result) {
      return result.error().message.empty() ? 99 : static_cast<int>(result.error().kind);
    }
    return result->exit_code != 0 && result->cause.empty() ? 99 : result->exit_code;
  } catch (const std::exception& error) {
    return std::string(error.what()).empty() ? 99 : static_cast<int>(ErrorKind::lost);
  }
}

/// "", or how it has ended that should have ended otherwise.
std::string trouble(const Blueprint& blueprint, const Checkpoint& checkpoint, int& code) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::_exit(go_on_from(blueprint, checkpoint));
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  if (WIFSIGNALED(status)) {
    return WTERMSIG(status) == SIGALRM ? "does not end"
                                       : "ends by signal " + std::to_string(WTERMSIG(status));
  }
  code = WEXITSTATUS(status);
  const bool sound = code == 0 || code == static_cast<int>(ErrorKind::data) ||
                     code == static_cast<int>(ErrorKind::lost) ||
                     code == static_cast<int>(ErrorKind::diverged);
  return sound ? "" : "ends with exit code " + std::to_string(code);
}

/// What a number may be that it should not be: whole ones of four and of eight bytes, and real ones.
std::vector<std::string> numbers() {
  std::vector<std::string> all;
  const auto add = [&all](auto x) {
    all.emplace_back(reinterpret_cast<const char*>(&x), sizeof x);
  };
  add(std::int32_t{-1});
  add(std::int32_t{7});
  add(std::int32_t{0x7fffffff});
  add(std::int64_t{-1});
  add(std::int64_t{7});
  add(std::int64_t{1'000'000'000'000});
  add(std::int64_t{1} << 62);
  add(1e300);
  add(-1.0);
  add(std::numeric_limits<double>::quiet_NaN());
  add(std::numeric_limits<double>::infinity());
  add(std::uint8_t{2});
  return all;
}

int try_scheme(const Scheme& scheme, std::size_t stride) {
  const auto blueprint = blueprint_of(scheme);
  if (!blueprint) {
    std::cerr << scheme.name << ": " << blueprint.error().message << '\n';
    return 1;
  }
  const Checkpoint sound = checkpoint_of(*blueprint);
  int code = 0;
  if (const std::string why = trouble(*blueprint, sound, code); !why.empty() || code != 0) {
    std::cerr << scheme.name << ": a sound checkpoint " << why << '\n';
    return 1;
  }
  int failed = 0;
  std::map<int, int> codes;
  std::size_t turn = 0;
  const std::vector<std::string> values = numbers();
  for (std::size_t at = 0; at < sound.run.bytes.size(); at += stride) {
    for (std::size_t v = 0; v < values.size(); ++v) {
      if (stride > 1 && v != turn % values.size()) {
        continue;
      }
      Checkpoint other = sound;
      const std::size_t size = std::min(values[v].size(), other.run.bytes.size() - at);
      other.run.bytes.replace(at, size, values[v], 0, size);
      if (const std::string why = trouble(*blueprint, other, code); !why.empty()) {
        std::cerr << scheme.name << ": with value " << v << " at byte " << at << " of "
                  << sound.run.bytes.size() << " the run " << why << '\n';
        ++failed;
      } else {
        ++codes[code];
      }
    }
    ++turn;
  }
  std::cout << scheme.name << ": " << sound.run.bytes.size() << " bytes;";
  for (const auto& [exit_code, count] : codes) {
    std::cout << " exit code " << exit_code << ": " << count << ';';
  }
  std::cout << " failed: " << failed << std::endl;
  return failed;
}

}  // namespace

TEST_CASE("a checkpoint that no run has written is refused, or the run that goes on from it ends") {
  const char* const asked = std::getenv("TROUPE_STATES");
  const char* const named = std::getenv("TROUPE_SCHEME");
  for (const Scheme& scheme : kSchemes) {
    if (!named || std::string(named) == scheme.name) {
      CHECK(try_scheme(scheme, asked ? std::stoul(asked) : kDay) == 0);
    }
  }
}

}  // namespace states_test
