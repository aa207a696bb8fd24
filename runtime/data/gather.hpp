// What every data set checks at the top of gather(), so that a wrong span or index is met there and
// not in memory.
#pragma once

#include "kernels/check.hpp"
#include "kernels/wording.hpp"
#include "runtime/data/dataset.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace troupe {

/// Error (usage) where a mini-batch is to have more samples than there are.
Result<void> check_batch(const proto::Data& data, std::int64_t samples);

/// The sizes of what Dataset::gather fills, and indices in [0, size). Throws ContractError.
inline void check_gather(const Dataset& dataset,
                         Split split,
                         std::span<const std::int64_t> indices,
                         const Samples& to) {
  const auto check = [&](const char* what, std::size_t holds, std::int64_t each) {
    TROUPE_CHECK(
        holds == indices.size() * static_cast<std::size_t>(each),
        fill_in("[gather] {} holds {} elements, not {} * {}", what, holds, indices.size(), each));
  };
  const std::int64_t width = dataset.sample_shape().elements();
  const bool tokens = dataset.input_type() == DType::int32;
  check("x", to.x.size(), tokens ? 0 : width);
  check("tokens", to.tokens.size(), tokens ? width : 0);
  check("labels", to.labels.size(), dataset.classes() > 0 ? dataset.labels_per_sample() : 0);
  check("targets", to.targets.size(), dataset.values());
  const std::int64_t size = dataset.size(split);
  for (const std::int64_t index : indices) {
    TROUPE_CHECK(index >= 0 && index < size, "[gather] index ", index, " of ", size, " samples");
  }
}

}  // namespace troupe
