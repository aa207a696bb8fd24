// Decoding and scaling of images. What is decoded has been written by the libraries here.
#include "runtime/data/image.hpp"

#include "runtime/data/image_scale.hpp"
#include "tests/runtime/data/image_files.hpp"
#include "tests/support/catch.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

namespace image_test {

using namespace troupe;
using namespace troupe::test;

namespace {

Result<Image> decoded(const std::string& file, std::size_t pixels_max = kImagePixelsMax) {
  return decode_image({reinterpret_cast<const std::uint8_t*>(file.data()), file.size()},
                      pixels_max);
}

std::string refusal_of(const std::string& file) {
  const auto image = decoded(file);
  return image ? "none" : image.error().message;
}

/// Largest distance of two bytes.
int distance(const Bytes& a, const Bytes& b) {
  REQUIRE(a.size() == b.size());
  int most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    most = std::max(most, std::abs(a[i] - b[i]));
  }
  return most;
}

/// Colours that change slowly: JPEG keeps them nearly.
Image slow_colours(std::size_t height = 24, std::size_t width = 40) {
  return painted(height, width, 3, [](std::size_t y, std::size_t x, std::size_t c) {
    return 40 + 3 * x + 2 * y + 10 * c;
  });
}

Image one_row(const std::vector<int>& levels) {
  return painted(
      1, levels.size(), 1, [&](std::size_t, std::size_t x, std::size_t) { return levels[x]; });
}

/// With the four bytes at `at` as `number`, big-endian.
std::string with_number(std::string file, std::size_t at, std::uint32_t number) {
  for (int i = 0; i < 4; ++i) {
    file[at + static_cast<std::size_t>(i)] = static_cast<char>(number >> (24 - 8 * i));
  }
  return file;
}

/// CRC-32 of PNG, bit by bit.
std::uint32_t crc_of(const std::string& bytes) {
  std::uint32_t crc = 0xffffffff;
  for (const char byte : bytes) {
    crc ^= static_cast<std::uint8_t>(byte);
    for (int bit = 0; bit < 8; ++bit) {
      crc = crc & 1 ? crc >> 1 ^ 0xedb88320 : crc >> 1;
    }
  }
  return ~crc;
}

/// A PNG whose header says other sides, and is sound.
std::string png_with_sides(std::string file, std::uint32_t width, std::uint32_t height) {
  file = with_number(with_number(std::move(file), 16, width), 20, height);
  return with_number(file, 29, crc_of(file.substr(12, 17)));
}

/// A JPEG whose frame header says other sides.
std::string jpeg_with_sides(std::string file, int width, int height) {
  const std::size_t frame = file.find("\xff\xc0");
  REQUIRE(frame != file.npos);
  file[frame + 5] = static_cast<char>(height >> 8);
  file[frame + 6] = static_cast<char>(height);
  file[frame + 7] = static_cast<char>(width >> 8);
  file[frame + 8] = static_cast<char>(width);
  return file;
}

/// EXIF of one entry beside another: `way` is which way was up.
std::string exif_of(int way, bool big) {
  const auto number = [big](unsigned value, int bytes) {
    std::string text;
    for (int i = 0; i < bytes; ++i) {
      text += static_cast<char>(value >> 8 * (big ? bytes - 1 - i : i));
    }
    return text;
  };
  const std::string entries = number(0x110, 2) + number(2, 2) + number(1, 4) + number(0, 4) +
                              number(0x112, 2) + number(3, 2) + number(1, 4) +
                              number(static_cast<unsigned>(way), 2) + number(0, 2);
  return (big ? "MM" : "II") + number(42, 2) + number(8, 4) + number(2, 2) + entries + number(0, 4);
}

/// The quarters of a grey image that are bright, from the upper left one on, row by row: "1000".
std::string bright_quarters(const Image& image) {
  std::string text;
  for (const std::size_t y : {image.height / 4, image.height * 3 / 4}) {
    for (const std::size_t x : {image.width / 4, image.width * 3 / 4}) {
      text += image.pixels[3 * (y * image.width + x)] > 127 ? '1' : '0';
    }
  }
  return text;
}

}  // namespace

TEST_CASE("a PNG image comes back byte for byte") {
  const Image colours = painted(
      5, 7, 3, [](std::size_t y, std::size_t x, std::size_t c) { return 50 * y + 30 * x + 7 * c; });
  const auto back = decoded(png_file(colours));
  REQUIRE(back);
  CHECK(back->height == 5);
  CHECK(back->width == 7);
  CHECK(back->channels == 3);
  CHECK(back->pixels == colours.pixels);
}

TEST_CASE("a photo stands as the camera notes that it was seen") {
  // Bright at the upper left, and wider than high; by the eight ways of EXIF 2.3, section 4.6.4.
  const Image lying = painted(16, 32, 1, [](std::size_t y, std::size_t x, std::size_t) {
    return y < 8 && x < 16 ? 255 : 0;
  });
  const std::vector<std::string> seen{
      "1000", "0100", "0001", "0010", "1000", "0100", "0001", "0010"};
  for (int way = 1; way <= 8; ++way) {
    for (const bool big : {false, true}) {
      CAPTURE(way, big);
      const auto image = decoded(jpeg_file(lying, {.exif = exif_of(way, big)}));
      REQUIRE(image);
      CHECK(image->height == (way < 5 ? 16 : 32));
      CHECK(bright_quarters(*image) == seen[static_cast<std::size_t>(way - 1)]);
    }
  }
  // What is not told soundly is as if nothing were told.
  const std::string whole = exif_of(6, true);
  for (std::size_t length = 0; length < whole.size() - 6; ++length) {
    const auto image = decoded(jpeg_file(lying, {.exif = whole.substr(0, length)}));
    REQUIRE(image);
    CHECK(image->height == 16);
  }
  CHECK(decoded(jpeg_file(lying, {.exif = exif_of(9, false)}))->height == 16);
}

TEST_CASE(
    "a grey PNG has three equal channels, one of 16 bits its upper ones, and clear pixels are "
    "black") {
  const Image grey = one_row({0, 10, 128, 255});
  const auto back = decoded(png_file(grey));
  REQUIRE(back);
  CHECK(back->pixels == Bytes{0, 0, 0, 10, 10, 10, 128, 128, 128, 255, 255, 255});
  CHECK(grey_image(*back).pixels == grey.pixels);

  const std::vector<std::uint8_t> clear{200, 100, 50, 255, 200, 100, 50, 0};
  const auto composed = decoded(png_file(1, 2, PNG_FORMAT_RGBA, clear.data()));
  REQUIRE(composed);
  CHECK(composed->pixels == Bytes{200, 100, 50, 0, 0, 0});

  // Linear light: 0x3333 / 0xffff = 0.2, which sRGB writes as 124 of 255, and a gamma of 2.2 as 123.
  const std::vector<std::uint16_t> deep{0x3333, 0xffff};
  const auto shown = decoded(png_file(1, 2, PNG_FORMAT_LINEAR_Y, deep.data()));
  REQUIRE(shown);
  CHECK(distance(shown->pixels, Bytes{124, 124, 124, 255, 255, 255}) <= 1);
}

TEST_CASE("a JPEG image comes back nearly, progressive or not") {
  const Image colours = slow_colours();
  for (const bool progressive : {false, true}) {
    const auto back =
        decoded(jpeg_file(colours, {.progressive = progressive, .whole_colours = true}));
    REQUIRE(back);
    CHECK(back->height == 24);
    CHECK(back->width == 40);
    CHECK(distance(back->pixels, colours.pixels) <= 4);
  }
  const Image grey =
      painted(16, 16, 1, [](std::size_t y, std::size_t x, std::size_t) { return 8 * y + 4 * x; });
  const auto back = decoded(jpeg_file(grey));
  REQUIRE(back);
  CHECK(back->channels == 3);
  CHECK(distance(grey_image(*back).pixels, grey.pixels) <= 4);
}

/// Bytes of the digits 0 to f, two each.
std::string bytes_of_hex(std::string_view hex) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16));
  }
  return bytes;
}

TEST_CASE("WebP, TIFF, BMP and GIF are read") {
  // By Pillow 13, of 3 x 2 pixels: red, green, blue; (10, 20, 30), white, black. WebP's red is seen by half.
  const Bytes colours{255, 0, 0, 0, 255, 0, 0, 0, 255, 10, 20, 30, 255, 255, 255, 0, 0, 0};

  struct Case {
    const char* hex;
    const char* form;
    int red;
  };

  for (const Case& c :
       std::vector<Case>{{"424d4e000000000000003600000028000000030000000200000001001800000000001800"
                          "0000c40e0000c40e0000"
                          "00000000000000001e140affffff0000000000000000ff00ff00ff0000000000",
                          "BMP",
                          255},
                         {"47494638376103000200820000ffffff00ff000a141eff00000000ff0000000000000000"
                          "002c00000000030002"
                          "00000809000704202000408180003b",
                          "GIF",
                          255},
                         {"49492a0018000000803fc01038141014140f3fe1503004040a0000010300010000000300"
                          "000001010300010000"
                          "000200000002010300030000009600000003010300010000000500000006010300010000"
                          "00020000001101040001"
                          "000000080000001501030001000000030000001601030001000000020000001701040001"
                          "000000100000001c0103"
                          "00010000000100000000000000080008000800",
                          "TIFF",
                          255},
                         {"5249464640000000574542505650384c330000002f024000102f40906dd339dc5ff51a42"
                          "8284eeffbd0a04084"
                          "6fc5f2290b4b1f978f2079c9dbcb855100890215e2c88e87fe40000",
                          "WebP",
                          128}}) {
    INFO(c.form);
    const std::string file = bytes_of_hex(c.hex);
    const auto image = decoded(file);
    REQUIRE(image);
    CHECK((image->height == 2 && image->width == 3 && image->channels == 3));
    Bytes expected = colours;
    expected[0] = static_cast<std::uint8_t>(c.red);
    CHECK(image->pixels == expected);
    CHECK_THAT(decoded(file, 5).error().message, says("3 x 2 pixels; expected at most 5"));
    CHECK_THAT(refusal_of(file.substr(0, 20)), says(concat("it is a damaged ", c.form, " image")));
    for (std::size_t left = 1; left < file.size(); ++left) {
      const auto cut = decoded(file.substr(0, left));  // an image, or why it is none
      CHECK((cut || !cut.error().message.empty()));
    }
  }
  const auto deep =
      decoded(bytes_of_hex("49492a00080000000900000104000100000003000000010104000100000001000000020"
                           "10300010000001000000003"
                           "010300010000000100000006010300010000000100000011010400010000007a0000001"
                           "60104000100000001000000"
                           "1701040001000000060000001c01030001000000010000000000000000000707ffff"));
  REQUIRE(deep);
  CHECK(deep->pixels == Bytes{0, 0, 0, 7, 7, 7, 255, 255, 255});
}

TEST_CASE("what is no image, or not a whole one, is told") {
  CHECK(refusal_of("") == "it is empty");
  CHECK(refusal_of("hello") ==
        "it does not begin as an image; use PNG, JPEG, WebP, TIFF, BMP or GIF");
  CHECK(refusal_of("%PDF-1.4") == "it is a PDF document; use PNG, JPEG, WebP, TIFF, BMP or GIF");
  const Image colours = slow_colours();
  for (const std::string& whole :
       {png_file(colours), jpeg_file(colours), jpeg_file(colours, {.progressive = true})}) {
    REQUIRE(decoded(whole));
    for (const std::size_t left : {std::size_t{9}, std::size_t{40}, whole.size() / 2}) {
      INFO(left << " of " << whole.size());
      CHECK_THAT(refusal_of(whole.substr(0, left)), says("it is a damaged "));
    }
  }
  std::string wrong_bit = png_file(colours);
  wrong_bit[wrong_bit.size() / 2] ^= 4;
  CHECK_THAT(refusal_of(wrong_bit), says("it is a damaged PNG image: "));
  CHECK_THAT(refusal_of(jpeg_file(colours).substr(0, jpeg_file(colours).size() - 40)),
             says("it is a damaged JPEG image: "));
  const Image four = painted(8, 8, 4, [](std::size_t, std::size_t, std::size_t) { return 9; });
  CHECK(refusal_of(jpeg_file(four, {.cmyk = true})) ==
        "it is a JPEG image in the colours of print (CMYK); save it in RGB or grey");
}

TEST_CASE("an image that promises more pixels than anybody has is refused before memory is taken") {
  const Image small = slow_colours(16, 16);
  CHECK_THAT(refusal_of(png_with_sides(png_file(small), 60000, 60000)),
             says("its header tells of 60000 x 60000 pixels"));
  CHECK_THAT(refusal_of(jpeg_with_sides(jpeg_file(small), 65500, 65500)),
             says("its header tells of 65500 x 65500 pixels"));
  CHECK_THAT(refusal_of(png_with_sides(png_file(small), 2000000000, 1)), says("damaged PNG"));
  CHECK_THAT(refusal_of(png_with_sides(png_file(small), 0, 5)), says("damaged PNG"));
  CHECK_FALSE(decoded(png_file(small), 255));
  CHECK(decoded(png_file(small), 256));
  // More rows than there are: the file is too short for them.
  CHECK_THAT(refusal_of(jpeg_with_sides(jpeg_file(small), 16, 4000)), says("damaged JPEG"));
}

TEST_CASE("a progressive image of scans without end is given up") {
  const Image small = slow_colours(16, 16);
  const std::string whole = jpeg_file(small, {.progressive = true});
  // The last scan again and again.
  const std::size_t last = whole.rfind("\xff\xda");
  std::string many = whole.substr(0, whole.size() - 2);
  for (int i = 0; i < 600; ++i) {
    many += whole.substr(last, whole.size() - 2 - last);
  }
  CHECK_THAT(refusal_of(many + "\xff\xd9"), says("damaged JPEG image"));
}

TEST_CASE("the area filter takes means, and cuts the longer side on both sides alike") {
  const Image row = one_row({10, 30, 50, 70, 90, 110, 130, 150});
  CHECK(scaled_image(row, {.height = 1, .width = 4, .fit = ImageScaling::Fit::stretch}).pixels ==
        Bytes{20, 60, 100, 140});
  // Three of the eight: pixels of 8/3. The first has 10, 30 and two thirds of 50.
  CHECK(scaled_image(row, {.height = 1, .width = 3, .fit = ImageScaling::Fit::stretch}).pixels ==
        Bytes{28, 80, 133});
  CHECK(scaled_image(row, {.height = 1, .width = 4}).pixels == Bytes{50, 70, 90, 110});
  CHECK(scaled_image(row, {.height = 1, .width = 1}).pixels == Bytes{80});
  // Of two rows, the upper with 0 and the lower with 200.
  const Image rows =
      painted(2, 2, 1, [](std::size_t y, std::size_t, std::size_t) { return 200 * y; });
  CHECK(scaled_image(rows, {.height = 1, .width = 1}).pixels == Bytes{100});
  CHECK(scaled_image(rows, {.height = 4, .width = 4}).pixels ==
        Bytes{0, 0, 0, 0, 0, 0, 0, 0, 200, 200, 200, 200, 200, 200, 200, 200});
  CHECK(scaled_image(rows, {.height = 2, .width = 2}).pixels == rows.pixels);
}

TEST_CASE("the bilinear filter goes from pixel to pixel") {
  const Image row = one_row({0, 100});
  const ImageScaling four{.height = 1,
                          .width = 4,
                          .fit = ImageScaling::Fit::stretch,
                          .filter = ImageScaling::Filter::bilinear};
  CHECK(scaled_image(row, four).pixels == Bytes{0, 25, 75, 100});
  ImageScaling one = four;
  one.width = 1;
  CHECK(scaled_image(one_row({10, 30, 50, 70}), one).pixels == Bytes{40});
  CHECK(scaled_image(one_row({77}), four).pixels == Bytes{77, 77, 77, 77});
}

TEST_CASE("an image of one colour keeps it, whatever the sides") {
  const Image red =
      painted(11, 17, 3, [](std::size_t, std::size_t, std::size_t c) { return c == 0 ? 201 : 33; });
  for (const auto filter : {ImageScaling::Filter::area, ImageScaling::Filter::bilinear}) {
    for (const auto fit : {ImageScaling::Fit::crop, ImageScaling::Fit::stretch}) {
      for (const std::size_t side : {1, 2, 5, 11, 16, 40}) {
        const Image made =
            scaled_image(red, {.height = side, .width = side + 3, .fit = fit, .filter = filter});
        REQUIRE(made.pixels.size() == side * (side + 3) * 3);
        for (std::size_t i = 0; i < made.pixels.size(); ++i) {
          REQUIRE(made.pixels[i] == (i % 3 == 0 ? 201 : 33));
        }
      }
    }
  }
}

}  // namespace image_test
