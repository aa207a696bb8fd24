// JPEG by libjpeg-turbo. Its errors are long jumps, so that nothing with a destructor may be made in a
// function that they lead to.
#include "runtime/data/image.hpp"

#include <algorithm>
#include <csetjmp>
#include <cstdio>
#include <cstring>
#include <utility>
// It needs the latter of those before.
#include <jerror.h>
#include <jpeglib.h>

namespace troupe {
namespace {

constexpr int kScansMax = 500;  // of a progressive image; each costs time, and few bytes make one

class JpegDecoder {
 public:
  JpegDecoder() {
    info_.err = jpeg_std_error(&errors_);
    errors_.error_exit = [](j_common_ptr info) {
      self(info).leave(info);
    };
    errors_.emit_message = [](j_common_ptr info, int level) {
      self(info).note(info, level);
    };
    info_.client_data = this;
  }

  ~JpegDecoder() { jpeg_destroy_decompress(&info_); }

  JpegDecoder(const JpegDecoder&) = delete;
  JpegDecoder& operator=(const JpegDecoder&) = delete;

  /// What is wrong, where a function has returned false.
  const char* message() const { return message_; }

  /// Whether it is in the colours of print, which are no RGB without the profile of the ink.
  bool printed() const { return printed_; }

  /// EXIF's: which way was up. 1, as the pixels lie, where nothing sound is said.
  int orientation() const {
    for (const jpeg_marker_struct* m = info_.marker_list; m != nullptr; m = m->next) {
      const std::span exif(m->data, m->data_length);
      if (m->marker == JPEG_APP0 + 1 && exif.size() >= 14 &&
          std::memcmp(m->data, "Exif\0", 6) == 0) {
        return orientation_of(exif.subspan(6));
      }
    }
    return 1;
  }

  std::size_t height() const { return info_.image_height; }

  std::size_t width() const { return info_.image_width; }

  bool read_header(std::span<const std::uint8_t> file) {
    if (setjmp(back_) != 0) {
      return false;
    }
    jpeg_create_decompress(&info_);
    progress_.progress_monitor = [](j_common_ptr info) {
      self(info).count_scans();
    };
    info_.progress = &progress_;
    jpeg_mem_src(&info_, file.data(), file.size());
    jpeg_save_markers(&info_, JPEG_APP0 + 1, 0xffff);  // where EXIF is
    jpeg_read_header(&info_, TRUE);
    info_.out_color_space = JCS_RGB;
    printed_ = info_.jpeg_color_space == JCS_CMYK || info_.jpeg_color_space == JCS_YCCK;
    return true;
  }

  /// Into (height, width, 3).
  bool read_pixels(std::uint8_t* pixels) {
    if (setjmp(back_) != 0) {
      return false;
    }
    jpeg_start_decompress(&info_);
    while (info_.output_scanline < info_.output_height) {
      JSAMPROW row = pixels + std::size_t{info_.output_scanline} * info_.output_width * 3;
      jpeg_read_scanlines(&info_, &row, 1);
    }
    jpeg_finish_decompress(&info_);
    return true;
  }

 private:
  /// From the first directory of a TIFF file (TIFF 6.0, section 2; EXIF 2.3, tag 0x112).
  static int orientation_of(std::span<const JOCTET> tiff) {
    const std::size_t high = tiff[0] == 'M' ? 0 : 1;  // big-endian, or little
    const auto two = [&](std::size_t at) -> std::size_t {
      return at + 2 <= tiff.size() ? tiff[at + high] << 8 | tiff[at + 1 - high] : 0;
    };
    const std::size_t first = high == 0 ? two(4) << 16 | two(6) : two(6) << 16 | two(4);
    for (std::size_t i = 0; i < two(first); ++i) {
      const std::size_t entry = first + 2 + 12 * i;
      if (two(entry) == 0x112) {
        const std::size_t way = two(entry + 8);
        return way >= 1 && way <= 8 ? static_cast<int>(way) : 1;
      }
    }
    return 1;
  }

  static JpegDecoder& self(j_common_ptr info) {
    return *static_cast<JpegDecoder*>(info->client_data);
  }

  [[noreturn]] void leave(j_common_ptr info) {
    errors_.format_message(info, message_);
    std::longjmp(back_, 1);
  }

  /// Warnings are of data that is not as it should be. Cameras write some of what is let pass here, and no
  /// pixel is lost by it.
  void note(j_common_ptr info, int level) {
    const int code = errors_.msg_code;
    const bool harmless = code == JWRN_EXTRANEOUS_DATA || code == JWRN_ADOBE_XFORM ||
                          code == JWRN_JFIF_MAJOR || code == JWRN_TOO_MUCH_DATA;
    if (level < 0 && !harmless) {
      leave(info);
    }
  }

  void count_scans() {
    if (info_.input_scan_number > kScansMax) {
      std::snprintf(message_, sizeof message_, "it has more than %d scans", kScansMax);
      std::longjmp(back_, 1);
    }
  }

  jpeg_decompress_struct info_{};
  jpeg_error_mgr errors_{};
  jpeg_progress_mgr progress_{};
  bool printed_ = false;
  std::jmp_buf back_{};
  char message_[JMSG_LENGTH_MAX] = "";
};

/// The image as it was seen, where `orientation` is EXIF's: 1 as it lies, 3 headlong, 6 and 8 on its sides; 2, 4, 5 and 7
/// are these in a mirror.
Image upright(Image from, int orientation) {
  if (orientation == 1) {
    return from;
  }
  const bool across = orientation >= 5;
  const bool mirrored =
      orientation == 2 || orientation == 3 || orientation == 6 || orientation == 7;
  const bool headlong =
      orientation == 3 || orientation == 4 || orientation == 7 || orientation == 8;
  Image to{.height = across ? from.width : from.height,
           .width = across ? from.height : from.width,
           .channels = 3};
  to.pixels.resize(from.pixels.size());
  for (std::size_t y = 0; y < to.height; ++y) {
    for (std::size_t x = 0; x < to.width; ++x) {
      const std::size_t column = mirrored ? to.width - 1 - x : x;
      const std::size_t row = headlong ? to.height - 1 - y : y;
      const std::size_t at = across ? column * from.width + row : row * from.width + column;
      std::copy_n(&from.pixels[3 * at], 3, &to.pixels[3 * (y * to.width + x)]);
    }
  }
  return to;
}

}  // namespace

Result<Image> decode_jpeg(std::span<const std::uint8_t> file, std::size_t pixels_max) {
  JpegDecoder decoder;
  const auto damaged = [&] {
    return Error{ErrorKind::data, concat("it is a damaged JPEG image: ", decoder.message())};
  };
  if (!decoder.read_header(file)) {
    return damaged();
  }
  if (decoder.printed()) {
    return Error{ErrorKind::data,
                 "it is a JPEG image in the colours of print (CMYK); save it in RGB or grey"};
  }
  TROUPE_TRY(check_image_sides(decoder.height(), decoder.width(), pixels_max));
  const int orientation = decoder.orientation();  // the markers are gone once the pixels are read
  Image image{.height = decoder.height(), .width = decoder.width(), .channels = 3};
  image.pixels.resize(image.height * image.width * 3);
  if (!decoder.read_pixels(image.pixels.data())) {
    return damaged();
  }
  return upright(std::move(image), orientation);
}

}  // namespace troupe
