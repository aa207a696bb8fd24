// The tests write small IDX files of their own into a temporary folder; see Files.
#include "runtime/data/idx.hpp"

#include "experiment/data.pb.h"
#include "kernels/random.hpp"
#include "tests/runtime/data/samples.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/skip.hpp"
#include "tests/support/surroundings.hpp"

#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <new>
#include <string>
#include <vector>

using namespace troupe;
using namespace troupe::test;
namespace fs = std::filesystem;

// -- the largest allocation -----------------------------------------------------------------------

namespace {

std::atomic<std::size_t> largest_allocation = 0;

}  // namespace

// The whole binary allocates through these; only the fuzz test looks. Inlined, g++ would see a
// free() without a malloc() and warn.
[[gnu::noinline]] void* operator new(std::size_t size) {
  std::size_t seen = largest_allocation;
  while (size > seen && !largest_allocation.compare_exchange_weak(seen, size)) {
  }
  if (void* memory = std::malloc(size > 0 ? size : 1)) {
    return memory;
  }
  throw std::bad_alloc();
}

// Sanitizers have one of their own, to which the delete below would not belong.
[[gnu::noinline]] void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  return std::malloc(size > 0 ? size : 1);
}

[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}

[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}

namespace {

// -- writing files --------------------------------------------------------------------------------

using Bytes = std::vector<std::uint8_t>;

constexpr std::array kNames{"train-images-idx3-ubyte",
                            "train-labels-idx1-ubyte",
                            "t10k-images-idx3-ubyte",
                            "t10k-labels-idx1-ubyte"};
constexpr std::size_t kTrainImages = 0;
constexpr std::size_t kTrainLabels = 1;
constexpr std::size_t kTestImages = 2;
constexpr std::size_t kTestLabels = 3;

void append(Bytes& bytes, std::uint32_t number) {
  for (const int shift : {24, 16, 8, 0}) {
    bytes.push_back(static_cast<std::uint8_t>(number >> shift));
  }
}

std::uint8_t pixel(std::int64_t sample, std::int64_t i) {
  return static_cast<std::uint8_t>(sample * 31 + i * 7);
}

Bytes images(std::uint32_t count, std::uint32_t side = 28) {
  Bytes bytes;
  for (const std::uint32_t number : {0x803u, count, side, side}) {
    append(bytes, number);
  }
  for (std::uint32_t sample = 0; sample < count; ++sample) {
    for (std::uint32_t i = 0; i < side * side; ++i) {
      bytes.push_back(pixel(sample, i));
    }
  }
  return bytes;
}

Bytes labels(std::uint32_t count) {
  Bytes bytes;
  append(bytes, 0x801);
  append(bytes, count);
  for (std::uint32_t sample = 0; sample < count; ++sample) {
    bytes.push_back(static_cast<std::uint8_t>(sample * 3 % 10));
  }
  return bytes;
}

Bytes gzipped(const Bytes& bytes) {
  z_stream stream{};
  REQUIRE(deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  Bytes out(deflateBound(&stream, static_cast<uLong>(bytes.size())));
  stream.next_in = const_cast<Bytef*>(bytes.data());
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = out.data();
  stream.avail_out = static_cast<uInt>(out.size());
  REQUIRE(deflate(&stream, Z_FINISH) == Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

/// A folder of its own with a valid set of 5 training and 3 test samples; gone with the object.
class Files {
 public:
  explicit Files(const std::string& below = "") {
    static int count = 0;
    root_ = fs::temp_directory_path() / concat("troupe_idx_test_", getpid(), "_", ++count);
    folder_ = root_ / below;
    fs::create_directories(folder_);
    write(kTrainImages, images(5));
    write(kTrainLabels, labels(5));
    write(kTestImages, images(3));
    write(kTestLabels, labels(3));
  }

  ~Files() {
    std::error_code ignored;
    fs::remove_all(root_, ignored);
  }

  Files(const Files&) = delete;
  Files& operator=(const Files&) = delete;

  std::string root() const { return root_.string(); }

  std::string path(std::size_t name, const std::string& suffix = "") const {
    return (folder_ / kNames[name]).string() + suffix;
  }

  void write(std::size_t name, const Bytes& bytes, const std::string& suffix = "") const {
    remove(name, suffix);  // ext4 waits for the disk where a file is truncated and written again
    std::ofstream out(path(name, suffix), std::ios::binary);
    out.write(reinterpret_cast<const char*>(bytes.data()),
              static_cast<std::streamsize>(bytes.size()));
    REQUIRE(out.good());
  }

  void remove(std::size_t name, const std::string& suffix = "") const {
    fs::remove(path(name, suffix));
  }

  proto::Idx options() const {
    proto::Idx options;
    options.set_path(folder_.string());
    return options;
  }

  Result<std::shared_ptr<const Dataset>> open() const { return open_idx(kMnist, options()); }

 private:
  fs::path root_;
  fs::path folder_;
};

void check_sample(const Dataset& dataset, std::int64_t index, const IdxFamily& family) {
  const Gathered sample = gather(dataset, Split::train, std::vector<std::int64_t>{index});
  CHECK(sample.labels[0] == index * 3 % 10);
  for (std::size_t i = 0; i < sample.x.size(); ++i) {
    const float shade = static_cast<float>(pixel(index, static_cast<std::int64_t>(i))) / 255.0f;
    // Two roundings of numbers up to 3.
    REQUIRE(sample.x[i] == Approx((shade - family.mean) / family.deviation).margin(1e-6));
  }
}

void check_refused(const Result<std::shared_ptr<const Dataset>>& dataset,
                   ErrorKind kind,
                   const std::string& message) {
  REQUIRE_FALSE(dataset);
  CHECK(dataset.error().kind == kind);
  CHECK(dataset.error().message == message);
}

}  // namespace

// -- what is right --------------------------------------------------------------------------------

TEST_CASE("plain and compressed files hold the same", "[runtime][data]") {
  const Files files;
  SECTION("plain") {}
  SECTION("compressed") {
    for (std::size_t name = 0; name < 4; ++name) {
      const Bytes bytes = name == kTrainImages   ? images(5)
                          : name == kTrainLabels ? labels(5)
                          : name == kTestImages  ? images(3)
                                                 : labels(3);
      files.remove(name);
      files.write(name, gzipped(bytes), ".gz");
    }
  }
  SECTION("with a dot before idx") {
    for (std::size_t name = 0; name < 4; ++name) {
      std::string dotted = files.path(name);
      dotted[dotted.find("-idx")] = '.';
      fs::rename(files.path(name), dotted);
    }
  }
  SECTION("compressed without .gz, and plain with it") {
    files.write(kTrainImages, gzipped(images(5)));
    files.remove(kTestLabels);
    files.write(kTestLabels, labels(3), ".gz");
  }
  const auto dataset = files.open();
  REQUIRE(dataset);
  CHECK((*dataset)->size(Split::train) == 5);
  CHECK((*dataset)->size(Split::test) == 3);
  CHECK((*dataset)->sample_shape() == Shape{28, 28, 1});
  CHECK((*dataset)->classes() == 10);
  for (const std::int64_t index : {0, 3, 4}) {
    check_sample(**dataset, index, kMnist);
  }
}

TEST_CASE("the plain file is read where both are there", "[runtime][data]") {
  const Files files;
  files.write(kTrainImages, {1, 2, 3}, ".gz");
  CHECK(files.open());
}

TEST_CASE("Fashion-MNIST has its own statistics and folder", "[runtime][data]") {
  const Files files("fashion_mnist");
  const auto dataset = open_idx(kFashionMnist, files.options());
  REQUIRE(dataset);
  check_sample(**dataset, 2, kFashionMnist);

  const Environment data("TROUPE_DATA", files.root());
  CHECK(open_idx(kFashionMnist, proto::Idx()));
}

TEST_CASE("limit takes the first training samples and all test samples", "[runtime][data]") {
  const Files files;
  proto::Idx options = files.options();
  options.set_limit(5);
  CHECK((*open_idx(kMnist, options))->size(Split::train) == 5);
  options.set_limit(4);
  const auto dataset = *open_idx(kMnist, options);
  CHECK(dataset->size(Split::train) == 4);
  CHECK(dataset->size(Split::test) == 3);
  check_sample(*dataset, 3, kMnist);
  options.set_limit(6);
  check_refused(
      open_idx(kMnist, options),
      ErrorKind::data,
      concat("data.mnist.limit is 6, but ", files.path(kTrainImages), " holds only 5 samples"));
}

TEST_CASE("pool averages squares of pixels", "[runtime][data]") {
  const Files files;
  proto::Idx options = files.options();
  const std::int64_t pool = GENERATE(2, 4, 7, 14);
  CAPTURE(pool);
  options.set_pool(pool);
  const auto dataset = *open_idx(kMnist, options);
  const std::int64_t side = 28 / pool;
  REQUIRE(dataset->sample_shape() == Shape{side, side, 1});
  const Gathered sample = gather(*dataset, Split::test, std::vector<std::int64_t>{1});
  for (std::int64_t y = 0; y < side; ++y) {
    for (std::int64_t x = 0; x < side; ++x) {
      double sum = 0;
      for (std::int64_t dy = 0; dy < pool; ++dy) {
        for (std::int64_t dx = 0; dx < pool; ++dx) {
          sum += pixel(1, (y * pool + dy) * 28 + x * pool + dx);
        }
      }
      const double mean = sum / (255.0 * static_cast<double>(pool * pool));
      CHECK(sample.x[static_cast<std::size_t>(y * side + x)] ==
            Approx((mean - 0.1307) / 0.3081).margin(1e-5));
    }
  }
}

TEST_CASE("a pool that does not divide 28 is refused before anything is read", "[runtime][data]") {
  proto::Idx options;
  options.set_path("/nowhere");
  options.set_pool(3);
  check_refused(open_idx(kMnist, options),
                ErrorKind::usage,
                "data.mnist.pool is 3, which does not divide the images' side of 28; 1, 2, 4, 7 "
                "and 14 do");
}

TEST_CASE("real MNIST is read", "[runtime][data]") {
  const fs::path folder = fs::path(TROUPE_SHARED_DATA) / "mnist";
  if (!fs::exists(folder)) {
    return skip("no MNIST beside the repository");
  }
  proto::Idx options;
  options.set_path(folder.string());
  const auto opened = open_idx(kMnist, options);
  REQUIRE(opened);
  const Dataset& dataset = **opened;
  CHECK(dataset.size(Split::train) == 22000);
  CHECK(dataset.size(Split::test) == 10000);
  const Gathered train = gather(dataset, Split::train, range(0, 22000));
  CHECK(std::vector(train.labels.begin(), train.labels.begin() + 5) ==
        std::vector<std::int32_t>{5, 0, 4, 1, 9});
  CHECK(gather(dataset, Split::test, range(0, 5)).labels ==
        std::vector<std::int32_t>{7, 2, 1, 0, 4});
  double sum = 0;
  double squares = 0;
  for (const float value : train.x) {
    sum += value;
    squares += double{value} * double{value};
  }
  const auto count = static_cast<double>(train.x.size());
  // The statistics are those of all 60,000; of the first 22,000 they differ a little.
  CHECK(sum / count == Approx(0).margin(0.01));
  CHECK(std::sqrt(squares / count) == Approx(1).margin(0.01));
}

// -- what is missing ------------------------------------------------------------------------------

TEST_CASE("missing files are named, with where they were looked for and the key to set",
          "[runtime][data]") {
  const Files empty;
  for (std::size_t name = 0; name < 4; ++name) {
    empty.remove(name);
  }
  const std::string hint =
      ": train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and "
      "t10k-labels-idx1-ubyte, each plain or with .gz, belong into one folder, to be named by "
      "--set ";
  const std::string download = ".path=FOLDER; `troupe data fetch ";
  SECTION("in a given folder") {
    check_refused(empty.open(),
                  ErrorKind::data,
                  concat("MNIST was looked for in ",
                         empty.options().path(),
                         " and not found",
                         hint,
                         "data.mnist",
                         download,
                         "mnist` downloads them"));
  }
  SECTION("in the usual folders") {
    const Environment data("TROUPE_DATA", "/somewhere");
    const Environment home("HOME", "/nobody");
    const Environment cache("XDG_CACHE_HOME", "");
    const WorkingFolder here(empty.root());
    check_refused(open_idx(kFashionMnist, proto::Idx()),
                  ErrorKind::data,
                  concat("Fashion-MNIST was looked for in /somewhere/fashion_mnist, "
                         "data/fashion_mnist, /nobody/.cache/troupe/fashion_mnist and not found",
                         hint,
                         "data.fashion_mnist",
                         download,
                         "fashion_mnist` downloads them"));
  }
  SECTION("some of them") {
    const Files some;
    some.remove(kTrainLabels);
    some.remove(kTestLabels);
    check_refused(some.open(),
                  ErrorKind::data,
                  concat("MNIST was looked for in ",
                         some.options().path(),
                         " (which lacks train-labels-idx1-ubyte and t10k-labels-idx1-ubyte)",
                         " and not found",
                         hint,
                         "data.mnist",
                         download,
                         "mnist` downloads them"));
  }
}

TEST_CASE("the usual folders are searched in order", "[runtime][data]") {
  const Files in_cache(".cache/troupe/mnist");
  const Files in_data("data/mnist");
  const Files in_root("mnist");
  in_cache.write(kTestImages, images(1));
  in_cache.write(kTestLabels, labels(1));
  in_data.write(kTestImages, images(2));
  in_data.write(kTestLabels, labels(2));
  const Environment home("HOME", in_cache.root());
  const Environment cache("XDG_CACHE_HOME", "");
  const Environment data("TROUPE_DATA", in_root.root());
  const WorkingFolder here(in_data.root());
  const auto size = [] {
    return (*open_idx(kMnist, proto::Idx()))->size(Split::test);
  };
  CHECK(size() == 3);
  in_root.remove(kTestLabels);
  CHECK(size() == 2);
  in_data.remove(kTrainImages);
  CHECK(size() == 1);
}

TEST_CASE("a folder under a file's name is not a file", "[runtime][data]") {
  const Files files;
  files.remove(kTrainImages);
  fs::create_directory(files.path(kTrainImages));
  const auto dataset = files.open();
  REQUIRE_FALSE(dataset);
  CHECK(dataset.error().message.find("lacks train-images-idx3-ubyte)") != std::string::npos);
}

// -- what is malformed ----------------------------------------------------------------------------

TEST_CASE("malformed files are refused with one sentence", "[runtime][data]") {
  const Files files;
  std::size_t name = kTrainImages;
  std::string suffix;
  std::string what;
  SECTION("empty") {
    files.write(name, {});
    what = "it is only 0 bytes long";
  }
  SECTION("shorter than a header") {
    Bytes bytes = images(5);
    bytes.resize(15);
    files.write(name, bytes);
    what = "it is only 15 bytes long";
  }
  SECTION("labels under the name of images") {
    files.write(name, labels(5));
    what = "it starts with the number 2049 (labels), not 2051 (images)";
  }
  SECTION("images under the name of labels") {
    name = kTestLabels;
    files.write(name, images(3));
    what = "it starts with the number 2051 (images), not 2049 (labels)";
  }
  SECTION("something else") {
    files.write(name, Bytes(100, 'x'));
    what = "it starts with the number 2021161080, not 2051 (images)";
  }
  SECTION("no samples") {
    files.write(name, images(0));
    what = "it promises 0 samples, where 1 to 1000000 are legal";
  }
  SECTION("too many samples") {
    Bytes bytes = images(5);
    bytes[4] = 0xff;
    files.write(name, bytes);
    what = "it promises 4278190085 samples, where 1 to 1000000 are legal";
  }
  SECTION("more samples than there are") {
    Bytes bytes = images(5);
    bytes[5] = 0x0f;
    files.write(name, bytes);
    what = "it promises 983045 samples and ends after 5";
  }
  SECTION("truncated") {
    Bytes bytes = images(5);
    bytes.pop_back();
    files.write(name, bytes);
    what = "it promises 5 samples and ends after 4";
  }
  SECTION("trailing") {
    name = kTestImages;
    Bytes bytes = images(3);
    bytes.push_back(0);
    files.write(name, bytes);
    what = "it goes on after the 3 samples that it promises";
  }
  SECTION("other images") {
    files.write(name, images(5, 32));
    what = "its images are 32x32, not 28x28";
  }
  SECTION("fewer labels than images") {
    name = kTrainLabels;
    files.write(name, labels(4));
    what = "it holds 4 labels for the 5 images of train-images-idx3-ubyte";
  }
  SECTION("a label out of range") {
    name = kTestLabels;
    Bytes bytes = labels(3);
    bytes.back() = 10;
    files.write(name, bytes);
    what = "the label of sample 2 is 10, not 0 to 9";
  }
  SECTION("truncated in compression") {
    suffix = ".gz";
    files.remove(name);
    Bytes bytes = gzipped(images(5));
    bytes.resize(bytes.size() / 2);
    files.write(name, bytes, suffix);
    what = "its compressed data is cut short";
  }
  SECTION("truncated in the checksum") {
    suffix = ".gz";
    files.remove(name);
    Bytes bytes = gzipped(images(5));
    bytes.pop_back();
    files.write(name, bytes, suffix);
    what = "its compressed data is cut short";
  }
  SECTION("a wrong checksum") {
    suffix = ".gz";
    files.remove(name);
    Bytes bytes = gzipped(images(5));
    bytes[bytes.size() - 6] ^= 1;
    files.write(name, bytes, suffix);
    what = "incorrect data check";
  }
  check_refused(
      files.open(), ErrorKind::data, concat(files.path(name, suffix), " is not usable: ", what));
}

TEST_CASE("a file that may not be read is refused", "[runtime][data]") {
  const Files files;
  fs::permissions(files.path(kTrainImages), fs::perms::none);
  if (getuid() == 0) {
    return;  // Root may read everything.
  }
  check_refused(
      files.open(),
      ErrorKind::data,
      files.path(kTrainImages) + " is not usable: it cannot be opened: Permission denied");
}

// Thousands of damaged files: none crashes the reader, none makes it allocate more than the little
// that it reads at a time, and what it does accept can be gathered.
TEST_CASE("damaged files are either valid or refused", "[runtime][data]") {
  const Files files;
  const std::array<Bytes, 4> whole{images(5), labels(5), images(3), labels(3)};
  const int rounds = 4000;
  int accepted = 0;
  for (int round = 0; round < rounds; ++round) {
    CAPTURE(round);
    const RandomStream random(1, Purpose::test, static_cast<std::uint64_t>(round));
    const std::size_t name = random.below(0, 4);
    const bool compressed = random.below(1, 2) == 1;
    const bool inside = random.below(2, 2) == 1;  // damaged before it is compressed
    Bytes bytes = whole[name];
    if (compressed && !inside) {
      bytes = gzipped(bytes);
    }
    const std::uint64_t changes = 1 + random.below(3, 3);
    for (std::uint64_t change = 0; change < changes && !bytes.empty(); ++change) {
      const std::uint64_t counter = 10 + 4 * change;
      // Half of the time near the beginning, where the headers are.
      const std::uint64_t end =
          random.below(counter, 2) == 1 ? bytes.size() : std::min<std::uint64_t>(bytes.size(), 20);
      const std::size_t at = random.below(counter + 1, end);
      const auto value = static_cast<std::uint8_t>(random.below(counter + 2, 256));
      switch (random.below(counter + 3, 5)) {
        case 0:
          bytes.resize(at);
          break;
        case 1:
          bytes.insert(bytes.end(), 1 + value, value);
          break;
        case 2:
          bytes.insert(bytes.begin() + static_cast<std::ptrdiff_t>(at), value);
          break;
        default:
          bytes[at] = value;
      }
    }
    if (compressed && inside) {
      bytes = gzipped(bytes);
    }
    files.write(name, bytes);

    largest_allocation = 0;
    const auto dataset = files.open();
    const std::size_t largest = largest_allocation;
    REQUIRE(largest <= (std::size_t{1} << 16));
    if (dataset) {
      ++accepted;
      for (const Split split : {Split::train, Split::test}) {
        const Gathered samples = gather(**dataset, split, range(0, (*dataset)->size(split)));
        for (const std::int32_t label : samples.labels) {
          REQUIRE((label >= 0 && label < 10));
        }
      }
    } else {
      REQUIRE(dataset.error().kind == ErrorKind::data);
      REQUIRE(dataset.error().message.find(kNames[name]) != std::string::npos);
    }
    files.write(name, whole[name]);
  }
  // Damage to a pixel is not seen; most other damage is.
  CHECK(accepted > rounds / 100);
  CHECK(accepted < rounds / 2);
}
