// Images of others, as pixels, told apart by their first bytes.
#pragma once

#include "kernels/result.hpp"
#include "runtime/data/input_file.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace troupe {

/// On the host, row by row from the top.
struct Image {
  std::size_t height = 0;
  std::size_t width = 0;
  std::size_t channels = 0;  // 3: red, green, blue; 1: grey
  Bytes pixels{};            // (height, width, channels)
};

/// Pixels that an image may have: what would be unpacked of a few bytes is bounded by it.
inline constexpr std::size_t kImagePixelsMax = std::size_t{1} << 26;

/// The image that a file holds, in colour, 8 bits a channel; grey ones have three equal channels. What
/// is transparent stands before black. Error (data): what is wrong, to stand behind "... is not usable: ":
/// no image, one that ends too early or is damaged, or one of more than `pixels_max` pixels, for which no
/// memory is taken.
Result<Image> decode_image(std::span<const std::uint8_t> file,
                           std::size_t pixels_max = kImagePixelsMax);

/// Of a colour image the luma of JPEG (ITU-R BT.601): 0.299 red + 0.587 green + 0.114 blue, rounded.
Image grey_image(const Image& colour);

/// decode_image() by format, for files that begin as such. Of a GIF image that moves the first picture.
Result<Image> decode_png(std::span<const std::uint8_t> file, std::size_t pixels_max);
Result<Image> decode_jpeg(std::span<const std::uint8_t> file, std::size_t pixels_max);
Result<Image> decode_webp(std::span<const std::uint8_t> file, std::size_t pixels_max);
Result<Image> decode_tiff(std::span<const std::uint8_t> file, std::size_t pixels_max);
Result<Image> decode_bmp_or_gif(std::span<const std::uint8_t> file, std::size_t pixels_max);

/// Error (data) where an image of these sides is too large to be unpacked.
Result<void> check_image_sides(std::size_t height, std::size_t width, std::size_t pixels_max);

}  // namespace troupe
