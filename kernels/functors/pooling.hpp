// Which pixels a window covers and which windows cover a pixel, along one side of an image; for host
// and device.
#pragma once

#include "kernels/convolution.hpp"
#include "kernels/hd.hpp"

#include <cstdint>

namespace troupe {

/// [first, last); empty where last <= first.
struct PixelRange {
  std::int64_t first;
  std::int64_t last;
};

/// The inputs of 0..inputs-1 that window `output` covers.
TROUPE_HD inline PixelRange pixels_of_window(const ConvolutionGeometry& g,
                                             std::int64_t output,
                                             std::int64_t inputs) {
  const std::int64_t begin = output * g.stride - g.padding;
  const std::int64_t end = begin + g.kernel;
  return {begin < 0 ? 0 : begin, end < inputs ? end : inputs};
}

/// The windows of 0..outputs-1 that cover `input`.
TROUPE_HD inline PixelRange windows_of_pixel(const ConvolutionGeometry& g,
                                             std::int64_t input,
                                             std::int64_t outputs) {
  // Window o covers [o stride - padding, o stride - padding + kernel).
  const std::int64_t place = input + g.padding;
  const std::int64_t before = place - g.kernel;  // the last place whose window has ended
  const std::int64_t first = before < 0 ? 0 : before / g.stride + 1;
  const std::int64_t last = place / g.stride + 1;
  return {first, last < outputs ? last : outputs};
}

}  // namespace troupe
