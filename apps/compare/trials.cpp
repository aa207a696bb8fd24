#include "apps/compare/trials.hpp"

#include "apps/run.hpp"
#include "kernels/stream.hpp"

#include <atomic>
#include <exception>
#include <limits>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

namespace troupe {
namespace {

constexpr double kNothing = std::numeric_limits<double>::quiet_NaN();

/// Evaluations, each with the losses that came before it.
class Curve final : public RecordSink {
 public:
  std::optional<Diverged> on(const RecordEntry& entry, double now) override {
    if (const auto* loss = std::get_if<LossRecord>(&entry)) {
      loss_ += to_host(loss->result)[0];
      rows_ += loss->rows;
    } else if (const auto* evaluation = std::get_if<EvaluationRecord>(&entry)) {
      points_.push_back({.updates = evaluation->step,
                         .epochs = 0,
                         .seconds = now,
                         .train_loss = rows_ > 0 ? loss_ / static_cast<double>(rows_) : kNothing,
                         .test_loss = evaluation->loss,
                         .accuracy = evaluation->has_accuracy ? evaluation->accuracy : kNothing});
      loss_ = 0;
      rows_ = 0;
    }
    return {};
  }

  /// `summary` says how many epochs so many updates are.
  std::vector<CurvePoint> points(const Summary& summary) && {
    const double epochs =
        summary.updates > 0 ? summary.epochs / static_cast<double>(summary.updates) : 0;
    for (CurvePoint& point : points_) {
      point.epochs = static_cast<double>(point.updates) * epochs;
    }
    return std::move(points_);
  }

 private:
  std::vector<CurvePoint> points_;
  double loss_ = 0;
  std::int64_t rows_ = 0;
};

Outcome outcome_of(const RunResult& result) {
  if (result.exit_code == static_cast<int>(ErrorKind::diverged) ||
      (result.exit_code == 0 && !result.cause.empty())) {  // stop.allow_divergence
    return Outcome::diverged;
  }
  return result.exit_code == 0     ? Outcome::finished
         : result.exit_code == 130 ? Outcome::interrupted
                                   : Outcome::failed;
}

void fail(Trial& trial, ErrorKind kind, std::string cause) {
  trial.outcome = Outcome::failed;
  trial.exit_code = static_cast<int>(kind);
  trial.cause = std::move(cause);
}

void run_trial(Trial& trial, const Contender& scheme, const TrialOptions& options) {
  proto::Experiment experiment = scheme.resolved;
  experiment.set_seed(trial.seed);
  const auto blueprint = make_blueprint(experiment);
  if (!blueprint) {
    fail(trial, blueprint.error().kind, blueprint.error().message);
    return;
  }
  Curve curve;
  RunOptions run{.virtual_clock = options.virtual_clock,
                 .directory = {},
                 .progress = nullptr,
                 .terminal = false,
                 .interrupts = {},
                 .tee = &curve};
  // Half a trial is of no use, so that none is brought to an orderly end.
  run.interrupts = [&] {
    return options.interrupted && options.interrupted() ? 2 : 0;
  };
  auto result = run_experiment(*blueprint, run);
  if (!result) {
    fail(trial, result.error().kind, result.error().message);
    return;
  }
  trial.outcome = outcome_of(*result);
  trial.exit_code = result->exit_code;
  trial.cause = std::move(result->cause);
  trial.curve = std::move(curve).points(result->summary);
  trial.summary = std::move(result->summary);
}

}  // namespace

std::vector<Trial> run_trials(const std::vector<Contender>& schemes, const TrialOptions& options) {
  TROUPE_CHECK(options.virtual_clock || options.jobs == 1,
               "[run_trials] on the real clock trials would take each other's time");
  const auto seeds = static_cast<std::size_t>(options.seeds);
  std::vector<Trial> trials(schemes.size() * seeds);
  for (std::size_t i = 0; i < trials.size(); ++i) {
    trials[i].scheme = i / seeds;
    trials[i].seed = schemes[i / seeds].resolved.seed() + i % seeds;
  }
  std::atomic<std::size_t> next{0};
  std::mutex mutex;  // of on_finish
  const auto work = [&] {
    for (std::size_t n = next++; n < trials.size(); n = next++) {
      if (options.interrupted && options.interrupted()) {
        return;
      }
      const std::size_t scheme = n % schemes.size();
      Trial& trial = trials[scheme * seeds + n / schemes.size()];
      try {
        run_trial(trial, schemes[scheme], options);
      } catch (const std::exception& error) {
        fail(trial, ErrorKind::lost, error.what());
      }
      if (options.on_finish && trial.outcome != Outcome::interrupted) {
        const std::lock_guard lock(mutex);
        options.on_finish(trial);
      }
    }
  };
  // Beside the calling thread, which works, too.
  std::vector<std::jthread> threads;
  for (int i = 1; i < options.jobs; ++i) {
    try {
      threads.emplace_back(work);
    } catch (const std::system_error&) {
      break;  // no room for another thread: fewer at once
    }
  }
  work();
  threads.clear();
  return trials;
}

}  // namespace troupe
