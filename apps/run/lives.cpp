// A run in several processes, from its beginning to its end. Where it has lost a process without which it cannot go
// on, it begins once more: the same run in the same folder, with other processes, from its newest checkpoint.
#include "apps/cli/status_line.hpp"
#include "apps/cli/version.hpp"
#include "apps/run/processes.hpp"
#include "apps/run/run_files.hpp"
#include "apps/topologies/hosts.hpp"
#include "apps/topologies/placement.hpp"
#include "apps/topologies/placement_names.hpp"
#include "apps/topologies/run_bounds.hpp"
#include "apps/topologies/topology.hpp"
#include "experiment.pb.h"
#include "messages/experiment.hpp"
#include "runtime/cluster/meeting.hpp"

#include <algorithm>
#include <chrono>
#include <iostream>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace troupe {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kBack = 3;
// Between two tries to begin again, as between those to bring one process back.
constexpr std::chrono::milliseconds kTryAgainMin{200};
constexpr std::chrono::milliseconds kTryAgainMax{10'000};
constexpr std::chrono::milliseconds kLookAtUser{50};
constexpr std::chrono::milliseconds kJoinMin{10'000};
constexpr int kTimesFirstStart = 3;

/// Why nobody can take the place of a process that was lost, or "".
std::string stays_away(const Blueprint& blueprint, const Placement& placement) {
  if (const std::string why = stays_dead(blueprint.experiment); !why.empty()) {
    return "a replica cannot come back " + why;
  }
  return placement.whole_replicas
             ? ""
             : "a replica cannot come back where several processes play it, or a server plays "
               "elsewhere than in process 0; with whole replicas in each process it can";
}

std::string as_sentence(const std::string& words) {
  return words.ends_with('.') ? words : words + '.';
}

void tell_user(const std::string& line) {
  std::cerr << "troupe: " + line + "\n";
}

/// From the start of its processes to the end of the run, or to the loss of one of them.
struct Life {
  Result<RunResult> result;  // Error: it has not begun
  int missing = 0;           // ... for want of this process; 0: for another reason
  bool lost = false;         // a process
  bool again = false;        // it ended of that, and the run is to begin again
};

class Lives {
 public:
  Lives(const Blueprint& blueprint, Players players, const RunOptions& options, std::ostream* notes)
      : blueprint_(blueprint), players_(std::move(players)), first_(options), notes_(notes) {}

  Result<RunResult> play();

 private:
  Result<void> take_places();
  Life live();
  Lead::Limits limits() const;
  Result<void> rewind(const RunResult& lost);
  Life begin_again();
  Result<void> go_without(int process);
  RunResult given_up(RunResult lost, const Error& why) const;
  std::string advice() const;

  int asked_to_stop() const { return first_.interrupts ? first_.interrupts() : 0; }

  bool restarted() const { return !restarts_.empty(); }

  int restarts_left() const { return players_.restarts - static_cast<int>(restarts_.size()); }

  Blueprint blueprint_;
  Players players_;
  const RunOptions first_;  // of the first life
  std::ostream* notes_;
  Clock::duration first_start_{};  // how long that of the first life took
  Placement placement_;
  std::string stays_away_;
  std::shared_ptr<Meeting> meeting_;  // where the others come by themselves: of all lives
  std::vector<Summary::Restart> restarts_;
  std::optional<FoundCheckpoint> newest_;  // that this life goes on from; empty: as the first one
};

Result<void> Lives::take_places() {
  auto placement = place(blueprint_, players_.processes);
  TROUPE_TRY(placement);
  placement_ = *std::move(placement);
  stays_away_ = stays_away(blueprint_, placement_);
  if (notes_) {
    *notes_ << players_.processes << " processes: " << placement_.words << '\n';
    for (std::size_t i = 0; i < players_.hosts.size(); ++i) {
      *notes_ << "process " << i + 1 << " is on " << players_.hosts[i].text() << '\n';
    }
    notes_->flush();
  }
  return {};
}

/// A process that is frozen while the run begins again does not hold it up for long: how long the others need is known.
/// For one that comes by itself there is no telling.
Lead::Limits Lives::limits() const {
  Lead::Limits all;
  if (restarted() && !meeting_) {
    const auto known = players_.restart_wait + kTimesFirstStart * first_start_;
    const auto most = std::chrono::ceil<std::chrono::milliseconds>(known);
    all.join = std::min(all.join, std::max(kJoinMin, most));
  }
  return all;
}

Life Lives::live() {
  RunOptions options = first_;
  options.restarts = restarts_;
  if (newest_) {
    options.resume = &newest_->checkpoint;
    options.new_folder = false;
  } else if (restarted() && !options.resume) {
    options.directory_is_made = true;  // with files that are written anew
  }
  if (players_.processes == 1) {
    return {.result = run_experiment(blueprint_, options)};
  }
  proto::Experiment experiment = blueprint_.experiment;
  if (options.resume) {
    experiment.clear_start_from();  // the weights are in the checkpoint
    experiment.clear_start_from_skip();
  }
  std::optional<WaitingLine> line;
  if (first_.progress) {
    line.emplace(*first_.progress, first_.terminal);
  }
  Lead lead({.processes = players_.processes,
             .process_of = placement_.process_of,
             .version = version(),
             .cast = placement_.digest,
             .experiment = print_experiment(experiment),
             .resumes = options.resume != nullptr,
             .again = restarts_left() > 0,
             .was_lost = restarted(),
             .bounds = run_bounds(blueprint_, placement_.process_of.size()),
             .program = players_.program,
             .hosts = players_.hosts,
             .credentials = players_.credentials,
             .meeting = meeting_,
             .back = players_.back.value_or(kBack),
             .stays_away = stays_away_,
             .tell = tell_user,
             .waiting =
                 [&line](const std::string& whom) {
                   if (line) {
                     (*line)(whom);
                   }
                 },
             .interrupts = options.interrupts,
             .limits = limits()});
  const auto begin = Clock::now();
  const auto started = lead.start();
  line.reset();
  if (!started) {
    return {.result = started.error(), .missing = lead.missing()};
  }
  first_start_ = restarted() ? first_start_ : Clock::now() - begin;
  auto result = run_experiment(blueprint_, options, lead);
  return {.result = std::move(result), .lost = lead.has_lost(), .again = lead.begins_again()};
}

/// To the newest whole checkpoint; where there is none yet, to the beginning. Error (data) where there are some and
/// none is whole: nothing is thrown away then.
Result<void> Lives::rewind(const RunResult& lost) {
  std::int64_t updates = first_.resume ? first_.resume->step : 0;
  if (first_.directory && !checkpoints_of(*first_.directory).empty()) {
    auto found = find_checkpoint(*first_.directory);
    TROUPE_TRY(found);
    for (const std::string& why : found->passed_over) {
      tell_user("passed over: " + why);
    }
    updates = found->checkpoint.step;
    newest_ = *std::move(found);
  }
  const Summary& known = lost.summary;
  restarts_.push_back({.number = static_cast<std::int64_t>(restarts_.size()) + 1,
                       .cause = lost.cause,
                       .seconds = known.seconds,
                       .updates = updates,
                       .lost = std::max<std::int64_t>(0, known.updates - updates)});
  return {};
}

/// Tries until all are there who are needed. A host that does not come back in time is left out.
Life Lives::begin_again() {
  const auto until = Clock::now() + players_.restart_wait;
  auto pause = kTryAgainMin;
  std::string told;
  for (int tries = 1;; ++tries) {
    Life life = live();
    if (life.result || life.missing == 0 || asked_to_stop() > 0) {
      return life;
    }
    if (meeting_) {  // whom this life has hung up on comes again at once
      meeting_->begin_again();
    }
    if (std::exchange(told, life.result.error().message) != life.result.error().message) {
      tell_user("the run cannot begin again yet: " + told);
    }
    if ((meeting_ || tries > 1) && Clock::now() >= until) {
      if (players_.hosts.empty()) {
        return life;
      }
      const auto gone = go_without(life.missing);
      if (!gone) {
        life.result = gone.error();
        return life;
      }
      continue;
    }
    for (const auto next = Clock::now() + pause; Clock::now() < next && asked_to_stop() == 0;) {
      std::this_thread::sleep_for(kLookAtUser);
    }
    pause = std::min(2 * pause, kTryAgainMax);
  }
}

/// What process `process`, of a host, has played is played by the others. Error where that cannot be.
Result<void> Lives::go_without(int process) {
  const std::chrono::duration<double> waited = players_.restart_wait;
  const std::string who =
      concat("process ", process, " has not come back within ", waited.count(), " s");
  const auto host = players_.hosts.begin() + (process - 1);
  TROUPE_TRY(leave_out(blueprint_.experiment, process));
  tell_user(concat(who, "; the run goes on without ", host->text()));
  players_.hosts.erase(host);
  --players_.processes;
  return players_.processes > 1 ? take_places() : Result<void>();
}

/// How a run ends that could not begin again: as it was when it was lost.
RunResult Lives::given_up(RunResult lost, const Error& why) const {
  if (asked_to_stop() > 0) {
    lost.exit_code = 130;
    lost.cause = "interrupted before the run had begun again";
  } else {
    lost.cause = as_sentence(lost.cause) + " It cannot begin again: " + why.message;
  }
  if (first_.directory) {
    if (auto written = write_summary(*first_.directory, lost, blueprint_); !written) {
      lost.cause += "; " + written.error().message;
    }
  }
  return lost;
}

/// What is said at the end of a run that has been lost with a process.
std::string Lives::advice() const {
  if (restarted()) {
    return concat(" It was begun again ",
                  restarts_.size(),
                  restarts_.size() == 1 ? " time" : " times",
                  " (--restarts).");
  }
  const bool kept = first_.directory && !checkpoints_of(*first_.directory).empty();
  return concat(
      kept ? concat(" `troupe run --resume ", first_.directory->string(), "` goes on with it.")
           : "",
      " With --restarts N a run begins again by itself.");
}

Result<RunResult> Lives::play() {
  TROUPE_TRY(take_places());
  if (players_.back.value_or(0) > 0 && !stays_away_.empty()) {
    return Error{ErrorKind::usage, "--back: " + stays_away_};
  }
  if (players_.ranks) {
    auto opened =
        Meeting::open(players_.ranks->lead, players_.processes, players_.credentials, tell_user);
    TROUPE_TRY(opened);
    meeting_ = *std::move(opened);
  }
  Life life = live();
  while (life.result && life.again) {
    RunResult lost = *std::move(life.result);
    lost.weights.clear();  // they are in the folder, and need no memory
    lost.buffers.clear();
    if (auto ready = rewind(lost); !ready) {
      return given_up(std::move(lost), ready.error());
    }
    life = begin_again();
    if (!life.result) {
      return given_up(std::move(lost), life.result.error());
    }
  }
  if (life.result && life.result->exit_code == static_cast<int>(ErrorKind::lost)) {
    if (life.lost) {
      life.result->cause = as_sentence(life.result->cause) + advice();
    }
  }
  return std::move(life.result);
}

}  // namespace

Result<RunResult> run_in_processes(const Blueprint& blueprint,
                                   Players players,
                                   const RunOptions& options,
                                   std::ostream* notes) {
  return Lives(blueprint, std::move(players), options, notes).play();
}

}  // namespace troupe
