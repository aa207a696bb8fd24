// WebP by libwebp, TIFF by libtiff, BMP and GIF by stb_image.
#include "runtime/data/image.hpp"

#include <tiffio.h>
#include <webp/decode.h>

#define STB_IMAGE_IMPLEMENTATION
#define STB_IMAGE_STATIC
#define STBI_NO_STDIO
#define STBI_NO_HDR
#define STBI_NO_LINEAR
#define STBI_ONLY_BMP
#define STBI_ONLY_GIF
#include <stb/stb_image.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <memory>

namespace troupe {
namespace {

constexpr tmsize_t kTiffPieceMax = tmsize_t{1} << 29;  // bytes that libtiff may take at once

/// Of (height, width, 4) bytes, whose fourth is how much is seen.
Image before_black(const std::uint8_t* rgba, std::size_t height, std::size_t width) {
  Image image{.height = height, .width = width, .channels = 3};
  for (std::size_t i = 0; i < height * width; ++i) {
    for (std::size_t c = 0; c < 3; ++c) {
      image.pixels.push_back(
          static_cast<std::uint8_t>((rgba[4 * i + c] * rgba[4 * i + 3] + 127) / 255));
    }
  }
  return image;
}

Error damaged_image(const char* form, const std::string& why = "") {
  return {ErrorKind::data, concat("it is a damaged ", form, why.empty() ? "" : ": ", why)};
}

/// Sides as a library tells them.
Result<void> check_sides(std::int64_t height, std::int64_t width, std::size_t pixels_max) {
  return check_image_sides(static_cast<std::size_t>(std::max<std::int64_t>(0, height)),
                           static_cast<std::size_t>(std::max<std::int64_t>(0, width)),
                           pixels_max);
}

/// A file in memory, as libtiff reads one.
struct TiffFile {
  std::span<const std::uint8_t> bytes;
  std::size_t at = 0;
  std::string wrong{};  // what libtiff says last

  static int keep(TIFF*, void* file, const char*, const char* format, va_list words) {
    char text[256] = "";
    std::vsnprintf(text, sizeof text, format, words);
    static_cast<TiffFile*>(file)->wrong = text;
    return 1;  // nothing else is told of it
  }

  static tmsize_t read(thandle_t handle, void* to, tmsize_t count) {
    auto& file = *static_cast<TiffFile*>(handle);
    const std::size_t left = file.bytes.size() - std::min(file.at, file.bytes.size());
    const std::size_t take = std::min(left, static_cast<std::size_t>(count));
    if (take > 0) {
      std::memcpy(to, file.bytes.data() + file.at, take);
    }
    file.at += take;
    return static_cast<tmsize_t>(take);
  }

  static toff_t seek(thandle_t handle, toff_t offset, int whence) {
    auto& file = *static_cast<TiffFile*>(handle);
    file.at = offset + (whence == SEEK_CUR ? file.at : whence == SEEK_END ? file.bytes.size() : 0);
    return file.at;
  }
};

}  // namespace

Result<Image> decode_webp(std::span<const std::uint8_t> file, std::size_t pixels_max) {
  int width = 0;
  int height = 0;
  if (WebPGetInfo(file.data(), file.size(), &width, &height) == 0) {
    return damaged_image("WebP image");
  }
  TROUPE_TRY(check_sides(height, width, pixels_max));
  const std::unique_ptr<std::uint8_t, decltype(&WebPFree)> pixels(
      WebPDecodeRGBA(file.data(), file.size(), &width, &height), &WebPFree);
  return pixels
             ? before_black(
                   pixels.get(), static_cast<std::size_t>(height), static_cast<std::size_t>(width))
             : Result<Image>(damaged_image("WebP image, or one that moves"));
}

Result<Image> decode_tiff(std::span<const std::uint8_t> file, std::size_t pixels_max) {
  TiffFile source{.bytes = file};
  const std::unique_ptr<TIFFOpenOptions, decltype(&TIFFOpenOptionsFree)> options(
      TIFFOpenOptionsAlloc(), &TIFFOpenOptionsFree);
  TIFFOpenOptionsSetMaxSingleMemAlloc(options.get(), kTiffPieceMax);
  TIFFOpenOptionsSetErrorHandlerExtR(options.get(), &TiffFile::keep, &source);
  TIFFOpenOptionsSetWarningHandlerExtR(
      options.get(), [](TIFF*, void*, const char*, const char*, va_list) { return 1; }, nullptr);
  const std::unique_ptr<TIFF, decltype(&TIFFClose)> tiff(
      TIFFClientOpenExt(
          "",
          "rm",
          &source,
          &TiffFile::read,
          [](thandle_t, void*, tmsize_t) { return tmsize_t{0}; },
          &TiffFile::seek,
          [](thandle_t) { return 0; },
          [](thandle_t handle) -> toff_t { return static_cast<TiffFile*>(handle)->bytes.size(); },
          nullptr,
          nullptr,
          options.get()),
      &TIFFClose);
  std::uint32_t width = 0;
  std::uint32_t height = 0;
  if (!tiff || TIFFGetField(tiff.get(), TIFFTAG_IMAGEWIDTH, &width) == 0 ||
      TIFFGetField(tiff.get(), TIFFTAG_IMAGELENGTH, &height) == 0) {
    return damaged_image("TIFF image", source.wrong);
  }
  TROUPE_TRY(check_sides(height, width, pixels_max));
  char why[1024] = "";
  if (TIFFRGBAImageOK(tiff.get(), why) == 0) {
    return Error{ErrorKind::data, concat("it is a TIFF image of a kind that is not read: ", why)};
  }
  std::vector<std::uint32_t> pixels(std::size_t{width} * height);
  if (TIFFReadRGBAImageOriented(tiff.get(), width, height, pixels.data(), ORIENTATION_TOPLEFT, 1) ==
      0) {
    return damaged_image("TIFF image", source.wrong);
  }
  Image image{.height = height, .width = width, .channels = 3};
  for (const std::uint32_t pixel : pixels) {  // its colours stand before black already
    for (const std::uint32_t byte : {TIFFGetR(pixel), TIFFGetG(pixel), TIFFGetB(pixel)}) {
      image.pixels.push_back(static_cast<std::uint8_t>(byte));
    }
  }
  return image;
}

Result<Image> decode_bmp_or_gif(std::span<const std::uint8_t> file, std::size_t pixels_max) {
  const char* const form = file[0] == 'B' ? "BMP image" : "GIF image";
  const int size = static_cast<int>(file.size());  // of 256 MiB at most
  int width = 0;
  int height = 0;
  int channels = 0;
  if (stbi_info_from_memory(file.data(), size, &width, &height, &channels) == 0) {
    return damaged_image(form, stbi_failure_reason());
  }
  TROUPE_TRY(check_sides(height, width, pixels_max));
  const std::unique_ptr<std::uint8_t, decltype(&stbi_image_free)> pixels(
      stbi_load_from_memory(file.data(), size, &width, &height, &channels, 4), &stbi_image_free);
  return pixels
             ? before_black(
                   pixels.get(), static_cast<std::size_t>(height), static_cast<std::size_t>(width))
             : Result<Image>(damaged_image(form, stbi_failure_reason()));
}

}  // namespace troupe
