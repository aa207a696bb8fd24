#include "runtime/data/image.hpp"

#include "kernels/wording.hpp"
#include "runtime/data/foreign.hpp"

#include <algorithm>
#include <array>
#include <string_view>

namespace troupe {
namespace {

using namespace std::string_view_literals;

constexpr std::string_view kRiff = "RIFF";  // "WEBP" follows behind four bytes

struct ImageFormat {
  std::string_view begins;
  Result<Image> (*decode)(std::span<const std::uint8_t> file, std::size_t pixels_max);
};

constexpr std::array kImageFormats{ImageFormat{"\x89PNG\r\n\x1a\n"sv, &decode_png},
                                   ImageFormat{"\xff\xd8\xff"sv, &decode_jpeg},
                                   ImageFormat{kRiff, &decode_webp},
                                   ImageFormat{"II*\0"sv, &decode_tiff},
                                   ImageFormat{"MM\0*"sv, &decode_tiff},
                                   ImageFormat{"GIF8"sv, &decode_bmp_or_gif},
                                   ImageFormat{"BM"sv, &decode_bmp_or_gif}};

}  // namespace

Result<Image> decode_image(std::span<const std::uint8_t> file, std::size_t pixels_max) {
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  for (const ImageFormat& format : kImageFormats) {
    const bool riff = format.begins == kRiff;
    if (text.starts_with(format.begins) &&
        (!riff || text.substr(std::min<std::size_t>(8, text.size()), 4) == "WEBP")) {
      return format.decode(file, pixels_max);
    }
  }
  const std::string form = foreign_form(file, "", Wanted::image);
  return Error{ErrorKind::data,
               file.empty() ? "it is empty"
                            : concat(form.empty() ? "it does not begin as an image" : form,
                                     "; use PNG, JPEG, WebP, TIFF, BMP or GIF")};
}

Image grey_image(const Image& colour) {
  Image grey{.height = colour.height, .width = colour.width, .channels = 1};
  grey.pixels.resize(colour.height * colour.width);
  for (std::size_t i = 0; i < grey.pixels.size(); ++i) {
    const std::uint8_t* from = colour.pixels.data() + 3 * i;
    grey.pixels[i] =
        static_cast<std::uint8_t>((299 * from[0] + 587 * from[1] + 114 * from[2] + 500) / 1000);
  }
  return grey;
}

Result<void> check_image_sides(std::size_t height, std::size_t width, std::size_t pixels_max) {
  if (height == 0 || width == 0) {
    return Error{ErrorKind::data, concat("its header tells of ", width, " x ", height, " pixels")};
  }
  if (height > pixels_max / width) {
    return data_error("its header tells of {} x {} pixels; expected at most {} in all",
                      width,
                      height,
                      pixels_max);
  }
  return {};
}

}  // namespace troupe
