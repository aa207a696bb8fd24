// Images of other sides.
#pragma once

#include "runtime/data/image.hpp"

#include <cstddef>
#include <cstdint>

namespace troupe {

/// How an image of other sides is brought to these.
struct ImageScaling {
  enum class Fit : std::uint8_t { crop, stretch };
  enum class Filter : std::uint8_t { area, bilinear };

  std::size_t height = 0;
  std::size_t width = 0;
  Fit fit = Fit::crop;  // crop: of the longer side only the middle is looked at
  Filter filter = Filter::area;
};

/// Of any channels. A new pixel is the mean of the old area that it covers, or what lies at its centre between the
/// four old pixels next to it; at the border the last pixel goes on.
Image scaled_image(const Image& image, const ImageScaling& to);

}  // namespace troupe
