// Rotary positions (Su et al. 2021, arXiv:2104.09864, section 3.2.2): queries and keys are turned by an angle that grows
// with their position, so that their products depend on the distance alone.
#pragma once

#include "kernels/stream.hpp"

#include <cstdint>

namespace troupe {

struct Rotary {
  std::int64_t heads =
      1;  // the first columns are so many heads, which are turned; the others are copied
  std::int64_t head_size = 2;  // D, even
  double theta = 10'000;
  bool back = false;  // by the negative angle: the gradient's way
};

/// Column i < D/2 of a head and column i + D/2 are a pair, as in Hugging Face's Llama; at position t it is turned by
/// t theta^(-2i/D). Shapes: x, y (B, T, W), W >= heads D; types equal, float32 or the stream's operand_type(); y may be
/// x. Angles are computed in double.
void rotary(Stream& stream, const Rotary& options, const Tensor& x, const Tensor& y);

// The backends: same signatures, arguments already checked.
TROUPE_BACKENDS(rotary);

}  // namespace troupe
