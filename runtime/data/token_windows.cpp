#include "runtime/data/token_windows.hpp"

#include "kernels/random.hpp"

#include <algorithm>

namespace troupe {

TokenWindows::TokenWindows(std::int64_t train_tokens,
                           std::int64_t test_tokens,
                           std::int64_t context,
                           std::int64_t stride,
                           std::uint64_t seed,
                           bool moves)
    : context_(context), stride_(stride > 0 ? stride : context), seed_(seed) {
  // As many as there are at every offset, or one where not even that fits.
  const std::int64_t starts = train_tokens - context;  // of a window
  train_size_ = std::max<std::int64_t>(1, starts / stride_);
  offsets_ = moves ? std::min(stride_, starts - (train_size_ - 1) * stride_) : 1;
  test_size_ = (test_tokens - 1) / context;
}

std::int64_t TokenWindows::begin(Split split, std::int64_t sample, std::int64_t epoch) const {
  if (split == Split::test) {
    return sample * context_;
  }
  const RandomStream random(seed_, Purpose::augment, static_cast<std::uint64_t>(epoch));
  const auto offset = random.below(0, static_cast<std::uint64_t>(offsets_));
  return static_cast<std::int64_t>(offset) + sample * stride_;
}

}  // namespace troupe
