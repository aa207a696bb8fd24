// The arithmetic of normalizations for one mean and variance, written once for host and device.
#pragma once

#include "kernels/hd.hpp"

#include <cmath>
#include <cstdint>

namespace troupe {

/// 1 / sqrt(variance + epsilon). A variance that rounding has made negative is zero; a NaN stays.
TROUPE_HD inline double inverse_of_deviation(double variance, float epsilon) {
  const double at_least_zero = variance < 0 ? 0 : variance;
  return 1.0 / std::sqrt(at_least_zero + static_cast<double>(epsilon));
}

/// Of n elements, by their sum and the sum of their squares.
struct NormalizationStatistics {
  float mean;
  float inverse_deviation;

  TROUPE_HD NormalizationStatistics(double sum, double squares, double n, float epsilon) {
    const double center = sum / n;
    mean = static_cast<float>(center);
    inverse_deviation =
        static_cast<float>(inverse_of_deviation(squares / n - center * center, epsilon));
  }
};

/// dx = dy factor + (x - mean) slope + offset: the gradient by x of every normalization.
struct NormalizationGradient {
  float factor;
  float slope;
  float offset;

  /// `first` and `second` are the sums of dy gamma and of dy gamma (x - mean) over the n elements
  /// that share mean and inverse deviation.
  TROUPE_HD NormalizationGradient(
      float gamma, float inverse_deviation, double first, double second, double n)
      : factor(gamma * inverse_deviation) {
    const double i = inverse_deviation;
    slope = static_cast<float>(-i * i * i * second / n);
    offset = static_cast<float>(-i * first / n);
  }
};

/// One channel's running mean and variance take in a batch's.
struct RunningStatistics {
  double epsilon;
  double unbiased;  // R / (R - 1)
  float momentum;

  RunningStatistics(std::int64_t rows, float epsilon_of_batch, float momentum_of_batch)
      : epsilon(static_cast<double>(epsilon_of_batch)),
        unbiased(rows > 1 ? static_cast<double>(rows) / static_cast<double>(rows - 1) : 1.0),
        momentum(momentum_of_batch) {}

  TROUPE_HD void take_in(float mean,
                         float inverse_deviation,
                         float& running_mean,
                         float& running_variance) const {
    const double inverse = inverse_deviation;
    const double variance = 1.0 / (inverse * inverse) - epsilon;
    const double at_least_zero = variance < 0 ? 0 : variance;  // epsilon again, rounded
    running_mean = (1.0f - momentum) * running_mean + momentum * mean;
    running_variance = (1.0f - momentum) * running_variance +
                       momentum * static_cast<float>(at_least_zero * unbiased);
  }
};

}  // namespace troupe
