#include "apps/compare/trials.hpp"

#include "apps/run/run.hpp"
#include "experiment.pb.h"
#include "kernels/stream.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <limits>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

namespace troupe {
namespace {

constexpr double kNothing = std::numeric_limits<double>::quiet_NaN();

/// Where a trial stands, told every now and then.
class Standings {
 public:
  using Tell = std::function<void(const TrialStanding&)>;

  Standings(const Blueprint& b, std::chrono::milliseconds every, Tell tell)
      : every_(every),
        tell_(std::move(tell)),
        of_epoch_(static_cast<double>(std::max<std::int64_t>(1, b.data->size(Split::train)))),
        of_run_(b.batches > 0
                    ? static_cast<double>(b.sizes.samples_before(b.batches * b.batches_per_update))
                    : 0),
        seconds_(b.experiment->stop().seconds()) {}

  void add(const LossRecord& loss, double sum, double now) {
    samples_ += static_cast<double>(loss.samples);
    loss_ += sum;
    rows_ += static_cast<double>(loss.rows);
    const auto wall = std::chrono::steady_clock::now();
    if (!tell_ || wall - told_ < every_) {
      return;
    }
    told_ = wall;
    double share = of_run_ > 0 ? samples_ / of_run_ : 0;
    if (seconds_ > 0) {
      share = std::max(share, now / seconds_);
    }
    tell_({.share = std::min(1.0, share),
           .epochs = samples_ / of_epoch_,
           .loss = rows_ > 0 ? loss_ / rows_ : kNothing});
    loss_ = 0;
    rows_ = 0;
  }

 private:
  std::chrono::milliseconds every_;
  Tell tell_;
  double of_epoch_;  // samples
  double of_run_;    // samples; 0 where its length is not known
  double seconds_;   // of the run's clock after which it ends; 0: no limit
  std::chrono::steady_clock::time_point told_ = std::chrono::steady_clock::now();
  double samples_ = 0;
  double loss_ = 0;
  double rows_ = 0;
};

/// Evaluations, each with the losses that came before it.
class Curve final : public RecordSink {
 public:
  explicit Curve(Standings standings) : standings_(std::move(standings)) {}

  std::optional<Diverged> on(const RecordEntry& entry, double now) override {
    if (const auto* loss = std::get_if<LossRecord>(&entry)) {
      const double sum = to_host(loss->result)[0];
      loss_ += sum;
      rows_ += loss->rows;
      standings_.add(*loss, sum, now);
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
  Standings standings_;
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
  experiment.mutable_record()->set_prometheus("");  // others may run beside it
  const auto blueprint = make_blueprint(experiment);
  if (!blueprint) {
    fail(trial, blueprint.error().kind, blueprint.error().message);
    return;
  }
  Curve curve(Standings(*blueprint, options.standing_every, [&](const TrialStanding& standing) {
    if (options.on_way) {
      options.on_way(trial, standing);
    }
  }));
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
    trials[i].seed = schemes[i / seeds].resolved->seed() + i % seeds;
  }
  std::vector<std::size_t> to_make;  // seeds in turn, each with all schemes
  for (std::size_t n = 0; n < trials.size(); ++n) {
    const std::size_t at = n % schemes.size() * seeds + n / schemes.size();
    if (!options.recall || !options.recall(trials[at])) {
      to_make.push_back(at);
    }
  }
  if (options.on_begin) {
    options.on_begin();
  }
  std::atomic<std::size_t> next{0};
  std::mutex mutex;  // of on_finish
  const auto work = [&] {
    for (std::size_t n = next++; n < to_make.size(); n = next++) {
      if (options.interrupted && options.interrupted()) {
        return;
      }
      Trial& trial = trials[to_make[n]];
      try {
        run_trial(trial, schemes[trial.scheme], options);
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
