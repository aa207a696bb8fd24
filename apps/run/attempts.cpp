// A run in several processes, from its beginning to its end, which may take several attempts. If an attempt loses a process
// without which the run cannot go on, the next attempt begins: the same run in the same folder, with other processes,
// from its newest checkpoint.
#include "apps/cli/status_line.hpp"
#include "apps/cli/version.hpp"
#include "apps/run/processes.hpp"
#include "apps/run/run_files.hpp"
#include "apps/topologies/exchange.hpp"
#include "apps/topologies/hosts.hpp"
#include "apps/topologies/placement.hpp"
#include "apps/topologies/placement_names.hpp"
#include "apps/topologies/run_bounds.hpp"
#include "apps/topologies/topology.hpp"
#include "experiment.pb.h"
#include "kernels/wording.hpp"
#include "messages/experiment.hpp"
#include "runtime/cluster/meeting.hpp"
#include "runtime/schemes/exchanges/all_reduce.hpp"

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

constexpr int kReturnsMax = 3;  // unless --back says another number
// Pauses between two tries to begin again.
constexpr std::chrono::milliseconds kTryAgainMin{200};
constexpr std::chrono::milliseconds kTryAgainMax{10'000};
constexpr std::chrono::milliseconds kLookAtUser{50};  // between two looks for an interrupt
// How long a restart waits for a process: at least, and in terms of the first start.
constexpr std::chrono::milliseconds kJoinMin{10'000};
constexpr int kTimesFirstStart = 3;

/// Why a lost process cannot be replaced while the run goes on; "": it can.
std::string why_no_return_of(const Blueprint& blueprint, const Placement& placement) {
  if (const std::string why = stays_dead(blueprint.experiment); !why.empty()) {
    return "a replica cannot come back " + why;
  }
  return placement.whole_replicas
             ? ""
             : "a replica cannot come back if several processes run parts of it, or if a server is "
               "not in process 0; place whole replicas in each process";
}

std::string as_sentence(const std::string& words) {
  return words.ends_with('.') ? words : words + '.';
}

void tell_user(const std::string& line) {
  std::cerr << "troupe: " + line + "\n";
}

/// One attempt: from the start of the processes to the end of the run, or to the loss of a process.
struct Attempt {
  Result<RunResult> result;  // Error: it could not begin
  int missing = 0;           // ... because of this process; 0: for another reason
  bool lost = false;         // a process was lost
  bool restart = false;      // ... which ended the attempt: the next one is to begin
};

class Attempts {
 public:
  Attempts(const Blueprint& blueprint,
           Players players,
           const RunOptions& options,
           std::ostream* notes)
      : blueprint_(blueprint), players_(std::move(players)), options_(options), notes_(notes) {}

  Result<RunResult> play();

 private:
  Result<void> place_machines();
  Attempt try_once();
  Lead::Limits limits() const;
  Result<void> find_restart_point(const RunResult& lost);
  Attempt begin_again();
  Result<void> go_without(int process);
  RunResult given_up(RunResult lost, const Error& why) const;
  std::string advice() const;

  int asked_to_stop() const { return options_.interrupts ? options_.interrupts() : 0; }

  bool restarted() const { return !restarts_.empty(); }

  int restarts_left() const { return players_.restarts - static_cast<int>(restarts_.size()); }

  Blueprint blueprint_;
  Players players_;
  const RunOptions options_;  // of the first attempt
  std::ostream* notes_;
  Clock::duration first_start_{};  // how long it took to start the processes of the first attempt
  Placement placement_;
  std::string why_no_return_;
  std::shared_ptr<Meeting> meeting_;  // where processes come by themselves, in each attempt
  std::vector<Summary::Restart> restarts_;
  std::optional<FoundCheckpoint> newest_;  // where this attempt begins; empty: as the first one
};

Result<void> Attempts::place_machines() {
  auto placement = place(blueprint_, players_.processes);
  TROUPE_TRY(placement);
  if (players_.hosts.empty() && !players_.ranks) {  // others may call different GPUs the same
    TROUPE_TRY(check_sums_of_one_machine(blueprint_));
  }
  if (players_.credentials && sums_in_group(blueprint_.experiment)) {
    tell_user(
        "the gradients that NCCL sums up go by connections of its own, which --keys does not "
        "encrypt; use them on a network that you trust");
  }
  placement_ = *std::move(placement);
  why_no_return_ = why_no_return_of(blueprint_, placement_);
  if (notes_) {
    *notes_ << players_.processes << " processes: " << placement_.words << '\n';
    for (std::size_t i = 0; i < players_.hosts.size(); ++i) {
      *notes_ << "process " << i + 1 << " is on " << players_.hosts[i].text() << '\n';
    }
    notes_->flush();
  }
  return {};
}

/// A restart does not wait as long for a process as the first attempt does, in case it is frozen: the first start has shown
/// how long a process needs. How long one needs that comes by itself is not known.
Lead::Limits Attempts::limits() const {
  Lead::Limits limits;
  if (restarted() && !meeting_) {
    const auto needed = players_.restart_wait + kTimesFirstStart * first_start_;
    const auto enough = std::chrono::ceil<std::chrono::milliseconds>(needed);
    limits.join = std::min(limits.join, std::max(kJoinMin, enough));
  }
  return limits;
}

Attempt Attempts::try_once() {
  RunOptions options = options_;
  options.restarts = restarts_;
  if (newest_) {
    options.resume = &newest_->checkpoint;
    options.new_folder = false;
  } else if (restarted() && !options.resume) {
    options.directory_is_made = true;  // its files are written anew
  }
  if (players_.processes == 1) {
    return {.result = run_experiment(blueprint_, options)};
  }
  proto::Experiment experiment = blueprint_.experiment;
  if (options.resume) {
    experiment.clear_start_from();  // the weights are in the checkpoint
    experiment.clear_start_from_skip();
  }
  blueprint_.groups = name_groups(blueprint_, placement_.process_of);  // each attempt has its own
  std::optional<WaitingLine> line;
  if (options_.progress) {
    line.emplace(*options_.progress, options_.terminal);
  }
  Lead lead({.processes = players_.processes,
             .process_of = placement_.process_of,
             .version = version(),
             .cast = placement_.digest,
             .alike = placement_.alike,
             .partners = placement_.partners,
             .experiment = print_experiment(experiment),
             .resumes = options.resume != nullptr,
             .may_restart = restarts_left() > 0,
             .is_restart = restarted(),
             .groups = blueprint_.groups,
             .bounds = run_bounds(blueprint_, placement_.process_of.size()),
             .program = players_.program,
             .hosts = players_.hosts,
             .transport = players_.transport,
             .credentials = players_.credentials,
             .meeting = meeting_,
             .returns_max = players_.back.value_or(kReturnsMax),
             .why_no_return = why_no_return_,
             .tell_user = tell_user,
             .tell_waiting =
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
    return {.result = started.error(), .missing = lead.missing_process()};
  }
  first_start_ = restarted() ? first_start_ : Clock::now() - begin;
  auto result = run_experiment(blueprint_, options, lead);
  return {.result = std::move(result), .lost = lead.has_lost(), .restart = lead.restarts()};
}

/// The next attempt goes on from the newest whole checkpoint, or begins at the beginning if there is none. Error (data) if
/// there are checkpoints and none is whole: beginning anew would overwrite them.
Result<void> Attempts::find_restart_point(const RunResult& lost) {
  std::int64_t updates = options_.resume ? options_.resume->step : 0;
  if (options_.directory && !checkpoints_of(*options_.directory).empty()) {
    auto found = find_checkpoint(*options_.directory);
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

/// Tries to begin the next attempt until all processes take part. A host that does not come back in time is left out.
Attempt Attempts::begin_again() {
  const auto until = Clock::now() + players_.restart_wait;
  auto pause = kTryAgainMin;
  std::string told;
  for (int tries = 1;; ++tries) {
    Attempt attempt = try_once();
    if (attempt.result || attempt.missing == 0 || asked_to_stop() > 0) {
      return attempt;
    }
    if (meeting_) {  // processes that were turned away come again at once
      meeting_->begin_again();
    }
    if (std::exchange(told, attempt.result.error().message) != attempt.result.error().message) {
      tell_user("the run cannot begin again yet: " + told);
    }
    if ((meeting_ || tries > 1) && Clock::now() >= until) {
      if (players_.hosts.empty()) {
        return attempt;
      }
      const auto gone = go_without(attempt.missing);
      if (!gone) {
        attempt.result = gone.error();
        return attempt;
      }
      continue;
    }
    for (const auto next = Clock::now() + pause; Clock::now() < next && asked_to_stop() == 0;) {
      std::this_thread::sleep_for(kLookAtUser);
    }
    pause = std::min(2 * pause, kTryAgainMax);
  }
}

/// Leaves out process `process`, which was on a host: the other processes take its machines. Error where they cannot.
Result<void> Attempts::go_without(int process) {
  const std::chrono::duration<double> waited = players_.restart_wait;
  const std::string who =
      concat("process ", process, " has not come back within ", waited.count(), " s");
  const auto host = players_.hosts.begin() + (process - 1);
  TROUPE_TRY(leave_out(*blueprint_.experiment, process));
  tell_user(concat(who, "; the run goes on without ", host->text()));
  players_.hosts.erase(host);
  --players_.processes;
  return players_.processes > 1 ? place_machines() : Result<void>();
}

/// The result of a run that could not begin again: that of the lost attempt, with the reason `why`.
RunResult Attempts::given_up(RunResult lost, const Error& why) const {
  if (asked_to_stop() > 0) {
    lost.exit_code = 130;
    lost.cause = "interrupted before the run had begun again";
  } else {
    lost.cause = as_sentence(lost.cause) + " It cannot begin again: " + why.message;
  }
  if (options_.directory) {
    if (auto written = write_summary(*options_.directory, lost, blueprint_); !written) {
      lost.cause += "; " + written.error().message;
    }
  }
  return lost;
}

/// What the user can do after a run was lost with a process.
std::string Attempts::advice() const {
  if (restarted()) {
    return fill_in(" It was begun again {}{} (--restarts).",
                   restarts_.size(),
                   restarts_.size() == 1 ? " time" : " times");
  }
  const bool kept = options_.directory && !checkpoints_of(*options_.directory).empty();
  return concat(
      kept ? concat(" `troupe run --resume ", options_.directory->string(), "` goes on with it.")
           : "",
      " With --restarts N a run begins again by itself.");
}

Result<RunResult> Attempts::play() {
  TROUPE_TRY(place_machines());
  if (players_.back.value_or(0) > 0 && !why_no_return_.empty()) {
    return Error{ErrorKind::usage, "--back: " + why_no_return_};
  }
  if (players_.ranks) {
    auto opened =
        Meeting::open(players_.ranks->lead, players_.processes, players_.credentials, tell_user);
    TROUPE_TRY(opened);
    meeting_ = *std::move(opened);
  }
  Attempt attempt = try_once();
  while (attempt.result && attempt.restart) {
    RunResult lost = *std::move(attempt.result);
    lost.weights.clear();  // checkpoints have them; here they only take memory
    lost.buffers.clear();
    if (auto ready = find_restart_point(lost); !ready) {
      return given_up(std::move(lost), ready.error());
    }
    attempt = begin_again();
    if (!attempt.result) {
      return given_up(std::move(lost), attempt.result.error());
    }
  }
  if (attempt.result && attempt.result->exit_code == static_cast<int>(ErrorKind::lost)) {
    if (attempt.lost) {
      attempt.result->cause = as_sentence(attempt.result->cause) + advice();
    }
  }
  return std::move(attempt.result);
}

}  // namespace

Result<RunResult> run_in_processes(const Blueprint& blueprint,
                                   Players players,
                                   const RunOptions& options,
                                   std::ostream* notes) {
  return Attempts(blueprint, std::move(players), options, notes).play();
}

}  // namespace troupe
