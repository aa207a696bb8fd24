// The product of two vectors, on the CPU.
#pragma once

#include "kernels/stream.hpp"

namespace troupe {

/// a . b in double, always in the same order. Shapes: a, b (n). Has been done at return.
double dot(Stream& stream, const Tensor& a, const Tensor& b);

TROUPE_ON_CPU(double dot(const Tensor& a, const Tensor& b));

}  // namespace troupe
