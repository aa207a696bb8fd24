// Sums of scaled tensors: what server updates are made of.
#pragma once

#include "kernels/stream.hpp"

#include <cstddef>
#include <vector>

namespace troupe {

struct Term {
  double factor = 1;  // rounded to float once
  Tensor x;
};

constexpr std::size_t kTermsMax = 6;

/// out = sum of factor_i x_i, in float32, from the first term to the last. Shapes: 1 to kTermsMax
/// terms, all of the shape of out, which may be any of them. One pass over memory.
void combine(Stream& stream, const std::vector<Term>& terms, const Tensor& out);

// The backends: same signatures, arguments already checked.
TROUPE_BACKENDS(combine);

}  // namespace troupe
