// The tests write small files of their own into a temporary folder; see Files.
#include "runtime/data/cifar.hpp"

#include "experiment/data.pb.h"
#include "tests/runtime/data/files.hpp"
#include "tests/runtime/data/samples.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/surroundings.hpp"

#include <array>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <vector>

namespace cifar_test {

using namespace troupe;
using namespace troupe::test;

namespace {

/// No two of an image's 1024 pixels and no two images look alike.
std::uint8_t shade(std::size_t image, std::size_t y, std::size_t x, std::size_t colour) {
  return static_cast<std::uint8_t>(image * 41 + y * 37 + x * 5 + colour * 11 + y * x);
}

std::uint8_t label(std::size_t image, const CifarFamily& family) {
  return static_cast<std::uint8_t>(image * 7 % static_cast<std::size_t>(family.classes));
}

std::string records(const CifarFamily& family, std::size_t first, std::size_t count) {
  std::string bytes;
  for (std::size_t image = first; image < first + count; ++image) {
    if (family.coarse) {
      bytes += static_cast<char>(image % 20);
    }
    bytes += static_cast<char>(label(image, family));
    for (std::size_t colour = 0; colour < 3; ++colour) {
      for (std::size_t y = 0; y < 32; ++y) {
        for (std::size_t x = 0; x < 32; ++x) {
          bytes += static_cast<char>(shade(image, y, x, colour));
        }
      }
    }
  }
  return bytes;
}

/// Every file with two records but the second, which has three; images are counted through.
struct Files {
  explicit Files(const CifarFamily& which, const std::string& below = ".") : family(which) {
    std::size_t first = 0;
    for (std::size_t i = 0; i < family.files.size(); ++i) {
      const std::size_t count = i == 1 ? 3 : 2;
      folder.write(below + "/" + std::string(family.files[i]), records(family, first, count));
      first += count;
    }
    train = static_cast<std::int64_t>(first) - (family.files.size() == 2 ? 3 : 2);
    test = family.files.size() == 2 ? 3 : 2;
    options.set_path(below == "." ? folder.path() : folder / below);
  }

  Result<std::shared_ptr<const Dataset>> open(std::uint64_t seed = 1) const {
    return open_cifar(family, options, seed);
  }

  const CifarFamily& family;
  TemporaryFolder folder;
  proto::Cifar options;
  std::int64_t train = 0;
  std::int64_t test = 0;
};

double normalised(const CifarFamily& family, int byte, std::size_t colour) {
  return (byte / 255.0 - double{family.mean[colour]}) / double{family.deviation[colour]};
}

/// Two roundings of numbers below 4, of which each is off by less than 2^-23.
constexpr double kMargin = 1e-6;

/// Whether `x` (32, 32, 3) is image `image` cropped at (down, right) of the bordered image.
bool is_crop(const CifarFamily& family,
             const float* x,
             std::size_t image,
             std::size_t down,
             std::size_t right,
             bool mirrored) {
  for (std::size_t y = 0; y < 32; ++y) {
    for (std::size_t column = 0; column < 32; ++column) {
      const std::size_t sy = y + down;
      const std::size_t sx = (mirrored ? 31 - column : column) + right;
      const bool inside = sy >= 4 && sy < 36 && sx >= 4 && sx < 36;
      for (std::size_t colour = 0; colour < 3; ++colour) {
        const int byte = inside ? shade(image, sy - 4, sx - 4, colour) : 0;
        const float got = x[(y * 32 + column) * 3 + colour];
        if (!(std::abs(double{got} - normalised(family, byte, colour)) < kMargin)) {
          return false;
        }
      }
    }
  }
  return true;
}

void check_refused(const Result<std::shared_ptr<const Dataset>>& dataset,
                   const std::string& message) {
  REQUIRE_FALSE(dataset);
  CHECK(dataset.error().kind == ErrorKind::data);
  CHECK(dataset.error().message == message);
}

}  // namespace

TEST_CASE("images and labels come as they stand in the files", "[runtime][data]") {
  const CifarFamily& family = GENERATE(std::cref(kCifar10), std::cref(kCifar100)).get();
  CAPTURE(family.title);
  const Files files(family);
  const auto opened = files.open();
  REQUIRE(opened);
  const Dataset& dataset = **opened;
  CHECK(dataset.size(Split::train) == files.train);
  CHECK(dataset.size(Split::test) == files.test);
  CHECK(dataset.sample_shape() == Shape{32, 32, 3});
  CHECK(dataset.classes() == family.classes);
  CHECK(dataset.input_type() == DType::float32);
  CHECK(dataset.labels_per_sample() == 1);
  for (const Split split : {Split::train, Split::test}) {
    const std::int64_t count = dataset.size(split);
    const std::size_t before = split == Split::train ? 0 : static_cast<std::size_t>(files.train);
    const Gathered got = gather(dataset, split, range(0, count));
    for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
      CHECK(got.labels[i] == label(before + i, family));
      CHECK(is_crop(family, got.x.data() + i * 3072, before + i, 4, 4, false));
    }
    CHECK(gather(dataset, split, range(0, count), 7) == got);  // without augment, every epoch
  }
}

TEST_CASE("augmented images are crops, mirrored half of the time, of each epoch's own",
          "[runtime][data]") {
  Files files(kCifar10);
  files.options.set_augment(true);
  const auto dataset = *files.open();
  std::set<std::array<std::size_t, 3>> seen;
  int mirrored_count = 0;
  constexpr std::int64_t kEpochs = 200;
  for (std::int64_t epoch = 0; epoch < kEpochs; ++epoch) {
    const std::int64_t index = epoch % 11;
    const Gathered got = gather(*dataset, Split::train, range(index, 1), epoch);
    int matches = 0;
    for (std::size_t down = 0; down <= 8; ++down) {
      for (std::size_t right = 0; right <= 8; ++right) {
        for (const bool mirrored : {false, true}) {
          if (is_crop(
                  kCifar10, got.x.data(), static_cast<std::size_t>(index), down, right, mirrored)) {
            ++matches;
            mirrored_count += mirrored;
            seen.insert({down, right, mirrored});
          }
        }
      }
    }
    REQUIRE(matches == 1);
  }
  // Of 162 equally likely ways, 200 draws meet 115 on average, with a deviation of about 4.6. Of
  // 200 fair coins, 100 with a deviation of 7.1.
  CHECK(seen.size() > 90);
  CHECK(mirrored_count > 65);
  CHECK(mirrored_count < 135);
}

TEST_CASE("what is drawn depends on seed, epoch and sample, and on nothing else",
          "[runtime][data]") {
  Files files(kCifar10);
  files.options.set_augment(true);
  const auto dataset = *files.open(1);
  const Gathered all = gather(*dataset, Split::train, range(0, 11), 3);
  for (const std::int64_t index : {10, 0, 4}) {
    const Gathered one = gather(*dataset, Split::train, range(index, 1), 3);
    const auto begin = all.x.begin() + index * 3072;
    CHECK(one.x == std::vector<float>(begin, begin + 3072));
  }
  CHECK(gather(**files.open(1), Split::train, range(0, 11), 3) == all);
  CHECK(gather(**files.open(2), Split::train, range(0, 11), 3).x != all.x);
  CHECK(gather(*dataset, Split::train, range(0, 11), 4).x != all.x);
  CHECK(gather(*dataset, Split::test, range(0, 2), 0) ==
        gather(*dataset, Split::test, range(0, 2), 1));
}

TEST_CASE("limit takes the first training images of CIFAR and all test images", "[runtime][data]") {
  Files files(kCifar10);
  files.options.set_limit(3);
  const auto dataset = *files.open();
  CHECK(dataset->size(Split::train) == 3);
  CHECK(dataset->size(Split::test) == 2);
  files.options.set_limit(11);
  CHECK((*files.open())->size(Split::train) == 11);
  files.options.set_limit(12);
  check_refused(files.open(),
                concat("data.cifar10.limit is 12, but ",
                       files.options.path(),
                       " holds only 11 training samples"));
}

TEST_CASE("CIFAR's files are looked for in the usual folders", "[runtime][data]") {
  const Files files(kCifar100, "troupe/cifar100");
  const Environment data("TROUPE_DATA", "");
  const Environment cache("XDG_CACHE_HOME", files.folder.path());
  CHECK(open_cifar(kCifar100, proto::Cifar(), 1));
  const WorkingFolder here(files.folder.path());
  std::filesystem::remove(files.folder / "troupe/cifar100/test.bin");
  check_refused(open_cifar(kCifar100, proto::Cifar(), 1),
                concat("CIFAR-100 was looked for in data/cifar100, ",
                       files.folder / "troupe/cifar100",
                       " (which lacks test.bin) and not found: train.bin and test.bin, each plain "
                       "or with .gz, belong into one folder, to be named by --set "
                       "data.cifar100.path=FOLDER; `troupe data fetch cifar100` downloads them"));
}

TEST_CASE("malformed CIFAR files are refused with one sentence", "[runtime][data]") {
  const CifarFamily& family = GENERATE(std::cref(kCifar10), std::cref(kCifar100)).get();
  const Files files(family);
  const std::string name(family.files.back());
  const std::size_t record = family.coarse ? 3074 : 3073;
  std::string bytes = records(family, 0, 2);
  std::string what;
  SECTION("empty") {
    bytes = "";
    what = concat("it is 0 bytes long, which is no whole number of records of ", record);
  }
  SECTION("truncated") {
    bytes.pop_back();
    what = concat(
        "it is ", 2 * record - 1, " bytes long, which is no whole number of records of ", record);
  }
  SECTION("trailing") {
    bytes += 'x';
    what = concat(
        "it is ", 2 * record + 1, " bytes long, which is no whole number of records of ", record);
  }
  SECTION("a label out of range") {
    bytes[record + (family.coarse ? 1 : 0)] = static_cast<char>(family.classes);
    what = concat("the label of record 1 is ", family.classes, ", not 0 to ", family.classes - 1);
  }
  SECTION("a coarse label out of range") {
    if (!family.coarse) {
      return;
    }
    bytes[0] = 20;
    what = "the coarse label of record 0 is 20, not 0 to 19";
  }
  files.folder.write(name, bytes);
  check_refused(
      files.open(),
      concat(
          (std::filesystem::path(files.options.path()) / name).string(), " is not usable: ", what));
}

}  // namespace cifar_test
