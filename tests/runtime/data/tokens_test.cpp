// Token numbers of one's own, in small files that the tests write.
#include "runtime/data/tokens.hpp"

#include "experiment.pb.h"
#include "messages/experiment.hpp"
#include "tests/runtime/data/array_files.hpp"
#include "tests/runtime/data/files.hpp"
#include "tests/runtime/data/samples.hpp"
#include "tests/support/catch.hpp"

#include <cstdint>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

namespace tokens_test {

using namespace troupe;
using namespace troupe::test;

namespace {

/// Tokens first, first + 1, ... of `width` bytes.
std::string counting(std::int64_t first, std::int64_t count, int width = 2) {
  std::string bytes;
  for (std::int64_t i = first; i < first + count; ++i) {
    bytes += little_endian(static_cast<std::uint64_t>(i), width);
  }
  return bytes;
}

/// What llm.c writes before them.
std::string header(std::uint32_t magic, std::uint32_t version, std::int64_t count) {
  return little_endian(magic, 4) + little_endian(version, 4) +
         little_endian(static_cast<std::uint64_t>(count), 4) + std::string(253 * 4, '\0');
}

struct TokenFiles {
  explicit TokenFiles(const std::string& train,
                      const std::vector<std::string>& assignments = {},
                      const std::string& test = "") {
    folder.write("train.bin", train);
    folder.write("val.bin", test);
    REQUIRE(set_value(e, "data.tokens.path=" + (folder / "train.bin")));
    REQUIRE(set_value(e, "data.tokens.context=4"));
    for (const std::string& assignment : assignments) {
      REQUIRE(set_value(e, "data.tokens." + assignment));
    }
    if (!test.empty()) {
      REQUIRE(set_value(e, "data.tokens.test_path=" + (folder / "val.bin")));
    }
    REQUIRE(resolve(e));
  }

  Result<std::shared_ptr<const Dataset>> open() const { return open_tokens(e.data().tokens(), 1); }

  std::string refusal() const {
    const auto opened = open();
    std::string message = opened ? std::string() : opened.error().message;
    const std::string path = folder.path() + "/";
    const std::size_t at = message.find(path);
    return at == message.npos ? message : message.erase(at, path.size());
  }

  TemporaryFolder folder;
  proto::Experiment e;
};

void check_windows(const Dataset& data, std::int64_t first_test) {
  CHECK(data.input_type() == DType::int32);
  CHECK(data.sample_shape() == Shape{4});
  CHECK(data.labels_per_sample() == 4);
  CHECK(data.vocabulary() == nullptr);
  for (const std::int64_t epoch : {0, 1, 2, 3}) {
    const Gathered train = gather(data, Split::train, range(0, data.size(Split::train)), epoch);
    CHECK(train.tokens[0] < 4);
    for (std::size_t i = 0; i < train.tokens.size(); ++i) {
      CHECK(train.tokens[i] == train.tokens[0] + static_cast<std::int32_t>(i));
      CHECK(train.labels[i] == train.tokens[i] + 1);
    }
  }
  const Gathered test = gather(data, Split::test, range(0, data.size(Split::test)));
  for (std::size_t i = 0; i < test.tokens.size(); ++i) {
    CHECK(test.tokens[i] == first_test + static_cast<std::int64_t>(i));
    CHECK(test.labels[i] == test.tokens[i] + 1);
  }
}

}  // namespace

TEST_CASE("tokens without a header are of 16 or 32 bits", "[runtime][data]") {
  const TokenFiles narrow(counting(0, 100));
  const auto two = *narrow.open();
  CHECK(two->classes() == 50257);
  CHECK(two->size(Split::train) == (90 - 4) / 4);
  CHECK(two->size(Split::test) == (10 - 1) / 4);
  check_windows(*two, 90);
  const TokenFiles wide(counting(0, 100, 4), {"type=uint32", "test_share=0.2"});
  const auto four = *wide.open();
  CHECK(four->size(Split::test) == (20 - 1) / 4);
  check_windows(*four, 80);
}

TEST_CASE("test tokens may have a file of their own", "[runtime][data]") {
  const TokenFiles files(counting(0, 50), {"vocabulary=2000"}, counting(1000, 30));
  const auto data = *files.open();
  CHECK(data->classes() == 2000);
  CHECK(data->size(Split::train) == (50 - 4) / 4);
  CHECK(data->size(Split::test) == (30 - 1) / 4);
  check_windows(*data, 1000);
  const TokenFiles few(counting(0, 50), {"test_limit=2"}, counting(1000, 30));
  CHECK((*few.open())->size(Split::test) == 2);
  const TokenFiles more(counting(0, 50), {"test_limit=20"}, counting(1000, 30));
  CHECK((*more.open())->size(Split::test) == 7);
}

TEST_CASE("llm.c's header says how tokens are stored", "[runtime][data]") {
  const TokenFiles narrow(header(20240520, 1, 100) + counting(0, 100), {"type=uint32"});
  check_windows(**narrow.open(), 90);
  const TokenFiles wide(header(20240801, 7, 100) + counting(0, 100, 4));
  check_windows(**wide.open(), 90);
}

TEST_CASE("malformed token files are refused", "[runtime][data]") {
  CHECK(TokenFiles(counting(0, 50) + "x").refusal() ==
        "train.bin is not usable: it is 101 bytes long, which is no whole number of tokens of 2 "
        "bytes");
  CHECK(TokenFiles(header(20240520, 2, 100) + counting(0, 100)).refusal() ==
        "train.bin is not usable: its header is of version 2; expected 1");
  CHECK(TokenFiles(header(20240520, 1, 101) + counting(0, 100)).refusal() ==
        "train.bin is not usable: its header promises 101 tokens of 2 bytes, and behind it there "
        "are 200 bytes");
  CHECK_THAT(TokenFiles(header(20240520, 1, 0xffffffff) + counting(0, 100)).refusal(),
             says("its header promises -1 tokens"));
  CHECK(TokenFiles(counting(0, 50), {"vocabulary=40"}).refusal() ==
        "train.bin is not usable: token 40 is 40, where data.tokens.vocabulary is 40: expected 0 "
        "to 39");
  CHECK_THAT(
      TokenFiles(little_endian(0xffffffff, 4) + counting(0, 50, 4), {"type=uint32"}).refusal(),
      says("token 0 is 4294967295"));
  CHECK(
      TokenFiles(counting(0, 40)).refusal() ==
      "train.bin is too short: its test tokens are 4, and a sample of data.tokens.context 4 needs "
      "one more than that");
  CHECK_THAT(TokenFiles("").refusal(), says("train.bin is too short: its training tokens are 0"));
  CHECK_THAT(TokenFiles(counting(0, 50), {}, counting(0, 4)).refusal(),
             says("val.bin is too short: its test tokens are 4"));
  CHECK_THAT(TokenFiles("", {"path=missing.bin"}).refusal(),
             says("missing.bin is not usable: it cannot be opened: "));
  CHECK_THAT(TokenFiles("", {"path=/dev/null"}).refusal(), says("it is not a file"));
  CHECK_THAT(open_tokens(proto::Tokens(), 1).error().message, says("data.tokens.path is not set"));
}

TEST_CASE("a token beyond those looked at first is refused when it is met", "[runtime][data]") {
  const std::int64_t place = 1'000'100;
  const TokenFiles files(std::string(2 * place, '\0') + counting(60000, 1) +
                         std::string(2'000'000, '\0'));
  const auto data = *files.open();
  CHECK_NOTHROW(gather(*data, Split::train, range(0, 100)));
  CHECK_THROWS_WITH(
      gather(*data, Split::train, range(place / 4 - 2, 4)),
      says(concat("token ", place, " is 60000, where data.tokens.vocabulary is 50257")));
}

TEST_CASE("a file that becomes shorter ends a read with a sentence", "[runtime][data]") {
  const TokenFiles files(counting(0, 5000));
  const auto data = *files.open();
  std::filesystem::resize_file(files.folder / "train.bin", 100);
  CHECK_THROWS_AS(gather(*data, Split::train, range(100, 1)), std::runtime_error);
  CHECK_THROWS_WITH(gather(*data, Split::train, range(100, 1)),
                    says("it ends at byte ") && says(" now and was longer before"));
}

TEST_CASE("what is no file of tokens is known by its first bytes", "[runtime][data]") {
  std::string text;
  for (int i = 0; i < 40; ++i) {
    text += "To be, or not\n";
  }
  CHECK_THAT(TokenFiles(text).refusal(), says("it is text, not tokens"));
  CHECK_THAT(TokenFiles(counting(1, 100, 4)).refusal(), says("--set data.tokens.type=uint32"));
  CHECK(TokenFiles(counting(1, 100, 4), {"type=uint32"}).refusal() == "");
  CHECK_THAT(TokenFiles("\x93NUMPY" + std::string(90, '\1')).refusal(),
             says("it is an array of NumPy's; python3 -c 'import numpy"));
  // Of a length that no file of tokens has, and still known.
  CHECK_THAT(TokenFiles("PK\3\4" + std::string(30, '\0') + "xl/workbook").refusal(),
             says("it is an Excel workbook"));
  const std::string token_640 = "\x80\x02" + std::string(90, '\1');  // so begin pickles, too
  CHECK(TokenFiles(token_640).refusal().find("pickle") == std::string::npos);
}

}  // namespace tokens_test
