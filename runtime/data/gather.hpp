// What every data set checks at the top of gather(), so that a wrong span or index is met there and
// not in memory.
#pragma once

#include "kernels/check.hpp"
#include "runtime/data/dataset.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace troupe {

/// The sizes that Dataset::gather promises, and indices in [0, size). Throws ContractError.
inline void check_gather(const Dataset& dataset,
                         Split split,
                         std::span<const std::int64_t> indices,
                         std::span<const float> x,
                         std::span<const std::int32_t> labels,
                         std::span<const float> targets) {
  const std::size_t count = indices.size();
  const auto width = static_cast<std::size_t>(dataset.sample_shape().elements());
  const auto values = static_cast<std::size_t>(dataset.values());
  TROUPE_CHECK(x.size() == count * width,
               "[gather] x holds ",
               x.size(),
               " elements, not ",
               count,
               " * ",
               width);
  TROUPE_CHECK(labels.size() == (dataset.classes() > 0 ? count : 0),
               "[gather] ",
               labels.size(),
               " labels for ",
               count,
               " samples of ",
               dataset.classes(),
               " classes");
  TROUPE_CHECK(targets.size() == count * values,
               "[gather] targets hold ",
               targets.size(),
               " elements, not ",
               count,
               " * ",
               values);
  const std::int64_t size = dataset.size(split);
  for (const std::int64_t index : indices) {
    TROUPE_CHECK(index >= 0 && index < size, "[gather] index ", index, " of ", size, " samples");
  }
}

}  // namespace troupe
