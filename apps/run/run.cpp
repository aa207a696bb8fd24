#include "apps/run/run.hpp"

#include "apps/plan/room.hpp"
#include "apps/run/checkpoints.hpp"
#include "apps/run/metrics_server.hpp"
#include "apps/run/real_clock.hpp"
#include "apps/run/recorder_config.hpp"
#include "apps/run/run_files.hpp"
#include "apps/run/tee.hpp"
#include "apps/run/tracing.hpp"
#include "apps/topologies/checks.hpp"
#include "apps/topologies/exchange.hpp"
#include "apps/topologies/hosts.hpp"
#include "apps/topologies/run_bounds.hpp"
#include "apps/topologies/topology.hpp"
#include "experiment/clock.pb.h"
#include "experiment/run.pb.h"
#include "kernels/sequences.hpp"
#include "messages/sections.hpp"
#include "runtime/record/recorder.hpp"
#include "runtime/record/weights_digest.hpp"
#include "runtime/serve/http.hpp"
#include "runtime/system/agenda.hpp"
#include "runtime/system/log.hpp"
#include "runtime/system/threads.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iostream>
#include <map>
#include <utility>

namespace troupe {
namespace {

/// What both clocks need besides the cast.
struct Performance {
  const Blueprint& blueprint;
  Tee& records;
  const RunFiles& files;
  Checkpointer& checkpoints;
  Archive* resume;  // null: from the beginning
  Others* others;   // null: all play here
  std::function<int()> interrupts;
  std::map<std::string, std::int64_t>* faults = nullptr;  // Summary::faults
  Mailboxes* mailboxes = nullptr;                         // null: nobody asks for them
};

/// How a run ends that has broken a law of its Witness: nothing that it has made can be believed.
Ending broken_ending(const LawBroken& broken, const Agenda& agenda) {
  return {.exit_code = static_cast<int>(ErrorKind::lost),
          .cause = broken.what(),
          .weights = {},
          .seconds = agenda.now()};
}

std::map<std::string, std::int64_t> counts_of(const Faults& faults) {
  const Faults::Counts& n = faults.counts();
  return {{"crashes", n.crashes},
          {"back", n.back},
          {"given_up", n.given_up},
          {"freezes", n.freezes},
          {"cuts", n.cuts},
          {"packets_lost", n.packets_lost},
          {"packets_doubled", n.packets_doubled}};
}

Ending run_virtual(Cast& cast, const TimeModel& times, const Performance& p) {
  OrderLog* const order = p.files.orders.empty() ? nullptr : p.files.orders.front().get();
  Agenda agenda(cast, times, p.records, order);
  std::optional<Faults> faults;
  Witness witness(p.resume != nullptr);
  if (any_faults(sections::clock(p.blueprint.experiment).faults())) {
    faults.emplace(make_faults(p.blueprint, cast));
    agenda.inject_faults(*faults, witness);
  }
  const auto take = [&] {
    p.checkpoints.take({.archive = [&](Archive& a) { agenda.archive(a); },
                        .explain =
                            [&] {
                              return agenda.standstills();
                            }});
  };
  const RunBounds bounds = run_bounds(p.blueprint, cast.members.size());
  agenda.bounds = &bounds;
  if (p.resume) {
    agenda.archive(*p.resume);
    p.resume->expect_end();
  }
  bool halted = false;
  std::uint64_t turns = 0;
  agenda.between = [&] {
    constexpr std::uint64_t kEvery = 64;  // looks at the clock on the wall are not for nothing
    if (halted) {
      return;  // what comes now is the run's end
    }
    if ((sections::record(p.blueprint.experiment).checkpoint().every() > 0 ||
         ++turns % kEvery == 0) &&
        p.checkpoints.due(p.records.completed())) {
      take();
    }
  };
  Ending ending;
  try {
    ending = agenda.run([&] {
      const int asked = p.interrupts();
      if (asked == 1 && !std::exchange(halted, true)) {
        take();
        agenda.post(agenda.now(), cast.director.id, Halt{});
      }
      return asked >= 2;
    });
  } catch (const LawBroken& broken) {
    ending = broken_ending(broken, agenda);
  }
  if (faults) {
    *p.faults = counts_of(*faults);
  }
  if (halted && ending.exit_code == 0) {
    ending.exit_code = 130;
    ending.cause = "interrupted";
  }
  return ending;
}

std::vector<OrderSink*> sinks_of(const RunFiles& files) {
  return mapped<OrderSink*>(files.orders, [&](const auto& order) { return order.get(); });
}

Ending run_real(Cast& cast, const Performance& p) {
  const RealClock clock(p.blueprint);
  ThreadOptions options = clock.options();
  options.others = p.others;
  options.mailboxes = p.mailboxes;
  options.interrupts = p.interrupts;
  const RunBounds bounds = run_bounds(p.blueprint, cast.members.size());
  options.resume = p.resume;
  options.bounds = &bounds;
  if (p.checkpoints.active()) {
    options.snapshot_due = [&] {
      return p.checkpoints.due(p.records.completed()) && !p.checkpoints.writing();
    };
    options.snapshot = [&](const StandingRun& run) {
      p.checkpoints.take(run);
    };
  }
  options.orders = sinks_of(p.files);
  return run_on_threads(cast, p.records, options);
}

/// What of a finished run is not finite, or "": the last update may have diverged unseen. (Weights of
/// the best evaluation are not those that were evaluated last.)
std::string divergence(const RunResult& result, const Blueprint& blueprint, const Ending& ending) {
  if (!ending.best && result.summary.test_loss && !std::isfinite(*result.summary.test_loss)) {
    const double loss = *result.summary.test_loss;
    return concat("the loss on the test data is ", std::isnan(loss) ? "nan" : concat(loss));
  }
  return all_finite(blueprint.chunks, result.weights) ? "" : "the final weights are not finite";
}

/// Of a run that has stalled there are weights to keep where each chunk has all of its slices.
void keep_what_is_left(RunResult& result, const Blueprint& blueprint, const RunFiles& files) {
  if (!is_whole(blueprint, result.weights, result.buffers) ||
      !all_finite(blueprint.chunks, result.weights)) {
    result.weights.clear();
  } else if (files.directory && sections::record(blueprint.experiment).weights()) {
    result.cause += " What has been learned until then, the newest weights of each chunk, is kept.";
  }
}

/// On the chosen clock. A run whose files cannot be written is not worth going on with.
Ending play(Cast& cast, const RunOptions& options, Performance p) {
  p.interrupts = [&, lost = false, next = std::chrono::steady_clock::now()]() mutable {
    lost = lost || p.files.failed();
    if (const auto now = std::chrono::steady_clock::now(); !lost && now >= next) {
      constexpr std::chrono::seconds kBetween(1);  // looks at the file system are not for nothing
      next = now + kBetween;
      lost = !p.files.in_place();
    }
    return lost ? 2 : options.interrupts ? options.interrupts() : 0;
  };
  if (options.driver) {
    return options.driver->play(
        cast, p.records, sinks_of(p.files), [&] { return p.interrupts() > 0; });
  }
  return options.virtual_clock ? run_virtual(cast, time_model_of(p.blueprint), p)
                               : run_real(cast, p);
}

/// The run, from its beginning or from `state`. Error (data) where the state is not of this run, or, with
/// RunOptions::kept, where its own cannot be written.
Result<Ending> perform(const RunParts& parts,
                       const RunOptions& options,
                       const RunFiles& files,
                       Archive* state,
                       Others* others,
                       Mailboxes* mailboxes,
                       std::map<std::string, std::int64_t>& faults) {
  try {
    if (state) {
      archive_records(*state, parts);
    }
    parts.recorder.began_again(options.restarts);
    Tee records(parts.blueprint.experiment, parts.recorder, options.tee);
    Checkpointer checkpoints(parts,
                             options.directory.value_or(""),
                             options.virtual_clock ? "virtual" : "real",
                             options.kept);
    return play(
        parts.cast,
        options,
        {parts.blueprint, records, files, checkpoints, state, others, {}, &faults, mailboxes});
  } catch (const ArchiveError& error) {
    return Error{ErrorKind::data,
                 concat(state ? "the checkpoint does not fit the run: "
                              : "no checkpoint can be made of the run: ",
                        error.what())};
  }
}

/// Exit code and cause of a run that diverged, where nobody has told them yet; its weights go.
void diverged(RunResult& result, const Blueprint& b, const std::string& what) {
  const bool allowed = sections::stop(b.experiment).allow_divergence();
  result.exit_code = allowed ? result.exit_code : static_cast<int>(ErrorKind::diverged);
  result.cause = "training diverged: " + what;
  result.weights.clear();
}

/// What the ending and the records come to, without the digest of the order.
RunResult result_of(Ending ending,
                    const Recorder& recorder,
                    const Blueprint& b,
                    const RunFiles& files) {
  RunResult result{.exit_code = ending.exit_code,
                   .cause = std::move(ending.cause),
                   .summary = {},
                   .weights = std::move(ending.weights),
                   .buffers = std::move(ending.buffers)};
  if (const auto& loss = recorder.diverged();
      loss && result.exit_code == 0 && result.cause.empty()) {
    // The end of the run has overtaken the news.
    diverged(result, b, concat("the loss of mini-batch ", loss->stamp.batch, " is ", loss->loss));
    ending.step = loss->stamp.batch;
  }
  // Where replicas share servers, the mini-batch that diverged does not tell how many updates there
  // have been; nor do the weights of a run that has stalled, whose chunks may be of different steps.
  const bool stalled = ending.exit_code == static_cast<int>(ErrorKind::lost);
  const bool counted =
      stalled || (recorder.diverged() ? b.link.has_value() : result.weights.empty());
  result.summary = recorder.summary(counted ? recorder.completed() : ending.step);
  if ((result.exit_code == 0 || result.exit_code == 130) && !result.weights.empty()) {
    if (const std::string what = divergence(result, b, ending); !what.empty()) {
      diverged(result, b, what);
    }
  }
  if (stalled) {
    keep_what_is_left(result, b, files);
  }
  const auto& best = result.summary.best;
  result.keeps_best = sections::record(b.experiment).best() && !result.weights.empty() &&
                      !stalled && best && best->step == ending.best.value_or(ending.step);
  if (!result.weights.empty()) {
    result.summary.weights_sha256 = weights_sha256(b.chunks, result.weights);
  }
  return result;
}

/// Takes the digests of the order and closes all files. Where one of them could not be written whole,
/// the result says so. `tracing`: null where nothing was traced.
void finish_files(RunFiles& files,
                  RunResult& result,
                  const Blueprint& blueprint,
                  const Tracing* tracing) {
  std::vector<std::string> digests =
      mapped<std::string>(files.orders, [&](const auto& order) { return order->finish(); });
  result.summary.order_sha256 = digests.empty() ? "" : combined_sha256(digests);
  if (const auto closed = close_files(files, result, blueprint, tracing); !closed) {
    const bool more = result.exit_code == static_cast<int>(ErrorKind::diverged) ||
                      result.exit_code == static_cast<int>(ErrorKind::lost);
    result.cause = closed.error().message + (more ? "; " + result.cause : "");
    result.exit_code = static_cast<int>(closed.error().kind);
  }
}

/// `reader`, which may be null, and then `next`, which may be empty, get each line of metrics.jsonl.
template <class Reader>
std::function<void(std::string_view)> read_by(Reader* reader,
                                              std::function<void(std::string_view)> next) {
  if (!reader) {
    return next;
  }
  return [reader, next = std::move(next)](std::string_view line) {
    reader->line(line);
    if (next) {
      next(line);
    }
  };
}

/// `others`: null where all machines play here.
Result<RunResult> run(const Blueprint& blueprint, RunOptions options, Others* others) {
  const proto::Experiment& e = blueprint.experiment;
  TROUPE_TRY(check_clock(blueprint, options.virtual_clock));
  // Of several processes each has a part alone.
  TROUPE_TRY(others ? Result<void>() : check_memory(blueprint));
  TROUPE_TRY(others ? Result<void>() : check_sums_of_one_machine(blueprint));
  Cast cast = make_cast(blueprint);
  if (options.recast) {
    options.recast(cast);
  }
  if (options.driver) {
    TROUPE_TRY(options.driver->prepare(blueprint, cast));
  }
  const std::string address = options.driver ? "" : sections::record(e).prometheus();
  auto metrics =
      MetricsServer::start(address, 0, is_loopback(address) ? options.progress : &std::cerr);
  TROUPE_TRY(metrics);
  auto files = open_files(blueprint, options, cast);
  TROUPE_TRY(files);
  std::optional<Progress> progress;
  if (options.progress) {
    progress.emplace(*options.progress,
                     Progress::Options{.terminal = options.terminal,
                                       .steps = blueprint.updates,
                                       .seconds = sections::stop(e).seconds()});
  }
  const char* clock = options.virtual_clock ? "virtual" : "real";
  Recorder::Config config = recorder_config(
      blueprint,
      clock,
      cast,
      {.header = !options.resume || options.new_folder, .stages_work = !options.driver});
  config.line = read_by(files->board.get(), read_by(metrics->get(), options.line));
  Recorder recorder(std::move(config), files->metrics.get(), progress ? &*progress : nullptr);
  if (files->board) {
    files->board->staleness = [&recorder] {
      return recorder.staleness();
    };
  }
  Mailboxes* mailboxes = nullptr;  // none on the virtual clock
  if (*metrics) {
    mailboxes = options.virtual_clock ? nullptr : (*metrics)->count_mailboxes(cast);
    options.tee = (*metrics)->attend(recorder, options.tee, sections::resumed(e).seconds(), others);
  }
  const RunParts parts{blueprint, cast, recorder, files->metrics.get(), files->orders};
  std::optional<Archive> state;
  if (options.resume) {
    state.emplace(options.resume->run);
  }
  if (options.new_folder && files->directory) {
    TROUPE_TRY(keep_beginning(parts, *files->directory, *options.resume));
  }
  log::run().info("run_started",
                  {{"name", sections::name(e)}, {"clock", clock}, {"threads", cast.threads}});
  const std::unique_ptr<Tracing> tracing =
      options.driver ? nullptr : Tracing::begin(blueprint, cast, options.virtual_clock, others);
  const auto start = std::chrono::steady_clock::now();
  std::map<std::string, std::int64_t> faults;
  auto ending =
      perform(parts, options, *files, state ? &*state : nullptr, others, mailboxes, faults);
  TROUPE_TRY(ending);
  const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - start;
  if (tracing) {
    tracing->end(ending->seconds);
  }
  count_before(e, *ending);
  recorder.finish(ending->seconds);
  RunResult result = result_of(*std::move(ending), recorder, blueprint, *files);
  result.summary.wall_seconds = wall.count();
  result.summary.faults = std::move(faults);
  finish_files(*files, result, blueprint, tracing.get());
  log::run().info("run_ended",
                  {{"exit_code", result.exit_code}, {"steps", result.summary.updates}});
  return result;
}

}  // namespace

std::string outcome_text(int exit_code, const std::string& cause) {
  if (exit_code == 0) {
    return cause.empty() ? "done" : "diverged";  // stop.allow_divergence
  }
  return exit_code == 130                                     ? "interrupted"
         : exit_code == static_cast<int>(ErrorKind::diverged) ? "diverged"
                                                              : "lost";
}

Result<RunResult> run_experiment(const Blueprint& blueprint, const RunOptions& options) {
  return run(blueprint, options, nullptr);
}

Result<RunResult> run_experiment(const Blueprint& blueprint,
                                 const RunOptions& options,
                                 Others& others) {
  return run(blueprint, options, &others);
}

}  // namespace troupe
