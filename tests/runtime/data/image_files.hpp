// PNG and JPEG files of a test's own, made by the libraries.
#pragma once

#include "runtime/data/image.hpp"

#include <jpeglib.h>
#include <png.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <utility>

namespace troupe::test {

/// An image of 1 or 3 channels whose byte (y, x, c) is paint(y, x, c).
template <class Paint>
Image painted(std::size_t height, std::size_t width, std::size_t channels, Paint&& paint) {
  Image image{.height = height, .width = width, .channels = channels};
  for (std::size_t y = 0; y < height; ++y) {
    for (std::size_t x = 0; x < width; ++x) {
      for (std::size_t c = 0; c < channels; ++c) {
        image.pixels.push_back(static_cast<std::uint8_t>(paint(y, x, c)));
      }
    }
  }
  return image;
}

/// Of `format` (PNG_FORMAT_RGB, ...), in which `pixels` are.
inline std::string png_file(png_uint_32 height,
                            png_uint_32 width,
                            png_uint_32 format,
                            const void* pixels) {
  png_image head{};
  head.version = PNG_IMAGE_VERSION;
  head.height = height;
  head.width = width;
  head.format = format;
  std::string file(PNG_IMAGE_PNG_SIZE_MAX(head), '\0');
  png_alloc_size_t size = file.size();
  if (png_image_write_to_memory(&head, file.data(), &size, 0, pixels, 0, nullptr) == 0) {
    throw std::runtime_error(head.message);
  }
  file.resize(size);
  return file;
}

inline std::string png_file(const Image& image) {
  return png_file(static_cast<png_uint_32>(image.height),
                  static_cast<png_uint_32>(image.width),
                  image.channels == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB,
                  image.pixels.data());
}

struct JpegForm {
  bool progressive = false;
  int quality = 95;
  bool whole_colours = false;  // as many as there are pixels, else one for four
  bool cmyk = false;           // `image` has four channels
  std::string exif{};          // behind "Exif\0\0"; empty: there is none
};

inline std::string jpeg_file(const Image& image, const JpegForm& form = {}) {
  jpeg_compress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  unsigned char* bytes = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&info, &bytes, &size);
  info.image_height = static_cast<JDIMENSION>(image.height);
  info.image_width = static_cast<JDIMENSION>(image.width);
  info.input_components = static_cast<int>(image.channels);
  info.in_color_space = form.cmyk ? JCS_CMYK : image.channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
  jpeg_set_defaults(&info);
  jpeg_set_quality(&info, form.quality, TRUE);
  if (form.progressive) {
    jpeg_simple_progression(&info);
  }
  if (form.whole_colours) {
    info.comp_info[0].h_samp_factor = info.comp_info[0].v_samp_factor = 1;
  }
  jpeg_start_compress(&info, TRUE);
  if (!form.exif.empty()) {
    const std::string marker = std::string("Exif\0\0", 6) + form.exif;
    jpeg_write_marker(&info,
                      JPEG_APP0 + 1,
                      reinterpret_cast<const JOCTET*>(marker.data()),
                      static_cast<unsigned>(marker.size()));
  }
  while (info.next_scanline < info.image_height) {
    auto* row = const_cast<std::uint8_t*>(image.pixels.data()) +
                info.next_scanline * image.width * image.channels;
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  std::string file(reinterpret_cast<char*>(bytes), size);
  jpeg_destroy_compress(&info);
  std::free(bytes);
  return file;
}

}  // namespace troupe::test
