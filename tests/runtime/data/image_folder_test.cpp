// Folders of images. The tests make them through libpng and libjpeg-turbo.
#include "runtime/data/image_folder.hpp"

#include "experiment.pb.h"
#include "messages/experiment.hpp"
#include "runtime/data/loaders.hpp"
#include "runtime/data/preparation.hpp"
#include "tests/runtime/data/files.hpp"
#include "tests/runtime/data/image_files.hpp"
#include "tests/runtime/data/samples.hpp"
#include "tests/support/catch.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

namespace image_folder_test {

using namespace troupe;
using namespace troupe::test;

namespace {

namespace fs = std::filesystem;

Image plain(int red, int green, int blue, std::size_t height = 4, std::size_t width = 4) {
  const int colour[3]{red, green, blue};
  return painted(
      height, width, 3, [&](std::size_t, std::size_t, std::size_t c) { return colour[c]; });
}

std::string plain_png(int level) {
  return png_file(plain(level, level, level));
}

/// A folder of images, and options as resolve() leaves them.
struct Photos {
  explicit Photos(const std::vector<std::string>& assignments = {}) {
    for (const std::string& assignment : {"path=" + folder.path(),
                                          std::string("height=4"),
                                          std::string("width=4"),
                                          std::string("threads=3")}) {
      set(assignment);
    }
    for (const std::string& assignment : assignments) {
      set(assignment);
    }
  }

  void set(const std::string& assignment) {
    REQUIRE(set_value(e, "data.folder." + assignment));
    REQUIRE(resolve(e));
  }

  Result<std::shared_ptr<const Dataset>> open(std::uint64_t seed = 1,
                                              const Preparation* prepared = nullptr) const {
    return open_image_folder(e.data().folder(), seed, prepared);
  }

  /// What is wrong, with paths as they are within the folder; "none".
  std::string refusal() const {
    const auto opened = open();
    std::string message = opened ? std::string("none") : opened.error().message;
    CHECK((opened || opened.error().kind == ErrorKind::data));
    for (std::size_t at; (at = message.find(folder.path())) != message.npos;) {
      message.replace(at, folder.path().size(), ".");
    }
    return message;
  }

  TemporaryFolder folder;
  proto::Experiment e;
};

/// 200 images of 40 classes' worth of sides and forms: class 0 is reddish, class 1 greenish, class 2 bluish.
void write_two_hundred(const TemporaryFolder& folder) {
  const char* classes[3]{"cherry", "lime", "plum"};
  for (std::size_t i = 0; i < 200; ++i) {
    const std::size_t label = i % 3;
    const Image image =
        painted(9 + i % 5, 8 + i % 7, 3, [&](std::size_t y, std::size_t x, std::size_t c) {
          return (c == label ? 180 : 40) + 3 * ((x + y + i) % 9);
        });
    const std::string name = concat(classes[label], "/", 100 + i, i % 2 == 0 ? ".png" : ".jpg");
    folder.write(name,
                 i % 2 == 0 ? png_file(image) : jpeg_file(image, {.progressive = i % 4 == 1}));
  }
}

Gathered all_of(const Dataset& data, Split split) {
  return gather(data, split, range(0, data.size(split)));
}

}  // namespace

TEST_CASE("two hundred images of three classes are samples with labels, names and scales") {
  Photos photos({"height=6", "width=8"});
  write_two_hundred(photos.folder);
  const auto data = photos.open();
  REQUIRE(data);
  CHECK((*data)->size(Split::train) == 180);
  CHECK((*data)->size(Split::test) == 20);
  CHECK((*data)->sample_shape() == Shape{6, 8, 3});
  CHECK((*data)->classes() == 3);
  REQUIRE((*data)->preparation());
  CHECK((*data)->preparation()->classes == std::vector<std::string>{"cherry", "lime", "plum"});
  const Gathered train = all_of(**data, Split::train);
  std::vector<double> sum(3);
  std::vector<double> squares(3);
  for (std::size_t i = 0; i < train.x.size(); ++i) {
    sum[i % 3] += train.x[i];
    squares[i % 3] += train.x[i] * train.x[i];
  }
  const double count = static_cast<double>(train.x.size() / 3);
  for (std::size_t c = 0; c < 3; ++c) {
    CHECK(std::abs(sum[c] / count) < 1e-5);
    CHECK(squares[c] / count == Approx(1).epsilon(1e-5));
  }
  // The channel of its class is the brightest of a sample.
  for (const Split split : {Split::train, Split::test}) {
    const Gathered part = all_of(**data, split);
    for (std::size_t i = 0; i < part.labels.size(); ++i) {
      const float* first = part.x.data() + i * 6 * 8 * 3;
      REQUIRE(std::max_element(first, first + 3) - first == part.labels[i]);
    }
  }
}

TEST_CASE("the samples do not depend on threads, or on whether they are kept") {
  Photos photos;
  write_two_hundred(photos.folder);
  const auto kept = photos.open();
  photos.set("threads=1");
  const auto alone = photos.open();
  photos.set("memory=0");
  photos.set("threads=4");
  const auto streamed = photos.open();
  const auto other = photos.open(2);
  REQUIRE((kept && alone && streamed && other));
  for (const Split split : {Split::train, Split::test}) {
    const Gathered due = all_of(**kept, split);
    CHECK(due == all_of(**alone, split));
    CHECK(due == all_of(**streamed, split));
    CHECK(due != all_of(**other, split));  // another draw of the test samples
  }
}

TEST_CASE("an image that becomes unusable after the beginning is told when its turn comes") {
  Photos photos({"memory=0"});
  for (int i = 0; i < 10; ++i) {
    photos.folder.write(concat(i % 2 == 0 ? "a/" : "b/", i, ".png"), plain_png(10 * i));
  }
  const auto data = photos.open();
  REQUIRE(data);
  fs::remove_all(photos.folder / "a");
  CHECK_THROWS_WITH(all_of(**data, Split::train), says(".png is not usable: it cannot be opened"));
}

TEST_CASE("bytes become what the keys say") {
  Photos photos({"normalize=false", "test_share=0.5"});
  photos.folder.write("a/1.png", png_file(plain(255, 0, 51)));
  photos.folder.write("b/1.png", png_file(plain(255, 0, 51)));
  const auto plain_scale = photos.open();
  REQUIRE(plain_scale);
  CHECK(gather(**plain_scale, Split::train, range(0, 1)).x[0] == 1.0f);
  CHECK(gather(**plain_scale, Split::train, range(0, 1)).x[1] == 0.0f);
  CHECK(gather(**plain_scale, Split::train, range(0, 1)).x[2] == Approx(0.2));
  photos.set("grey=true");
  const auto grey = photos.open();
  REQUIRE(grey);
  CHECK((*grey)->sample_shape() == Shape{4, 4, 1});
  // 0.299 * 255 + 0.114 * 51 = 82.06
  CHECK(gather(**grey, Split::train, range(0, 1)).x[0] == Approx(82.0 / 255));
  photos.set("normalize=true");
  const auto alike = photos.open();  // all pixels are: only the mean is taken away
  REQUIRE(alike);
  CHECK(gather(**alike, Split::train, range(0, 1)).x[0] == Approx(0).margin(1e-6));
}

TEST_CASE("the sides are brought about as the keys say") {
  Photos photos({"normalize=false", "height=2", "width=2", "test_share=0.5"});
  // Black, white, white, black: the middle is white, all of it is grey.
  const Image wide = painted(
      2, 4, 3, [](std::size_t, std::size_t x, std::size_t) { return x == 1 || x == 2 ? 255 : 0; });
  photos.folder.write("a/1.png", png_file(wide));
  photos.folder.write("b/1.png", png_file(wide));
  const auto first = [&] {
    const auto data = photos.open();
    REQUIRE(data);
    return gather(**data, Split::train, range(0, 1)).x[0];
  };
  CHECK(first() == 1.0f);
  photos.set("fit=stretch");
  CHECK(first() == Approx(128.0 / 255));
  photos.set("filter=bilinear");
  photos.set("width=4");
  photos.set("height=4");
  CHECK(first() == 0.0f);
}

TEST_CASE("test images are of the folders test or val beside train, or of another folder") {
  for (const char* name : {"test", "val"}) {
    Photos photos;
    for (int i = 0; i < 4; ++i) {
      photos.folder.write(concat("train/", i % 2 == 0 ? "a/" : "b/", i, ".png"), plain_png(9 * i));
    }
    photos.folder.write(concat(name, "/b/1.png"), plain_png(200));
    const auto data = photos.open();
    REQUIRE(data);
    CHECK((*data)->size(Split::train) == 4);
    CHECK(all_of(**data, Split::train).labels == std::vector<std::int32_t>{0, 0, 1, 1});
    CHECK(all_of(**data, Split::test).labels == std::vector<std::int32_t>{1});
    CHECK((*data)->preparation()->classes == std::vector<std::string>{"a", "b"});

    TemporaryFolder other;
    other.write("a/9.png", plain_png(1));
    photos.set("test_path=" + other.path());
    const auto apart = photos.open();
    REQUIRE(apart);
    CHECK(all_of(**apart, Split::test).labels == std::vector<std::int32_t>{0});
    other.write("c/9.png", plain_png(1));
    CHECK_THAT(photos.refusal(), says("/c is not usable: there is no class of that name"));
  }
}

TEST_CASE("images without classes are for prediction, and of a parted folder all has its part") {
  Photos photos;
  photos.folder.write("1.png", plain_png(51));
  photos.folder.write("2.png", plain_png(102));
  const Preparation prepared{.classes = {"a", "b"}, .x = {{}, {}, {}}};
  const auto both = photos.open(1, &prepared);
  REQUIRE(both);
  CHECK((*both)->preparation()->without_target);
  CHECK(all_of(**both, Split::test).x[48] == Approx(0.4));
  photos.set("path=" + photos.folder / "2.png");
  const auto one = photos.open(1, &prepared);
  REQUIRE(one);
  CHECK((*one)->size(Split::test) == 1);
  CHECK(all_of(**one, Split::test).x[0] == Approx(0.4));
  CHECK_THAT(photos.refusal(), says("it is a file; expected a folder"));  // nothing to train on

  Photos parted;
  parted.folder.write("train/a/1.png", plain_png(1));
  parted.folder.write("train/b/1.png", plain_png(2));
  parted.set("test_path=" + parted.folder.path());
  CHECK((*parted.open(1, &prepared))->size(Split::test) == 2);
  parted.folder.write("test/b/3.png", plain_png(3));
  const auto parts = parted.open(1, &prepared);
  REQUIRE(parts);
  CHECK(((*parts)->size(Split::train) == 2 && (*parts)->size(Split::test) == 1));
  CHECK_FALSE((*parts)->preparation()->without_target);
}

TEST_CASE("a class may be called train, and what is no class is passed over") {
  Photos photos;
  photos.folder.write("train/1.png", plain_png(1));
  photos.folder.write("train/2.PNG", plain_png(2));
  photos.folder.write("plane/1.jpeg", jpeg_file(plain(3, 3, 3)));
  photos.folder.write(".git/config", "x");
  photos.folder.write("plane/.DS_Store", "x");
  photos.folder.write("plane/Thumbs.db", "x");
  photos.folder.write("README.txt", "x");
  const auto data = photos.open();
  REQUIRE(data);
  CHECK((*data)->size(Split::train) + (*data)->size(Split::test) == 3);
  CHECK((*data)->preparation()->classes == std::vector<std::string>{"plane", "train"});
}

TEST_CASE("what is wrong with a folder of images is told with its path") {
  struct Case {
    std::string name;
    std::string bytes;
    std::string says;
  };

  const std::string jpeg = jpeg_file(plain(90, 10, 200, 32, 32));
  std::string bomb = png_file(plain(1, 1, 1));
  // A header of 65536 x 65536 pixels and its checksum.
  bomb.replace(16, 17, std::string("\0\1\0\0\0\1\0\0\x8\x2\0\0\0\xe3\xe6\xa7\xb4", 17));
  for (const Case& c : std::vector<Case>{
           {"a/8.jpg",
            jpeg.substr(0, jpeg.size() - 30),
            "./a/8.jpg is not usable: it is a damaged JPEG image: "},
           {"a/8.png",
            plain_png(7).substr(0, 50),
            "./a/8.png is not usable: it is a damaged PNG image: "},
           {"a/note.txt", "hello", "./a/note.txt is not usable: it does not begin as an image"},
           {"b/8.png", "", "./b/8.png is not usable: it is empty"},
           {"a/bomb.png",
            bomb,
            "./a/bomb.png is not usable: its header tells of 65536 x 65536 pixels"},
           {"a/more/1.png", plain_png(1), "./a/more is not usable: it is a folder within"}}) {
    Photos photos;
    for (int i = 0; i < 6; ++i) {
      photos.folder.write(concat(i % 2 == 0 ? "a/" : "b/", i, ".png"), plain_png(10 * i));
    }
    REQUIRE(photos.refusal() == "none");
    photos.folder.write(c.name, c.bytes);
    CHECK_THAT(photos.refusal(), says(c.says));
  }
}

TEST_CASE("the first of several images that are not usable is told, whoever meets it") {
  Photos photos;
  for (int i = 0; i < 60; ++i) {
    photos.folder.write(concat("a/", 100 + i, ".png"), i >= 20 ? std::string("x") : plain_png(i));
  }
  photos.folder.write("b/1.png", plain_png(3));
  photos.set("test_path=" + photos.folder.path());
  for (int again = 0; again < 20; ++again) {
    REQUIRE_THAT(photos.refusal(), says("./a/120.png is not usable"));
  }
}

TEST_CASE("class folders that lie one folder deeper are named") {
  Photos photos;
  for (int i = 0; i < 6; ++i) {
    photos.folder.write(concat(i % 2 == 0 ? "all/a/" : "all/b/", i, ".png"), plain_png(10 * i));
  }
  CHECK_THAT(photos.refusal(),
             says("; if the classes' folders are these: --set data.folder.path=./all"));
}

TEST_CASE("folders that hold no classes are told") {
  Photos photos;
  CHECK_THAT(photos.refusal(), says(". is not usable: it has no class folders"));
  fs::create_directory(photos.folder / "a");
  CHECK_THAT(photos.refusal(),
             says("./a is not usable: it is the folder of a class and holds no image"));
  photos.folder.write("a/1.png", plain_png(1));
  CHECK_THAT(photos.refusal(), says("it holds 1 image of 1 class; expected at least two of each"));
  photos.folder.write("a/2.png", plain_png(1));
  CHECK_THAT(photos.refusal(), says("it holds 2 images of 1 class"));
  photos.set("path=" + photos.folder.path() + "/absent");
  CHECK_THAT(photos.refusal(),
             says("./absent is not usable: it cannot be opened: No such file or directory"));
  photos.folder.write("all.zip", "PK");
  photos.set("path=" + photos.folder.path() + "/all.zip");
  CHECK_THAT(photos.refusal(),
             says("./all.zip is not usable: it is a file; expected a folder in which each class "
                  "has a folder of its images"));
  photos.set("path=");
  const auto nowhere = photos.open();
  REQUIRE_FALSE(nowhere);
  CHECK(nowhere.error().kind == ErrorKind::usage);
}

TEST_CASE("with what weights were trained on, images go through that, and classes are theirs") {
  Photos photos;
  photos.folder.write("b/1.png", png_file(plain(255, 0, 51)));
  photos.folder.write("b/2.png", png_file(plain(255, 0, 51)));
  const Preparation prepared{.classes = {"a", "b", "c"}, .x = {{0.5, 2}, {0, 1}, {0.2, 10}}};
  const auto data = photos.open(1, &prepared);
  REQUIRE(data);
  CHECK((*data)->classes() == 3);
  const Gathered sample = gather(**data, Split::test, range(0, 1));
  CHECK(sample.labels[0] == 1);
  CHECK(sample.x[0] == Approx(1));
  CHECK(sample.x[1] == Approx(0));
  CHECK(sample.x[2] == Approx(0).margin(1e-6));
  Preparation absurd = prepared;
  absurd.x[1].factor = 1e300;
  const auto none = photos.open(1, &absurd);
  REQUIRE_FALSE(none);
  CHECK_THAT(none.error().message, says("do not make numbers of pixels"));
  photos.folder.write("d/1.png", plain_png(0));
  const auto strange = photos.open(1, &prepared);
  REQUIRE_FALSE(strange);
  CHECK_THAT(strange.error().message, says("there is no class of that name"));
  photos.set("grey=true");
  const auto grey = photos.open(1, &prepared);
  REQUIRE_FALSE(grey);
  CHECK_THAT(grey.error().message, says("trained on images of 3 channels, and these have 1"));
}

TEST_CASE("loaders do each piece of work once, and hand on the first failure") {
  std::vector<std::atomic<int>> done(1000);
  const auto all = load_all(done.size(), 4, [&](std::size_t i) -> Result<void> {
    ++done[i];
    return {};
  });
  CHECK(all);
  CHECK(std::all_of(done.begin(), done.end(), [](const auto& times) { return times == 1; }));
  const auto failed = load_all(1000, 4, [](std::size_t i) -> Result<void> {
    if (i >= 300) {
      return Error{ErrorKind::data, std::to_string(i)};
    }
    return {};
  });
  REQUIRE_FALSE(failed);
  CHECK(failed.error().message == "300");
  CHECK_THROWS_WITH(
      load_all(10, 4, [](std::size_t) -> Result<void> { throw std::runtime_error("x"); }), "x");
  CHECK(load_all(0, 4, [](std::size_t) -> Result<void> { throw std::runtime_error("x"); }));
}

}  // namespace image_folder_test
