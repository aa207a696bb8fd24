// A PNG or JPEG file of others, decoded and scaled.
#include "runtime/data/image_scale.hpp"
#include "tests/fuzz/fuzz.hpp"
#include "tests/runtime/data/image_files.hpp"

namespace troupe::fuzz {

std::vector<std::string> seeds() {
  const Image colours = test::painted(
      9, 12, 3, [](std::size_t y, std::size_t x, std::size_t c) { return 20 * y + 9 * x + 5 * c; });
  const std::vector<std::uint8_t> clear(8 * 8 * 4, 99);
  return {test::png_file(colours),
          test::png_file(8, 8, PNG_FORMAT_RGBA, clear.data()),
          test::jpeg_file(colours),
          test::jpeg_file(colours, {.progressive = true})};
}

}  // namespace troupe::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace troupe;
  constexpr std::size_t kPixelsMax = std::size_t{1} << 16;
  const auto image = decode_image({data, size}, kPixelsMax);
  if (image) {
    for (const auto filter : {ImageScaling::Filter::area, ImageScaling::Filter::bilinear}) {
      const Image small = scaled_image(*image, {.height = 5, .width = 7, .filter = filter});
      TROUPE_CHECK(small.pixels.size() == 5 * 7 * image->channels, "[fuzz] pixels are missing");
    }
  }
  fuzz::tried(image);
  return 0;
}
