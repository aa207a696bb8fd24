// Trials to numbers: means and deviations over the seeds, at the same epochs and at the same time.
#pragma once

#include "apps/compare/trials.hpp"

#include <limits>
#include <optional>
#include <span>
#include <vector>

namespace troupe {

/// Of numbers, one a seed.
struct Spread {
  std::size_t count = 0;
  double mean = std::numeric_limits<double>::quiet_NaN();  // NaN of none
  double sd =
      std::numeric_limits<double>::quiet_NaN();  // of a sample (count - 1); NaN of fewer than two
};

Spread spread_of(const std::vector<double>& numbers);

/// What a scheme is judged by: the accuracy on the test data, or where predictions cannot be right
/// or wrong its loss.
enum class Measure : std::uint8_t { accuracy, loss };

Measure measure_of(const std::vector<Contender>& schemes);
/// NaN where it was not measured.
double measured(const CurvePoint& point, Measure measure);
/// Whether `a` is as good as `b`.
bool reaches(double a, double b, Measure measure);

/// What all finished trials that were evaluated have in common.
struct Common {
  double epochs = 0;   // the most that all of them reached, at an evaluation
  double seconds = 0;  // of the shortest
};

/// Nothing where no trial was finished and evaluated.
std::optional<Common> common_of(const std::vector<Trial>& trials);

/// Means are over finished trials only.
struct Figures {
  std::size_t trials = 0;  // that came to an end, good or bad
  std::size_t diverged = 0;
  std::size_t failed = 0;
  Spread samples_per_second;
  Spread tokens_per_second;  // of text
  Spread at_end;             // of the measure, at the last evaluation
  Spread best;               // at each trial's best evaluation
  Spread at_epochs;          // at Common::epochs, on the straight line between two evaluations
  Spread at_seconds;         // at Common::seconds, alike; none before the first evaluation
  Spread to_target;   // seconds of the first evaluation that reaches the target; of those that do
  Spread train_loss;  // of the last epoch
  Spread staleness;   // versions: mean over all shards' micro-batches
  std::int64_t staleness_max = 0;
  Spread gap;            // mean over the shards
  Spread replicas;       // of the measure at the end: mean over the replicas' own weights
  Spread worst_replica;  // likewise: of the worst of them
  Spread bytes_sent;     // between replicas and servers or one another
  Spread forward_lock;   // seconds that a stage waited for an activation, mean over the stages
  Spread backward_lock;  // likewise for an error signal
  Spread synthetic;      // share of updates by estimates, mean over modules but the last
  Spread angle;          // degrees to backpropagation, likewise, over the run
  Spread
      estimate_error;  // of the predictors of error signals at the end, in variances of the signal
  Spread estimate_cosine;  // of their estimates with the signal, likewise
};

/// `trials`: of one scheme.
Figures figures_of(std::span<const Trial> trials,
                   Measure measure,
                   const std::optional<Common>& common,
                   std::optional<double> target);

/// A point of the curve of a scheme over its finished trials, evaluation by evaluation.
struct MeanPoint {
  double epochs = 0;
  double seconds = 0;   // mean
  Spread value{};       // of the measure
  Spread train_loss{};  // since the evaluation before
};

/// As far as every finished trial goes.
std::vector<MeanPoint> mean_curve(std::span<const Trial> trials, Measure measure);

}  // namespace troupe
