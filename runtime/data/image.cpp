#include "runtime/data/image.hpp"

#include "runtime/data/foreign.hpp"

#include <algorithm>
#include <array>

namespace troupe {
namespace {

constexpr std::array<std::uint8_t, 8> kPngBegins{0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
constexpr std::array<std::uint8_t, 3> kJpegBegins{0xff, 0xd8, 0xff};

bool begins_with(std::span<const std::uint8_t> file, std::span<const std::uint8_t> head) {
  return file.size() >= head.size() && std::equal(head.begin(), head.end(), file.begin());
}

}  // namespace

Result<Image> decode_image(std::span<const std::uint8_t> file, std::size_t pixels_max) {
  if (begins_with(file, kPngBegins)) {
    return decode_png(file, pixels_max);
  }
  if (begins_with(file, kJpegBegins)) {
    return decode_jpeg(file, pixels_max);
  }
  const std::string form = foreign_form(file, "IMAGE", Wanted::image);
  return Error{ErrorKind::data,
               file.empty()   ? "it is empty"
               : form.empty() ? "it begins neither as a PNG nor as a JPEG image"
                              : "it is no PNG or JPEG image: " + form};
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
    return Error{ErrorKind::data, concat("it is said to have ", width, " x ", height, " pixels")};
  }
  if (height > pixels_max / width) {
    return Error{ErrorKind::data,
                 concat("it is said to have ",
                        width,
                        " x ",
                        height,
                        " pixels, and right are ",
                        pixels_max,
                        " in all at most")};
  }
  return {};
}

}  // namespace troupe
