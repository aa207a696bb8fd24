// Arrays of one's own: folders of .npy files, .npz archives and safetensors files that the tests write.
#include "runtime/data/arrays.hpp"

#include "experiment.pb.h"
#include "kernels/wording.hpp"
#include "messages/experiment.hpp"
#include "runtime/checkpoint/safetensors.hpp"
#include "runtime/data/archive.hpp"
#include "runtime/data/csv.hpp"
#include "runtime/data/csv_convert.hpp"
#include "runtime/data/input_file.hpp"
#include "runtime/data/number_array.hpp"
#include "runtime/data/preparation.hpp"
#include "tests/runtime/data/array_files.hpp"
#include "tests/runtime/data/files.hpp"
#include "tests/runtime/data/samples.hpp"
#include "tests/support/catch.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <limits>
#include <numeric>
#include <span>
#include <string>
#include <vector>

namespace arrays_test {

using namespace troupe;
using namespace troupe::test;

namespace {

using Ints = std::vector<std::int64_t>;
using Floats = std::vector<float>;

/// Four samples of two features, at `path` in a folder of the test's own.
struct Arrays {
  explicit Arrays(const std::vector<std::string>& assignments = {"normalize=false"},
                  const std::string& path = ".") {
    REQUIRE(set_value(e, "data.arrays.path=" + (folder / path)));
    for (const std::string& assignment : assignments) {
      REQUIRE(set_value(e, "data.arrays." + assignment));
    }
    REQUIRE(resolve(e));
    folder.write("x.npy", npy<float>("(4, 2)", {1, 2, 3, 4, 5, 6, 7, 8}));
    folder.write("y.npy", npy<std::int64_t>("(4,)", {0, 1, 2, 0}));
  }

  Result<std::shared_ptr<const Dataset>> open(std::uint64_t seed = 1) const {
    return open_arrays(e.data().arrays(), seed);
  }

  std::string refusal() const {
    const auto opened = open();
    std::string message = opened ? std::string() : opened.error().message;
    for (const std::string& path : {folder.path() + "/./", folder.path() + "/"}) {
      for (std::size_t at; (at = message.find(path)) != message.npos;) {
        message.erase(at, path.size());
      }
    }
    return message;
  }

  TemporaryFolder folder;
  proto::Experiment e;
};

/// Checks that a data set is of the four samples, whichever of them are for tests.
void check_four(const Result<std::shared_ptr<const Dataset>>& data) {
  REQUIRE(data);
  CHECK((*data)->size(Split::train) == 3);
  CHECK((*data)->size(Split::test) == 1);
  CHECK((*data)->sample_shape() == Shape{2});
  CHECK((*data)->classes() == 3);
  for (const Split split : {Split::train, Split::test}) {
    const Gathered got = gather(**data, split, range(0, (*data)->size(split)));
    for (std::size_t i = 0; i < got.labels.size(); ++i) {
      CHECK(got.x[2 * i + 1] == got.x[2 * i] + 1);
      CHECK(got.labels[i] == static_cast<int>(got.x[2 * i] - 1) / 2 % 3);
    }
  }
}

std::span<const std::byte> bytes_of_text(const std::string& text) {
  return std::as_bytes(std::span(text));
}

std::string npy_refusal(const std::string& file) {
  const auto array = parse_npy(bytes_of_text(file), nullptr);
  return array ? std::string() : array.error().message;
}

Bytes as_archive(const std::string& text) {
  return Bytes(text.begin(), text.end());
}

std::string zip_refusal(const std::string& archive, const char* name = "x") {
  const auto member = unzip(as_archive(archive), name);
  return member ? std::string() : member.error().message;
}

}  // namespace

TEST_CASE("samples and labels come from .npy files", "[runtime][data]") {
  check_four(Arrays().open());
  const Arrays other;
  other.folder.write("y.npy", npy<std::uint8_t>("(4, 1)", {0, 1, 2, 0}));
  other.folder.write("x.npy", npy<double>("(4,2)", {1, 2, 3, 4, 5, 6, 7, 8}, 2));
  check_four(other.open());
  other.folder.write("x.npy", npy<std::int32_t>("(4, 2)", {1, 2, 3, 4, 5, 6, 7, 8}, 3));
  check_four(other.open());
}

TEST_CASE("what is understood of arrays is told, and what looks wrong in them", "[runtime][data]") {
  const auto of = [](const Arrays& arrays) {
    const auto data = arrays.open();
    REQUIRE(data);
    return *(*data)->preparation();
  };
  const Preparation plain = of(Arrays());
  CHECK(plain.understood ==
        std::vector<std::string>{"samples of shape (2) in \"x\"; in \"y\" their labels",
                                 "3 classes: 0 (2), 1 (1), 2 (1)",
                                 "3 samples for training and 1 for tests, drawn by seed"});
  CHECK(plain.doubts.empty());
  CHECK(plain.constant);

  const Arrays gaps({"normalize=false", "test_x=x", "test_y=y"});
  gaps.folder.write("y.npy", npy<std::int64_t>("(4,)", {0, 4, 4, 0}));
  CHECK(of(gaps).doubts ==
        std::vector<std::string>{"3 of the labels 0 to 4 are of no sample, such as 1"});
  CHECK(of(gaps).understood.back() == "4 samples for training and 4 for tests, of x");
  CHECK(of(gaps).constant == 0.5);

  const Arrays values({"values=true", "test_x=x", "test_y=y"});
  values.folder.write("y.npy", npy<float>("(4, 1)", {0, 2, 0, 2}));
  CHECK(of(values).understood.front() ==
        "samples of shape (2) in \"x\"; in \"y\" numbers to predict, 1 a sample");
  CHECK(of(values).constant == Approx(0.5));  // half a variance of 1

  const Arrays images;
  images.folder.write("x.npy", npy<std::uint8_t>("(4, 3, 8, 5)", std::vector<std::uint8_t>(480)));
  REQUIRE(of(images).doubts.size() == 1);
  CHECK(of(images).doubts[0] ==
        "samples of shape (3, 8, 5) look like images with their channels first: --set "
        "data.arrays.channels_first=true");
  const Arrays turned({"channels_first=true"});
  turned.folder.write("x.npy", npy<std::uint8_t>("(4, 3, 8, 5)", std::vector<std::uint8_t>(480)));
  CHECK(of(turned).doubts.empty());

  const Arrays many;
  std::vector<std::int64_t> numbers(100);
  std::iota(numbers.begin(), numbers.end(), 0);
  many.folder.write("x.npy", npy<float>("(100, 1)", std::vector<float>(100)));
  many.folder.write("y.npy", npy<std::int64_t>("(100,)", numbers));
  CHECK(of(many).doubts ==
        std::vector<std::string>{
            "the target has 100 different whole numbers in 100 rows, and each is a class of its "
            "own; to predict it as a number: --set data.arrays.values=true"});

  // As many classes with samples enough of each are classes; where there are none of the first, that is told.
  const Arrays each;
  for (const std::int64_t first : {0, 1}) {
    std::vector<std::int64_t> labels;
    for (std::int64_t i = 0; i < 600; ++i) {
      labels.push_back(first + i % (first == 0 ? 60 : 10));
    }
    each.folder.write("x.npy", npy<float>("(600, 1)", std::vector<float>(600)));
    each.folder.write("y.npy", npy<std::int64_t>("(600,)", labels));
    CHECK(of(each).doubts ==
          (first == 0 ? std::vector<std::string>()
                      : std::vector<std::string>{"1 of the labels 0 to 10 is of no sample: 0"}));
  }
}

TEST_CASE("samples and labels come from .npz archives, packed or not", "[runtime][data]") {
  const bool packed = GENERATE(false, true);
  const Arrays arrays({"normalize=false", "x=features", "y=labels"}, "all.npz");
  arrays.folder.write(
      "all.npz",
      zip_archive({{"labels.npy", npy<std::int64_t>("(4,)", {0, 1, 2, 0}), packed},
                   {"features.npy", npy<float>("(4, 2)", {1, 2, 3, 4, 5, 6, 7, 8}), packed}}));
  check_four(arrays.open());
}

TEST_CASE("samples and labels come from safetensors files", "[runtime][data]") {
  const Arrays arrays({"normalize=false"}, "all.safetensors");
  const Floats x{1, 2, 3, 4, 5, 6, 7, 8};
  const Ints y{0, 1, 2, 0};
  const auto write = [&](const char* dtype, const std::vector<std::int64_t>& shape) {
    REQUIRE(write_safetensors(arrays.folder / "all.safetensors",
                              {{"x", dtype, shape, std::as_bytes(std::span(x))},
                               {"y", "I64", {4}, std::as_bytes(std::span(y))}},
                              {}));
  };
  write("F32", {4, 2});
  check_four(arrays.open());
  REQUIRE(
      write_safetensors(arrays.folder / "all.safetensors",
                        {{"x", "F32", {0, 2}, {}}, {"y", "I64", {4}, std::as_bytes(std::span(y))}},
                        {}));
  CHECK(arrays.refusal() ==
        "all.safetensors is not usable: array \"x\": its shape is (0, 2), which holds no number");
  write("F8_E5M2", {4, 8});
  CHECK(arrays.refusal() ==
        "all.safetensors is not usable: array \"x\": its numbers are F8_E5M2; save them as F32 or "
        "I64");
  // Of float16 0x3c00 is 1, and of bfloat16 0x3f80.
  for (const auto& [dtype, one] : {std::pair{"F16", 0x3c00}, {"BF16", 0x3f80}}) {
    const std::vector<std::uint16_t> halves(8, static_cast<std::uint16_t>(one));
    REQUIRE(write_safetensors(arrays.folder / "all.safetensors",
                              {{"x", dtype, {4, 2}, std::as_bytes(std::span(halves))},
                               {"y", "I64", {4}, std::as_bytes(std::span(y))}},
                              {}));
    const auto data = arrays.open();
    REQUIRE(data);
    CHECK(gather(**data, Split::train, range(0, 1)).x == Floats{1, 1});
  }
}

TEST_CASE("numbers of every type, by rows or columns and in both orders of bytes, are read",
          "[runtime][data]") {
  struct Case {
    const char* descr;
    std::string elements;  // of 1, 2, 3
  };

  using namespace std::string_literals;
  const auto numbers_of = [](const std::string& descr, const std::string& elements) {
    const std::string file =
        npy_file("{'descr': '" + descr + "', 'fortran_order': False, 'shape': (3,), }", elements);
    const auto array = parse_npy(bytes_of_text(file), nullptr);
    INFO((array ? "" : array.error().message));
    REQUIRE(array);
    return std::vector<double>{(*array)[0], (*array)[1], (*array)[2]};
  };
  for (const Case& c : {Case{"<f2", "\0\x3c\0\x40\0\x42"s},
                        {">f2", "\x3c\0\x40\0\x42\0"s},
                        {"<V2", "\x80\x3f\0\x40\x40\x40"s},
                        {"|V2", "\x80\x3f\0\x40\x40\x40"s},
                        {"|i1", "\1\2\3"s},
                        {"<i2", "\1\0\2\0\3\0"s},
                        {">i2", "\0\1\0\2\0\3"s},
                        {"<u2", "\1\0\2\0\3\0"s},
                        {">u4", "\0\0\0\1\0\0\0\2\0\0\0\3"s},
                        {">i8", "\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0\3"s},
                        {">f4", "\x3f\x80\0\0\x40\0\0\0\x40\x40\0\0"s}}) {
    CAPTURE(c.descr);
    CHECK(numbers_of(c.descr, c.elements) == std::vector<double>{1, 2, 3});
  }
  CHECK(numbers_of("|b1", "\0\1\1"s) == std::vector<double>{0, 1, 1});
  CHECK(numbers_of("<i2", "\xff\xff\0\x80\xff\x7f"s) == std::vector<double>{-1, -32768, 32767});
  // The smallest half, the largest one, and minus infinity.
  const double inf = std::numeric_limits<double>::infinity();
  CHECK(numbers_of("<f2", "\1\0\xff\x7b\0\xfc"s) == std::vector<double>{0x1p-24, 65504, -inf});

  const Arrays arrays;
  const std::vector<float> columns{1, 3, 5, 7, 2, 4, 6, 8};  // (4, 2), column by column
  std::string elements(sizeof(float) * columns.size(), '\0');
  std::memcpy(elements.data(), columns.data(), elements.size());
  arrays.folder.write(
      "x.npy", npy_file("{'descr': '<f4', 'fortran_order': True, 'shape': (4, 2), }", elements));
  check_four(arrays.open());
  check_four(open_arrays(arrays.e.data().arrays(), 1, nullptr, 1));  // mapped
}

TEST_CASE("images may have their channels first", "[runtime][data]") {
  const Arrays arrays({"normalize=false", "channels_first=true", "test_x=x", "test_y=y"});
  // (2, 3, 1, 2): two images of one row and two pixels, whose three channels come one after the other.
  arrays.folder.write(
      "x.npy", npy<std::uint8_t>("(2, 3, 1, 2)", {1, 2, 11, 12, 21, 22, 31, 32, 41, 42, 51, 52}));
  arrays.folder.write("y.npy", npy<std::int64_t>("(2,)", {0, 1}));
  const auto data = arrays.open();
  REQUIRE(data);
  CHECK((*data)->sample_shape() == Shape{1, 2, 3});
  CHECK(gather(**data, Split::train, range(0, 2)).x ==
        Floats{1, 11, 21, 2, 12, 22, 31, 41, 51, 32, 42, 52});
  arrays.folder.write("x.npy", npy<float>("(4, 2)", {1, 2, 3, 4, 5, 6, 7, 8}));
  CHECK_THAT(arrays.refusal(), says("expected with data.arrays.channels_first: (N, C, H, W)"));
}

TEST_CASE("images have channels, of which each is scaled by itself", "[runtime][data]") {
  const Arrays arrays({"test_x=xt", "test_y=yt"});
  arrays.folder.write("x.npy", npy<std::uint8_t>("(2, 1, 2, 2)", {10, 5, 20, 5, 10, 5, 20, 5}));
  arrays.folder.write("y.npy", npy<std::int32_t>("(2,)", {0, 1}));
  arrays.folder.write("xt.npy", npy<std::uint8_t>("(1, 1, 2, 2)", {25, 6, 15, 5}));
  arrays.folder.write("yt.npy", npy<std::int32_t>("(1,)", {1}));
  const auto data = *arrays.open();
  CHECK(data->sample_shape() == Shape{1, 2, 2});
  CHECK(gather(*data, Split::train, range(1, 1)).x == Floats{-1, 0, 1, 0});
  CHECK(gather(*data, Split::test, range(0, 1)).x == Floats{2, 1, 0, 0});
  const Arrays grey;
  grey.folder.write("x.npy", npy<std::uint8_t>("(4, 1, 2)", {1, 2, 3, 4, 5, 6, 7, 8}));
  CHECK((*grey.open())->sample_shape() == Shape{1, 2, 1});
}

TEST_CASE("targets may be several numbers", "[runtime][data]") {
  const Arrays arrays({"values=true", "test_path=t"});
  arrays.folder.write("y.npy", npy<double>("(4, 2)", {1, 10, 3, 10, 1, 10, 3, 10}));
  arrays.folder.write("test/x.npy", npy<float>("(1, 2)", {4, 5}));
  arrays.folder.write("test/y.npy", npy<double>("(1, 2)", {5, 12}));
  proto::Arrays options = arrays.e.data().arrays();
  options.set_test_path(arrays.folder / "test");
  const auto data = *open_arrays(options, 1);
  CHECK(data->values() == 2);
  CHECK(data->classes() == 0);
  CHECK(gather(*data, Split::train, range(0, 2)).targets == Floats{-1, 0, 1, 0});
  const Gathered test = gather(*data, Split::test, range(0, 1));
  CHECK(test.targets == Floats{3, 2});
  CHECK(test.x == Floats{0, 0});  // the means of 1 3 5 7 and 2 4 6 8
}

TEST_CASE("what is wrong with arrays is said with file, array and sample", "[runtime][data]") {
  const auto refused = [](const std::string& name,
                          const std::string& content,
                          const std::vector<std::string>& assignments = {"normalize=false"}) {
    const Arrays arrays(assignments);
    arrays.folder.write(name, content);
    return arrays.refusal();
  };
  const float nan = std::numeric_limits<float>::quiet_NaN();
  CHECK_THAT(refused("x.npy", npy<float>("(4, 2)", {1, 2, 3, 4, 5, nan, 7, 8})),
             says("array \"x\": sample 2 has the number nan, which is not finite (as float32)"));
  CHECK_THAT(refused("x.npy", npy<double>("(4, 2)", {1, 2, 3, 4, 5, 6, 7, 1e300})),
             says("array \"x\": sample 3 has the number 1e+300, which is not finite"));
  CHECK_THAT(refused("y.npy", npy<std::int64_t>("(4,)", {0, 1, -1, 2})),
             says("array \"y\": the target of sample 2 is -1, which is no label: expected 0 to"));
  CHECK_THAT(refused("y.npy", npy<std::int64_t>("(4,)", {0, 1, 1, 65536})),
             says("array \"y\": the target of sample 3 is 65536, which is no label"));
  CHECK_THAT(refused("y.npy", npy<std::int64_t>("(3,)", {0, 1, 2})),
             says("array \"y\": its shape is (3); expected (N) with the 4 of \"x\""));
  CHECK_THAT(refused("y.npy", npy<std::int64_t>("(4, 2)", {0, 1, 2, 3, 4, 5, 6, 7})),
             says("array \"y\": its shape is (4, 2); expected (N)"));
  CHECK_THAT(refused("y.npy", npy<float>("(4,)", {0, 1, 2, 3})),
             says("with fractions; y.astype(\"int64\") in NumPy makes labels of them") &&
                 says("or, to predict them as numbers, set data.arrays.values=true"));
  for (const float odd : {0.5f, -1.0f}) {
    CHECK_THAT(refused("y.npy", npy<float>("(4,)", {0, 1, odd, 3})),
               !says("astype") && says("to predict them as numbers, set data.arrays.values=true"));
  }
  CHECK_THAT(refused("x.npy", npy<float>("(4,)", {0, 1, 2, 3})),
             says("array \"x\": its shape is (4); expected (N, D), (N, H, W) or (N, H, W, C)"));
  CHECK_THAT(refused("t.npy", npy<float>("(4, 1)", {1, 2, 3, 4}), {"test_x=t", "test_y=y"}),
             says("array \"t\": its shape is (4, 1); training samples have (4, 2)"));
  CHECK_THAT(refused("z", "", {"x=z"}),
             says(" is not usable: it has no array \"z\"; it has \"x\", \"y\""));
  CHECK(refused("x.npy", "") ==
        "x.npy is not usable: it is no .npy file: it does not begin with \\x93NUMPY");
}

TEST_CASE("arrays of other names are told with the settings that name them", "[runtime][data]") {
  const auto x = npy<float>("(4, 2)", {1, 2, 3, 4, 5, 6, 7, 8});
  const auto y = npy<std::int64_t>("(4,)", {0, 1, 2, 0});
  const std::string keys =
      "--set data.arrays.x=X_train --set data.arrays.y=y_train --set data.arrays.test_x=X_test "
      "--set data.arrays.test_y=y_test";
  const std::string four = zip_archive({{"X_train.npy", x, false, 0},
                                        {"y_train.npy", y, false, 0},
                                        {"X_test.npy", x, false, 0},
                                        {"y_test.npy", y, false, 0}});
  const Arrays archive({}, "it.npz");
  archive.folder.write("it.npz", four);
  CHECK(archive.refusal() ==
        "it.npz is not usable: it has no array \"x\"; it has \"X_test\", \"X_train\", \"y_test\", "
        "\"y_train\": " +
            keys);
  const std::vector<std::string> pasted{
      "x=X_train", "y=y_train", "test_x=X_test", "test_y=y_test", "normalize=false"};
  Arrays with(pasted, "it.npz");
  with.folder.write("it.npz", four);
  CHECK(with.refusal() == "");
  // So is the folder where one of its files was named.
  Arrays file({}, "X_train.npy");
  std::filesystem::remove(file.folder / "x.npy");
  std::filesystem::remove(file.folder / "y.npy");
  for (const char* part : {"train", "test"}) {
    file.folder.write(concat("X_", part, ".npy"), x);
    file.folder.write(concat("y_", part, ".npy"), y);
  }
  CHECK_THAT(file.refusal(), says("--set data.arrays.path=" + file.folder.path() + " " + keys));
  // In capitals, too, and where a name is that of its key, which is no default of test_x.
  const Arrays loud({}, "it.npz");
  loud.folder.write("it.npz",
                    zip_archive({{"DATA.npy", x, false, 0},
                                 {"X_TRAIN.npy", x, false, 0},
                                 {"Y_TRAIN.npy", y, false, 0},
                                 {"test_x.npy", x, false, 0},
                                 {"test_y.npy", y, false, 0}}));
  CHECK_THAT(loud.refusal(),
             says("--set data.arrays.x=X_TRAIN --set data.arrays.y=Y_TRAIN --set "
                  "data.arrays.test_x=test_x --set data.arrays.test_y=test_y"));
  // Names that say nothing are told, and who knows which is which sets them.
  const Arrays others({}, "it.npz");
  others.folder.write("it.npz", zip_archive({{"a.npy", x, false, 0}, {"b.npy", y, false, 0}}));
  CHECK(others.refusal() ==
        "it.npz is not usable: it has no array \"x\"; it has \"a\", \"b\"; data.arrays.x and "
        "data.arrays.y say which are samples and targets");
}

TEST_CASE("paths and names that do not fit are refused", "[runtime][data]") {
  const Arrays one({}, "x.npy");
  CHECK(one.refusal() ==
        "x.npy is one array, and samples and targets are two: --set data.arrays.path=" +
            one.folder.path());
  std::filesystem::remove(one.folder / "y.npy");
  CHECK_THAT(one.refusal(), says("put them into a folder, as x.npy and y.npy, and name that"));
  CHECK_THAT(Arrays({}, "none").refusal(),
             says("none is not usable: it cannot be opened: No such file"));
  CHECK(Arrays({"test_x=t"}).refusal() ==
        "data.arrays: test_x and test_y name the test samples and their targets together");
  CHECK_THAT(open_arrays(proto::Arrays(), 1).error().message, says("data.arrays.path is not set"));
}

TEST_CASE("damaged .npy files are refused", "[runtime][data]") {
  const std::string good = npy<float>("(2, 2)", {1, 2, 3, 4});
  CHECK(npy_refusal(good).empty());
  for (std::size_t length = 0; length < good.size(); ++length) {
    CAPTURE(length);
    CHECK_FALSE(npy_refusal(good.substr(0, length)).empty());
  }
  CHECK(npy_refusal(good + "x") ==
        "its shape is (2, 2) of <f4, which does not make the 17 bytes behind its header");
  const auto with = [](const std::string& dictionary, const std::string& elements = "1234") {
    return npy_refusal(npy_file(dictionary, elements));
  };
  CHECK(with("{'descr': '<f4', 'fortran_order': False, 'shape': (1,)}").empty());
  CHECK(with("{\"shape\": (), \"fortran_order\": False, \"descr\": \"<i4\"}").empty());
  CHECK(with("{'descr': '<c8', 'fortran_order': False, 'shape': (1,)}") ==
        "its numbers are of type \"<c8\"; write a.astype(\"float32\") of it, or \"int64\" of "
        "labels");
  CHECK_THAT(with("{'descr': '|O', 'fortran_order': False, 'shape': (1,)}"), says("\"|O\""));
  CHECK(with("{'descr': '<U5', 'fortran_order': False, 'shape': (1,)}") ==
        "its numbers are of type \"<U5\"; numpy.unique(a, return_inverse=True)[1] makes labels of "
        "texts");
  const std::string shapes = "its header is not {'descr'";
  for (const char* dictionary :
       {"{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}",
        "{'descr': '<f4', 'fortran_order': False}",
        "{'descr': '<f4', 'descr': '<f4', 'shape': (1,)}",
        "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1,)} x",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}",
        ""}) {
    CAPTURE(dictionary);
    CHECK_THAT(with(dictionary), says(shapes));
  }
  // More than there is, or than can be counted: refused by the header alone.
  CHECK_THAT(with("{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000,)}"),
             says("does not make the 4 bytes"));
  CHECK_THAT(with("{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, 4294967296, 1)}"),
             says("does not make the 4 bytes"));
  CHECK_THAT(with("{'descr': '<f4', 'fortran_order': False, 'shape': (0,)}", ""),
             says(": it has no samples"));
  CHECK_THAT(npy_refusal(npy_file("{}", "", 4)), says("its format is of version 4"));
  CHECK_THAT(npy_refusal("\x93NUMPY\x02" + std::string(1, '\0') + "\xff\xff\xff\xff"),
             says("its header would be 4294967295 bytes long"));
}

TEST_CASE("samples without targets are for prediction, and shown as those with targets",
          "[runtime][data]") {
  for (const std::vector<std::string>& set :
       {std::vector<std::string>{}, std::vector<std::string>{"values=true"}}) {
    const Arrays trained(set);
    if (!set.empty()) {
      trained.folder.write("y.npy", npy<float>("(4, 3)", {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}));
    }
    const auto learnt = trained.open();
    REQUIRE(learnt);
    const Preparation* const prepared = (*learnt)->preparation();
    CHECK_FALSE(prepared->without_target);
    const auto shown = [&](const Arrays& arrays) {
      return open_arrays(arrays.e.data().arrays(), 1, prepared);
    };
    const auto whole = shown(trained);
    Arrays alone(set);
    std::filesystem::remove(alone.folder / "y.npy");
    CHECK_THAT(alone.refusal(), says("it has no array \"y\""));  // nothing is learnt from them
    const auto rows = shown(alone);
    Arrays archive(set, "it.npz");
    archive.folder.write("it.npz",
                         zip_archive({{"x.npy", npy<float>("(4, 2)", {1, 2, 3, 4, 5, 6, 7, 8})}}));
    const auto zipped = shown(archive);
    REQUIRE((whole && rows && zipped));
    CHECK_FALSE((*whole)->preparation()->without_target);
    CHECK((*rows)->preparation()->without_target);
    CHECK((*zipped)->preparation()->without_target);
    CHECK((*rows)->values() == (*whole)->values());
    CHECK((*rows)->classes() == (*whole)->classes());
    CHECK(everything(**rows).x == everything(**whole).x);
    CHECK(everything(**zipped).x == everything(**whole).x);
    alone.folder.write("x.npy", npy<float>("()", {1}));
    const auto number = shown(alone);
    REQUIRE_FALSE(number);
    CHECK_THAT(number.error().message, says("its shape is ()"));
    archive.folder.write("it.npz", "PK\x03\x04 damaged");
    REQUIRE_FALSE(shown(archive));
  }
}

TEST_CASE("damaged archives are refused", "[runtime][data]") {
  const std::string text(5000, 'a');
  const std::string good = zip_archive({{"x", text, true}, {"y", "plain"}});
  CHECK(*unzip(as_archive(good), "x") == as_archive(text));
  CHECK(*unzip(as_archive(good), "y") == as_archive("plain"));
  CHECK(zip_refusal(good, "z") == "it has no member \"z\"; it has \"x\", \"y\"");
  CHECK(zip_refusal(zip_archive({}), "z") ==
        "it is no zip archive, or one that is empty or cut short");
  for (std::size_t length = 0; length < good.size(); ++length) {
    CAPTURE(length);
    CHECK_FALSE(zip_refusal(good.substr(0, length)).empty());
  }
  // Any one byte that is changed: refused or without effect, never another content.
  for (std::size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 0x15);
    const auto member = unzip(as_archive(bad), "x");
    CAPTURE(i);
    CHECK((!member || *member == as_archive(text)));
  }
  std::string other = good;
  other[other.find("plain")] = 'P';
  CHECK_THAT(zip_refusal(other, "y"), says("its member \"y\" is damaged: ZIP bad CRC"));
  for (const std::int64_t off : {std::int64_t{1}, std::int64_t{-1}, std::int64_t{4'000'000'000}}) {
    CHECK_THAT(zip_refusal(zip_archive({{"x", text, true, off}})),
               says("its member \"x\" is damaged: ZIP uncompressed data is wrong size"));
  }
  CHECK_THAT(zip_refusal(zip_archive({{"x", text, false, 1}})),
             says("its member \"x\" is damaged"));
}

TEST_CASE("an archive whose directory counts in 64 bits is read, and names are UTF-8",
          "[runtime][data]") {
  std::string archive = zip_archive({{"größe", std::string(5000, 'a'), true}});
  const std::string end = archive.substr(archive.size() - 22);
  archive.resize(archive.size() - end.size());
  const std::uint64_t at = archive.size();
  archive += little_endian(0x06064b50, 4) + little_endian(44, 8) + little_endian(45, 2) +
             little_endian(45, 2) + std::string(8, '\0') + little_endian(1, 8) +
             little_endian(1, 8) + end.substr(12, 4) + std::string(4, '\0') + end.substr(16, 4) +
             std::string(4, '\0');
  archive += little_endian(0x07064b50, 4) + little_endian(0, 4) + little_endian(at, 8) +
             little_endian(1, 4);
  archive += little_endian(0x06054b50, 4) + little_endian(0, 4) + little_endian(0xffff, 2) +
             little_endian(0xffff, 2) + little_endian(0xffffffff, 4) +
             little_endian(0xffffffff, 4) + little_endian(0, 2);
  CHECK(zip_refusal(archive, "größe") == "");
  CHECK(*unzip(as_archive(archive), "größe") == as_archive(std::string(5000, 'a')));
}

TEST_CASE("arrays that stay in their files give the samples of those that are read",
          "[runtime][data]") {
  const Arrays labels({"test_share=0.25"});
  const Arrays images({"test_share=0.25"});
  images.folder.write("x.npy", npy<std::uint8_t>("(4, 1, 2)", {1, 2, 3, 4, 5, 6, 7, 8}));
  const Arrays values({"values=true", "test_share=0.5"});
  values.folder.write("y.npy", npy<double>("(4, 2)", {1, 10, 3, 10, 1, 12, 3, 10}));
  for (const Arrays* arrays : {&labels, &images, &values}) {
    const auto& options = arrays->e.data().arrays();
    const auto read = open_arrays(options, 3);
    const auto mapped = open_arrays(options, 3, nullptr, 1);
    REQUIRE(read);
    REQUIRE(mapped);
    CHECK((*mapped)->sample_shape() == (*read)->sample_shape());
    CHECK((*mapped)->classes() == (*read)->classes());
    CHECK((*mapped)->values() == (*read)->values());
    for (const Split split : {Split::train, Split::test}) {
      REQUIRE((*mapped)->size(split) == (*read)->size(split));
      const auto all = range(0, (*read)->size(split));
      CHECK(gather(**mapped, split, all) == gather(**read, split, all));
    }
    const Preparation* learnt = (*mapped)->preparation();
    REQUIRE(learnt);
    const auto again = open_arrays(options, 3, learnt, 1);
    REQUIRE(again);
    CHECK(gather(**again, Split::test, range(0, 1)) == gather(**mapped, Split::test, range(0, 1)));
  }
}

TEST_CASE("arrays that stay in their files are checked, too", "[runtime][data]") {
  const Arrays arrays;
  const auto& options = arrays.e.data().arrays();
  const auto data = open_arrays(options, 1, nullptr, 1);
  REQUIRE(data);
  const auto cut = [&](std::uintmax_t by) {
    const std::string path = arrays.folder / "x.npy";
    std::filesystem::resize_file(path, std::filesystem::file_size(path) - by);
  };
  cut(4);
  CHECK_THROWS_WITH(gather(**data, Split::train, range(0, 1)),
                    Catch::Contains("a file has become shorter while it was read"));
  const auto shorter = open_arrays(options, 1, nullptr, 1);
  REQUIRE_FALSE(shorter);
  CHECK_THAT(
      shorter.error().message,
      Catch::Contains("x.npy is not usable: its shape is (4, 2) of <f4, which does not make"));
  arrays.folder.write(
      "x.npy", npy<float>("(4, 2)", {1, 2, 3, 4, 5, std::numeric_limits<float>::infinity(), 7, 8}));
  const auto infinite = open_arrays(options, 1, nullptr, 1);
  REQUIRE_FALSE(infinite);
  CHECK_THAT(infinite.error().message, Catch::Contains("sample 2 has the number inf"));
}

TEST_CASE("a table is converted block by block to arrays of the same numbers", "[runtime][data]") {
  const TemporaryFolder folder;
  std::string text =
      "\xef\xbb\xbf"
      "a,colour,left,kind\r\n";
  for (int i = 0; i < 60; ++i) {
    text += concat(0.25 * i,
                   ",\"",
                   i % 3 == 0   ? "red"
                   : i % 3 == 1 ? "green, \"\"dark\"\""
                                : "blue",
                   "\",x,",
                   i % 2 == 0 ? "yes" : "no",
                   i % 5 == 0 ? "\r\n\n" : "\r\n");
  }
  folder.write("t.csv", text);
  proto::Experiment e;
  for (const std::string& assignment : {"path=" + (folder / "t.csv"),
                                        std::string("categories=[colour]"),
                                        std::string("leave_out=[left]"),
                                        std::string("normalize=false")}) {
    REQUIRE(set_value(e, "data.csv." + assignment));
  }
  REQUIRE(resolve(e));
  const auto table = open_csv(e.data().csv(), 7);
  REQUIRE(table);
  int made_folders = 0;
  for (const std::size_t block :
       {std::size_t{1}, std::size_t{30}, std::size_t{200}, kConvertedBlock}) {
    const std::string to = folder / concat("arrays", ++made_folders);
    const auto made = convert_csv(e.data().csv(), to, block);
    INFO((made ? "" : made.error().message));
    REQUIRE(made);
    CHECK(made->rows == 60);
    CHECK(made->columns == 4);
    CHECK(made->classes == std::vector<std::string>{"no", "yes"});
    proto::Experiment other;
    REQUIRE(set_value(other, "data.arrays.path=" + to));
    REQUIRE(set_value(other, "data.arrays.normalize=false"));
    REQUIRE(resolve(other));
    const auto arrays = open_arrays(other.data().arrays(), 7);
    REQUIRE(arrays);
    for (const Split split : {Split::train, Split::test}) {
      REQUIRE((*arrays)->size(split) == (*table)->size(split));
      const auto all = range(0, (*table)->size(split));
      CHECK(gather(**arrays, split, all) == gather(**table, split, all));
    }
  }
  std::string wide = "\xff\xfe";  // the same in UTF-16
  for (const char c : text.substr(3)) {
    wide += {c, '\0'};
  }
  folder.write("t.csv", wide);
  for (const std::size_t block : {std::size_t{1}, std::size_t{31}, kConvertedBlock}) {
    const std::string to = folder / concat("arrays", ++made_folders);
    REQUIRE(convert_csv(e.data().csv(), to, block));
    for (const std::string name : {"/x.npy", "/y.npy"}) {
      CHECK(*read_input_file(to + name, 1 << 20) ==
            *read_input_file(folder / ("arrays1" + name), 1 << 20));
    }
  }
  folder.write("t.csv", text + std::string("1,red,x,\0yes\n", 13));
  const auto zero = convert_csv(e.data().csv(), folder / "none", 30);
  REQUIRE_FALSE(zero);
  CHECK_THAT(zero.error().message, Catch::Contains("line 74: it has a byte of 0"));
  folder.write("t.csv", text + "1,red,x\n");
  const auto short_row = convert_csv(e.data().csv(), folder / "none", 30);
  REQUIRE_FALSE(short_row);
  CHECK_THAT(short_row.error().message, Catch::Contains("line 74: it has 3 fields; expected 4"));
  CHECK_FALSE(std::filesystem::exists(folder / "none"));
}

}  // namespace arrays_test
