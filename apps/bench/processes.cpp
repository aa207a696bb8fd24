#include "apps/run/processes.hpp"

#include "apps/bench/benches.hpp"
#include "apps/bench/watch.hpp"
#include "apps/bench/workload.hpp"
#include "apps/run/run.hpp"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <vector>

namespace troupe {
namespace {

/// Updates after which the pipeline is full and both processes have loaded what they need.
constexpr std::int64_t kFilled = 10;

/// Letters for the GPT, in a file that is there as long as this: each process reads it.
class Letters {
 public:
  Letters() {
    std::uint32_t letter = 1;
    std::ofstream file(path_);
    for (int i = 0; i < 100'000; ++i) {
      letter = letter * 1'664'525 + 1'013'904'223;
      file << static_cast<char>('a' + (letter >> 24) % 26);
    }
    TROUPE_CHECK(file.good(), "cannot write ", path_.string());
  }

  ~Letters() {
    std::error_code gone;
    std::filesystem::remove(path_, gone);
  }

  Letters(const Letters&) = delete;
  Letters& operator=(const Letters&) = delete;

  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_ =
      std::filesystem::temp_directory_path() / concat("troupe-bench-", ::getpid(), ".txt");
};

struct Task {
  const char* what;
  std::string text;  // of its model and data
};

/// Seconds of an update in the middle of a run of so many.
Result<double> seconds_of_an_update(const Task& task, int processes, std::int64_t updates) {
  const Blueprint b = bench_blueprint(
      concat(task.text,
             " optimizer { rule: momentum learning_rate: 0.001 } pipeline { stages: 2 schedule { "
             "async_one_f_one_b {} } weights { stash {} } } stop { updates: ",
             kFilled + updates + 5,
             " } record { evaluate: false order: false gap_every: 0 checkpoint { seconds: 0 } }"));
  Watch watch;
  RunOptions options;
  options.tee = &watch;
  Players players;
  players.processes = processes;
  const auto result = processes == 1 ? run_experiment(b, options)
                                     : run_in_processes(b, std::move(players), options, nullptr);
  TROUPE_TRY(result);
  if (result->exit_code != 0) {
    return Error{static_cast<ErrorKind>(result->exit_code), result->cause};
  }
  return watch.per_batch(kFilled, kFilled + updates);
}

Result<Row> against_threads(const Task& task, double seconds) {
  const auto once = seconds_of_an_update(task, 1, 20);
  TROUPE_TRY(once);
  const std::int64_t updates = as_many_as_fit(seconds / 4, *once, 20);
  Rounds rounds;
  for (int round = 0; round < turns(seconds, 9); ++round) {
    const auto threads = seconds_of_an_update(task, 1, updates);
    const auto processes = seconds_of_an_update(task, 2, updates);
    if (!threads || !processes) {
      return (threads ? processes : threads).error();
    }
    rounds.add(*processes, *threads / *processes);
  }
  return Row{concat("two processes, ", task.what),
             number("%.2f ms an update", 1e3 * rounds.rate()),
             "two threads of one process",
             rounds.ratio_and_range("%.1f %%", " (%.0f", " to %.0f)", 100),
             ">= 95 %"};
}

}  // namespace

Result<Rows> two_processes(double seconds) {
  const Letters letters;
  const Task tasks[] = {
      {"MLP",
       "model { mlp { hidden: [512, 512, 512, 512, 512, 512] } } data { batch_size: 128 glyphs { "
       "limit: 2048 test_limit: 10 } }"},
      {"GPT",
       concat("model { gpt { layers: 4 width: 128 heads: 4 } } data { batch_size: 16 text { "
              "context: 64 path: '",
              letters.path(),
              "' } }")}};
  Rows rows;
  for (const Task& task : tasks) {
    auto row = against_threads(task, seconds);
    TROUPE_TRY(row);
    rows.push_back(*std::move(row));
  }
  return rows;
}

}  // namespace troupe
