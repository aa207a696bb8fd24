// Where the samples of a text are: windows of T tokens, whose labels are the same moved on by one.
//
//   tokens of the training part   |<------------------------------------------------------->|
//   epoch e     |offset(e)| T+1 |
//               |offset(e)| stride | T+1 |
//               |offset(e)| stride | stride | T+1 |  ...
//   tokens of the test part       | T | T | ...
//
// Each epoch's windows begin at a place of its own, below the stride, by (seed, epoch). Test windows
// lie side by side and never move; what is left over at the end of either part is not used.
#pragma once

#include "runtime/data/dataset.hpp"

#include <cstdint>

namespace troupe {

class TokenWindows {
 public:
  /// Either part has context + 1 tokens at least. A stride of 0 is the context. `moves`: each epoch's windows
  /// begin at a place of its own; otherwise all at the first token.
  TokenWindows(std::int64_t train_tokens,
               std::int64_t test_tokens,
               std::int64_t context,
               std::int64_t stride,
               std::uint64_t seed,
               bool moves = true);

  std::int64_t context() const { return context_; }

  std::int64_t size(Split split) const { return split == Split::train ? train_size_ : test_size_; }

  /// The first token of a sample, counted from the first one of its part. Its last label is
  /// context() further.
  std::int64_t begin(Split split, std::int64_t sample, std::int64_t epoch) const;

 private:
  std::int64_t context_;
  std::int64_t stride_;
  std::uint64_t seed_;
  std::int64_t train_size_;
  std::int64_t offsets_;  // an epoch's windows begin at one of 0 .. offsets_ - 1
  std::int64_t test_size_;
};

}  // namespace troupe
