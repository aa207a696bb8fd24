// A trained network's answers to a whole split of its data.
#pragma once

#include "apps/topologies/blueprint.hpp"

#include <cstdint>
#include <functional>
#include <vector>

namespace troupe {

/// Of consecutive samples. On the host.
struct Answers {
  std::int64_t first = 0;    // index of the first sample
  std::int64_t samples = 0;  // B
  // (B, labels a sample, classes), or (B, values): what the network puts out
  std::vector<double> y;
  std::vector<double> targets;  // labels (B, labels a sample), or values (B, values)
  double loss = 0;              // sum over the labels
  double hits = 0;              // labels that are the largest of their y
};

/// Of the network that `blueprint` starts with, which is of one chunk, in the order of the data. Batch normalisation goes by
/// its running statistics.
void answer_all(const Blueprint& blueprint,
                Split split,
                const std::function<void(const Answers&)>& see);

/// How good they are, over the whole split.
struct Evaluation {
  std::int64_t samples = 0;
  std::int64_t labels = 0;
  double loss = 0;      // mean over the labels
  double accuracy = 0;  // share of the labels; where targets are labels
  /// How often label l was taken for c: [l][c]; empty where a sample has several labels, or there are no classes,
  /// or more than kClassesMax.
  std::vector<std::vector<std::int64_t>> confusion;

  static constexpr int kClassesMax = 1000;
};

Evaluation evaluate(const Blueprint& blueprint, Split split);

/// Index of the first largest of y[0, classes).
std::size_t largest(const double* y, std::size_t classes);

}  // namespace troupe
