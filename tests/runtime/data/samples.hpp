// Gathering in tests.
#pragma once

#include "runtime/data/dataset.hpp"

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

namespace troupe::test {

struct Samples {
  std::vector<float> x;
  std::vector<std::int32_t> labels;
  std::vector<float> targets;

  bool operator==(const Samples&) const = default;
};

inline Samples gather(const Dataset& dataset, Split split, std::span<const std::int64_t> indices) {
  const auto width = static_cast<std::size_t>(dataset.sample_shape().elements());
  Samples samples;
  samples.x.resize(indices.size() * width);
  samples.labels.resize(dataset.classes() > 0 ? indices.size() : 0);
  samples.targets.resize(indices.size() * static_cast<std::size_t>(dataset.values()));
  dataset.gather(split, indices, samples.x, samples.labels, samples.targets);
  return samples;
}

/// first, first + 1, ... (count)
inline std::vector<std::int64_t> range(std::int64_t first, std::int64_t count) {
  std::vector<std::int64_t> indices(static_cast<std::size_t>(count));
  std::iota(indices.begin(), indices.end(), first);
  return indices;
}

}  // namespace troupe::test
