#include "apps/compare/statistics.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace troupe {
namespace {

constexpr double kNothing = std::numeric_limits<double>::quiet_NaN();
constexpr double kRounding = 1e-9;  // relative: epochs are quotients

bool counts(const Trial& trial) {
  return trial.outcome == Outcome::finished;
}

bool evaluated(const Trial& trial) {
  return counts(trial) && !trial.curve.empty();
}

/// The measure where the curve is at `x` epochs or seconds: on the straight line between two
/// evaluations, behind the last one as there, NaN before the first.
double read_off(const Trial& trial, Measure measure, double CurvePoint::*axis, double x) {
  const std::vector<CurvePoint>& curve = trial.curve;
  const double rounding = kRounding * std::abs(x);
  const auto after = std::find_if(curve.begin(), curve.end(), [&](const CurvePoint& point) {
    return point.*axis > x + rounding;
  });
  if (after == curve.begin()) {
    return kNothing;
  }
  const CurvePoint& before = *(after - 1);
  const double value = measured(before, measure);
  if (after == curve.end() || before.*axis >= x - rounding) {
    return value;
  }
  const double share = (x - before.*axis) / ((*after).*axis - before.*axis);
  return value + share * (measured(*after, measure) - value);
}

double best_of(const Trial& trial, Measure measure) {
  double best = kNothing;
  for (const CurvePoint& point : trial.curve) {
    const double value = measured(point, measure);
    if (std::isnan(best) || reaches(value, best, measure)) {
      best = value;
    }
  }
  return best;
}

double seconds_to(const Trial& trial, Measure measure, double target) {
  const auto first =
      std::find_if(trial.curve.begin(), trial.curve.end(), [&](const CurvePoint& point) {
        return reaches(measured(point, measure), target, measure);
      });
  return first == trial.curve.end() ? kNothing : first->seconds;
}

double staleness_mean(const Summary& summary) {
  double sum = 0;
  double count = 0;
  for (const auto& [shard, staleness] : summary.staleness) {
    for (const auto& [versions, often] : staleness.histogram) {
      sum += static_cast<double>(versions) * static_cast<double>(often);
      count += static_cast<double>(often);
    }
  }
  return count > 0 ? sum / count : kNothing;
}

double gap_mean(const Summary& summary) {
  double sum = 0;
  for (const auto& [shard, gap] : summary.gap) {
    sum += gap;
  }
  return summary.gap.empty() ? kNothing : sum / static_cast<double>(summary.gap.size());
}

/// Mean over the stages.
double lock_mean(const Summary& summary, double Summary::Locks::*seconds) {
  double sum = 0;
  for (const auto& [stage, locks] : summary.locks) {
    sum += locks.*seconds;
  }
  return summary.locks.size() < 2 ? kNothing : sum / static_cast<double>(summary.locks.size());
}

/// Mean over the modules but the last, which has the loss.
double module_mean(const Summary& summary, double (*number)(const Summary::Module&)) {
  double sum = 0;
  double count = 0;
  for (const auto& [chunk, module] : summary.modules) {
    const double value = number(module);
    if (chunk < summary.modules.rbegin()->first && !std::isnan(value)) {
      sum += value;
      ++count;
    }
  }
  return count > 0 ? sum / count : kNothing;
}

double synthetic_share(const Summary::Module& module) {
  return module.mini_batches > 0
             ? static_cast<double>(module.synthetic) / static_cast<double>(module.mini_batches)
             : kNothing;
}

double angle_mean(const Summary::Module& module) {
  return module.angles > 0 ? module.degrees / static_cast<double>(module.angles) : kNothing;
}

}  // namespace

Spread spread_of(const std::vector<double>& numbers) {
  const auto n = static_cast<double>(numbers.size());
  const double mean = std::accumulate(numbers.begin(), numbers.end(), 0.0) / n;
  double squares = 0;
  for (const double number : numbers) {
    squares += (number - mean) * (number - mean);
  }
  return {numbers.size(), mean, numbers.size() > 1 ? std::sqrt(squares / (n - 1)) : kNothing};
}

Measure measure_of(const std::vector<Contender>& schemes) {
  const bool classes =
      std::all_of(schemes.begin(), schemes.end(), [](const Contender& s) { return s.classes; });
  return classes ? Measure::accuracy : Measure::loss;
}

double measured(const CurvePoint& point, Measure measure) {
  return measure == Measure::accuracy ? point.accuracy : point.test_loss;
}

bool reaches(double a, double b, Measure measure) {
  return measure == Measure::accuracy ? a >= b : a <= b;
}

std::optional<Common> common_of(const std::vector<Trial>& trials) {
  std::optional<Common> common;
  for (const Trial& trial : trials) {
    if (evaluated(trial)) {
      const double epochs = trial.curve.back().epochs;
      const double seconds = trial.summary.seconds;
      common = common ? Common{std::min(common->epochs, epochs), std::min(common->seconds, seconds)}
                      : Common{epochs, seconds};
    }
  }
  return common;
}

Figures figures_of(std::span<const Trial> trials,
                   Measure measure,
                   const std::optional<Common>& common,
                   std::optional<double> target) {
  // Over the finished trials that have the number.
  const auto over = [&](const auto& number) {
    std::vector<double> numbers;
    for (const Trial& trial : trials) {
      if (const double value = counts(trial) ? number(trial) : kNothing; !std::isnan(value)) {
        numbers.push_back(value);
      }
    }
    return spread_of(numbers);
  };
  const auto count = [&](Outcome outcome) {
    return static_cast<std::size_t>(std::count_if(
        trials.begin(), trials.end(), [&](const Trial& t) { return t.outcome == outcome; }));
  };
  Figures f;
  f.trials = trials.size() - count(Outcome::interrupted);
  f.diverged = count(Outcome::diverged);
  f.failed = count(Outcome::failed);
  f.samples_per_second = over([](const Trial& t) { return t.summary.samples_per_second; });
  f.tokens_per_second = over([](const Trial& t) {
    return t.summary.tokens_per_second > 0 ? t.summary.tokens_per_second : kNothing;
  });
  f.at_end = over([&](const Trial& t) {
    return t.curve.empty() ? kNothing : measured(t.curve.back(), measure);
  });
  f.best = over([&](const Trial& t) { return best_of(t, measure); });
  if (common) {
    f.at_epochs = over(
        [&](const Trial& t) { return read_off(t, measure, &CurvePoint::epochs, common->epochs); });
    f.at_seconds = over([&](const Trial& t) {
      return read_off(t, measure, &CurvePoint::seconds, common->seconds);
    });
  }
  f.to_target =
      over([&](const Trial& t) { return target ? seconds_to(t, measure, *target) : kNothing; });
  f.train_loss = over([](const Trial& t) { return t.summary.train_loss; });
  f.staleness = over([](const Trial& t) { return staleness_mean(t.summary); });
  for (const Trial& trial : trials) {
    for (const auto& [shard, staleness] : trial.summary.staleness) {
      f.staleness_max = std::max(f.staleness_max, counts(trial) ? staleness.max : 0);
    }
  }
  f.gap = over([](const Trial& t) { return gap_mean(t.summary); });
  const auto of_replicas = [measure](const Trial& t) {
    return over_replicas(
        t.summary.replicas,
        measure == Measure::accuracy ? &ReplicaRecord::accuracy : &ReplicaRecord::loss);
  };
  f.replicas = over(
      [&](const Trial& t) { return t.summary.replicas.empty() ? kNothing : of_replicas(t).mean; });
  f.worst_replica = over([&](const Trial& t) {
    return t.summary.replicas.empty()     ? kNothing
           : measure == Measure::accuracy ? of_replicas(t).least
                                          : of_replicas(t).greatest;
  });
  f.bytes_sent = over([](const Trial& t) { return static_cast<double>(t.summary.bytes_sent); });
  f.forward_lock =
      over([](const Trial& t) { return lock_mean(t.summary, &Summary::Locks::forward); });
  f.backward_lock =
      over([](const Trial& t) { return lock_mean(t.summary, &Summary::Locks::backward); });
  f.synthetic = over([](const Trial& t) { return module_mean(t.summary, synthetic_share); });
  f.angle = over([](const Trial& t) { return module_mean(t.summary, angle_mean); });
  const auto of_estimates = [](double (Summary::Predictor::*number)() const) {
    return [number](const Trial& t) {
      return mean_of_estimates(t.summary.predictors, number).value_or(kNothing);
    };
  };
  f.estimate_error = over(of_estimates(&Summary::Predictor::relative_error));
  f.estimate_cosine = over(of_estimates(&Summary::Predictor::cosine));
  return f;
}

std::vector<MeanPoint> mean_curve(std::span<const Trial> trials, Measure measure) {
  std::size_t length = std::numeric_limits<std::size_t>::max();
  for (const Trial& trial : trials) {
    length = counts(trial) ? std::min(length, trial.curve.size()) : length;
  }
  std::vector<MeanPoint> curve;
  for (std::size_t i = 0; length != std::numeric_limits<std::size_t>::max() && i < length; ++i) {
    std::vector<double> epochs;
    std::vector<double> seconds;
    std::vector<double> values;
    std::vector<double> losses;
    for (const Trial& trial : trials) {
      if (counts(trial)) {
        losses.push_back(trial.curve[i].train_loss);
        epochs.push_back(trial.curve[i].epochs);
        seconds.push_back(trial.curve[i].seconds);
        values.push_back(measured(trial.curve[i], measure));
      }
    }
    curve.push_back(
        {spread_of(epochs).mean, spread_of(seconds).mean, spread_of(values), spread_of(losses)});
  }
  return curve;
}

}  // namespace troupe
