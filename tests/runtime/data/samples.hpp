// Gathering in tests.
#pragma once

#include "runtime/data/dataset.hpp"

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

namespace troupe::test {

struct Gathered {
  std::vector<float> x;
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t> labels;
  std::vector<float> targets;

  bool operator==(const Gathered&) const = default;
};

inline Gathered gather(const Dataset& dataset,
                       Split split,
                       std::span<const std::int64_t> indices,
                       std::int64_t epoch = 0) {
  const std::size_t count = indices.size();
  const auto width = static_cast<std::size_t>(dataset.sample_shape().elements());
  const bool tokens = dataset.input_type() == DType::int32;
  Gathered got;
  got.x.resize(tokens ? 0 : count * width);
  got.tokens.resize(tokens ? count * width : 0);
  got.labels.resize(
      dataset.classes() > 0 ? count * static_cast<std::size_t>(dataset.labels_per_sample()) : 0);
  got.targets.resize(count * static_cast<std::size_t>(dataset.values()));
  dataset.gather(split,
                 indices,
                 epoch,
                 {.x = got.x, .tokens = got.tokens, .labels = got.labels, .targets = got.targets});
  return got;
}

/// first, first + 1, ... (count)
inline std::vector<std::int64_t> range(std::int64_t first, std::int64_t count) {
  std::vector<std::int64_t> indices(static_cast<std::size_t>(count));
  std::iota(indices.begin(), indices.end(), first);
  return indices;
}

/// All samples of both parts, training samples first.
inline Gathered everything(const Dataset& data) {
  Gathered all = gather(data, Split::train, range(0, data.size(Split::train)));
  const Gathered test = gather(data, Split::test, range(0, data.size(Split::test)));
  all.x.insert(all.x.end(), test.x.begin(), test.x.end());
  all.labels.insert(all.labels.end(), test.labels.begin(), test.labels.end());
  all.targets.insert(all.targets.end(), test.targets.begin(), test.targets.end());
  return all;
}

}  // namespace troupe::test
