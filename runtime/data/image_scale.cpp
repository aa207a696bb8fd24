#include "runtime/data/image_scale.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

namespace troupe {
namespace {

/// What a new pixel is made of along one side: `weights` of the old ones from `first` on, which sum to 1.
struct Taps {
  std::size_t first = 0;
  std::vector<float> weights{};
};

/// A stretch of the old side, in pixels.
struct Stretch {
  double begin = 0;
  double length = 0;
};

Taps area_taps(double begin, double end, std::size_t pixels) {
  const double last = static_cast<double>(pixels - 1);
  const auto first = static_cast<std::size_t>(std::clamp(std::floor(begin), 0.0, last));
  const auto final = static_cast<std::size_t>(std::clamp(std::ceil(end) - 1, 0.0, last));
  Taps taps{.first = first};
  double sum = 0;
  for (std::size_t i = first; i <= std::max(first, final); ++i) {
    const double at = static_cast<double>(i);
    const double covered = std::max(0.0, std::min(end, at + 1) - std::max(begin, at));
    taps.weights.push_back(static_cast<float>(covered));
    sum += covered;
  }
  for (float& weight : taps.weights) {
    weight = static_cast<float>(weight / sum);
  }
  return taps;
}

Taps bilinear_taps(double centre, std::size_t pixels) {
  const double at = std::clamp(centre - 0.5, 0.0, static_cast<double>(pixels - 1));
  const auto first = std::min(static_cast<std::size_t>(at), pixels < 2 ? 0 : pixels - 2);
  const auto second = static_cast<float>(at - static_cast<double>(first));
  return pixels < 2 ? Taps{0, {1.0f}} : Taps{first, {1 - second, second}};
}

/// One for each of `count` new pixels.
std::vector<Taps> taps_of(const Stretch& from,
                          std::size_t pixels,
                          std::size_t count,
                          ImageScaling::Filter filter) {
  std::vector<Taps> all;
  const double step = from.length / static_cast<double>(count);
  for (std::size_t i = 0; i < count; ++i) {
    const double begin = from.begin + step * static_cast<double>(i);
    all.push_back(filter == ImageScaling::Filter::area ? area_taps(begin, begin + step, pixels)
                                                       : bilinear_taps(begin + step / 2, pixels));
  }
  return all;
}

/// The middle of a side of `pixels` that becomes `to` at `scale` new pixels an old one.
Stretch middle(std::size_t pixels, std::size_t to, double scale) {
  const double length = std::min(static_cast<double>(pixels), static_cast<double>(to) / scale);
  return {(static_cast<double>(pixels) - length) / 2, length};
}

/// Row `y` of `image`, of the new width.
void scale_row(const Image& image, std::size_t y, const std::vector<Taps>& columns, float* out) {
  const std::uint8_t* row = image.pixels.data() + y * image.width * image.channels;
  for (const Taps& taps : columns) {
    for (std::size_t channel = 0; channel < image.channels; ++channel) {
      const std::uint8_t* from = row + taps.first * image.channels + channel;
      float sum = 0;
      for (const float weight : taps.weights) {
        sum += weight * static_cast<float>(*from);
        from += image.channels;
      }
      *out++ = sum;
    }
  }
}

}  // namespace

Image scaled_image(const Image& image, const ImageScaling& to) {
  if (image.height == to.height && image.width == to.width) {
    return image;
  }
  const double down = static_cast<double>(to.height) / static_cast<double>(image.height);
  const double across = static_cast<double>(to.width) / static_cast<double>(image.width);
  const bool crop = to.fit == ImageScaling::Fit::crop;
  const double larger = std::max(down, across);
  const auto rows = taps_of(
      middle(image.height, to.height, crop ? larger : down), image.height, to.height, to.filter);
  const auto columns = taps_of(
      middle(image.width, to.width, crop ? larger : across), image.width, to.width, to.filter);
  Image made{.height = to.height, .width = to.width, .channels = image.channels};
  made.pixels.reserve(to.height * to.width * image.channels);
  // The last row is kept: the next new one may begin with it.
  std::vector<float> wide(to.width * image.channels);
  std::vector<float> sum(wide.size());
  std::size_t in_wide = image.height;
  for (const Taps& taps : rows) {
    std::fill(sum.begin(), sum.end(), 0.0f);
    for (std::size_t i = 0; i < taps.weights.size(); ++i) {
      if (taps.first + i != in_wide) {
        in_wide = taps.first + i;
        scale_row(image, in_wide, columns, wide.data());
      }
      for (std::size_t at = 0; at < sum.size(); ++at) {
        sum[at] += taps.weights[i] * wide[at];
      }
    }
    for (const float value : sum) {
      made.pixels.push_back(static_cast<std::uint8_t>(std::clamp(std::lround(value), 0l, 255l)));
    }
  }
  return made;
}

}  // namespace troupe
