#include "kernels/rotary.hpp"

#include "kernels/cpu/backend.hpp"

#include <algorithm>
#include <cmath>

namespace troupe::cpu::TROUPE_ISA {

void rotary(Stream& stream, const Rotary& o, const Tensor& x, const Tensor& y) {
  const std::int64_t T = x.shape()[1];
  const std::int64_t W = x.shape()[2];
  const std::int64_t half = o.head_size / 2;
  // Of each pair: the angle's own cosine and sine, and those at position t. One position's are made of the last one's.
  auto* step = reinterpret_cast<double*>(stream.cpu().scratch(10 * half));  // (4, half), (2, half)
  double* at = step + 2 * half;
  auto* cosine = reinterpret_cast<float*>(at + 2 * half);
  float* sine = cosine + half;
  for (std::int64_t i = 0; i < half; ++i) {
    const double angle =
        std::pow(o.theta, -2.0 * static_cast<double>(i) / static_cast<double>(o.head_size));
    step[i] = std::cos(angle);
    step[half + i] = o.back ? -std::sin(angle) : std::sin(angle);
    at[i] = 1;
    at[half + i] = 0;
  }
  for (std::int64_t t = 0; t < T; ++t) {
    for (std::int64_t i = 0; i < half; ++i) {
      cosine[i] = static_cast<float>(at[i]);
      sine[i] = static_cast<float>(at[half + i]);
      const double next = at[i] * step[i] - at[half + i] * step[half + i];
      at[half + i] = at[half + i] * step[i] + at[i] * step[half + i];
      at[i] = next;
    }
    for (std::int64_t b = 0; b < x.shape()[0]; ++b) {
      const float* from = x.data<float>() + (b * T + t) * W;
      float* to = y.data<float>() + (b * T + t) * W;
      for (std::int64_t h = 0; h < o.heads; ++h, from += o.head_size, to += o.head_size) {
#pragma GCC ivdep  // `to` may be `from`, but never a shifted one
        for (std::int64_t i = 0; i < half; ++i) {
          const float first = from[i];
          const float second = from[half + i];
          to[i] = first * cosine[i] - second * sine[i];
          to[half + i] = second * cosine[i] + first * sine[i];
        }
      }
      if (to != from) {
        std::copy_n(from, W - o.heads * o.head_size, to);
      }
    }
  }
}

}  // namespace troupe::cpu::TROUPE_ISA
