// PNG by libpng's simplified interface, which comes back from errors by itself.
#include "runtime/data/image.hpp"

#include <png.h>

namespace troupe {

Result<Image> decode_png(std::span<const std::uint8_t> file, std::size_t pixels_max) {
  png_image head{};
  head.version = PNG_IMAGE_VERSION;
  const auto damaged = [&] {
    return Error{ErrorKind::data, concat("it is a damaged PNG image: ", head.message)};
  };
  if (png_image_begin_read_from_memory(&head, file.data(), file.size()) == 0) {
    return damaged();
  }
  if (auto right = check_image_sides(head.height, head.width, pixels_max); !right) {
    png_image_free(&head);
    return right.error();
  }
  head.format = PNG_FORMAT_RGB;
  head.flags |= PNG_IMAGE_FLAG_16BIT_sRGB;  // of 16 bits too, unless the file says otherwise
  Image image{.height = head.height, .width = head.width, .channels = 3};
  try {
    image.pixels.resize(PNG_IMAGE_SIZE(head));
  } catch (...) {
    png_image_free(&head);
    throw;
  }
  const png_color black{};
  // Frees what `head` holds, whatever comes of it.
  if (png_image_finish_read(&head, &black, image.pixels.data(), 0, nullptr) == 0) {
    return damaged();
  }
  return image;
}

}  // namespace troupe
