#include "runtime/data/text.hpp"

#include "experiment/data.pb.h"
#include "runtime/data/input_file.hpp"
#include "runtime/data/vocabulary.hpp"
#include "tests/runtime/data/files.hpp"
#include "tests/runtime/data/samples.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/skip.hpp"
#include "tests/support/surroundings.hpp"

#include <sys/stat.h>
#include <zlib.h>

#include <cstdint>
#include <filesystem>
#include <numeric>
#include <set>
#include <string>
#include <vector>

namespace text_test {

using namespace troupe;
using namespace troupe::test;

namespace {

/// Options as resolve() leaves them.
proto::Text options_of(const std::string& path, std::int64_t context, std::int64_t stride = 0) {
  proto::Text options;
  options.set_path(path);
  options.set_context(context);
  options.set_stride(stride);
  options.mutable_vocabulary()->mutable_bytes();
  return options;
}

/// `count` bytes of which each tells its place: 0, 1, ... modulo 251.
std::string counting(std::size_t count) {
  std::string text;
  for (std::size_t i = 0; i < count; ++i) {
    text += static_cast<char>(i % 251);
  }
  return text;
}

void check_refused(const proto::Text& options, const std::string& message) {
  const auto dataset = open_text(options, 1);
  REQUIRE_FALSE(dataset);
  CHECK(dataset.error().kind == ErrorKind::data);
  CHECK(dataset.error().message == message);
}

}  // namespace

TEST_CASE("a label is the token after, and windows lie where they are said to lie",
          "[runtime][data]") {
  const std::size_t length = GENERATE(200, 231, 240);  // below 251: a token is its place
  const std::int64_t context = GENERATE(2, 7, 15);
  const std::int64_t stride = GENERATE(0, 1, 5, 30, 300);
  CAPTURE(length, context, stride);
  const TemporaryFolder folder;
  folder.write("text", counting(length));
  const auto opened = open_text(options_of(folder / "text", context, stride), 1);
  REQUIRE(opened);
  const Dataset& dataset = **opened;
  CHECK(dataset.input_type() == DType::int32);
  CHECK(dataset.sample_shape() == Shape{context});
  CHECK(dataset.labels_per_sample() == context);
  CHECK(dataset.classes() == 256);
  const auto test_begin = static_cast<std::int64_t>(length - length / 10);
  const std::int64_t step = stride > 0 ? stride : context;
  std::set<std::int64_t> offsets;
  for (std::int64_t epoch = 0; epoch < 40; ++epoch) {
    const std::int64_t count = dataset.size(Split::train);
    const Gathered got = gather(dataset, Split::train, range(0, count), epoch);
    const std::int64_t first = got.tokens[0];
    offsets.insert(first);
    REQUIRE(first < step);
    for (std::int64_t i = 0; i < count; ++i) {
      for (std::int64_t t = 0; t < context; ++t) {
        const auto at = static_cast<std::size_t>(i * context + t);
        REQUIRE(got.tokens[at] == first + i * step + t);
        REQUIRE(got.labels[at] == got.tokens[at] + 1);
        REQUIRE(got.labels[at] < test_begin);
      }
    }
    // Not one more fits at every offset.
    CHECK((count == 1 || (count + 1) * step > test_begin - context));
  }
  CHECK((offsets.size() > 1) == (step > 1));
  const std::int64_t tests = dataset.size(Split::test);
  CHECK(tests == (static_cast<std::int64_t>(length) - test_begin - 1) / context);
  const Gathered test = gather(dataset, Split::test, range(0, tests));
  for (std::size_t i = 0; i < test.tokens.size(); ++i) {
    REQUIRE(test.tokens[i] == test_begin + static_cast<std::int64_t>(i));
    REQUIRE(test.labels[i] == test.tokens[i] + 1);
  }
  CHECK(gather(dataset, Split::test, range(0, tests), 5) == test);
}

TEST_CASE("an epoch's offset depends on the seed and the epoch alone", "[runtime][data]") {
  const TemporaryFolder folder;
  folder.write("text", counting(5000));
  const auto options = options_of(folder / "text", 64);
  const auto one = *open_text(options, 1);
  const auto two = *open_text(options, 2);
  int differ = 0;
  for (std::int64_t epoch = 0; epoch < 20; ++epoch) {
    const Gathered whole = gather(*one, Split::train, range(0, 10), epoch);
    const Gathered part = gather(*one, Split::train, range(4, 1), epoch);
    CHECK(part.tokens == std::vector(whole.tokens.begin() + 4 * 64, whole.tokens.begin() + 5 * 64));
    differ += whole != gather(*two, Split::train, range(0, 10), epoch);
  }
  CHECK(differ > 15);  // of 64 offsets, two are equal once in 64
}

TEST_CASE("characters are the bytes of the file in rising order", "[runtime][data]") {
  const TemporaryFolder folder;
  const std::string text = "the cat\n\xff sat on the mat and then the rat sat on the cat again\n";
  folder.write("text", text);
  proto::Text options = options_of(folder / "text", 4);
  options.mutable_vocabulary()->mutable_characters();
  const auto dataset = *open_text(options, 1);
  const std::set<unsigned char> distinct(text.begin(), text.end());
  CHECK(dataset->classes() == static_cast<int>(distinct.size()));
  REQUIRE(dataset->vocabulary() != nullptr);
  const Vocabulary& vocabulary = *dataset->vocabulary();
  CHECK(vocabulary.size() == dataset->classes());
  std::vector<std::int32_t> all(distinct.size());
  std::iota(all.begin(), all.end(), 0);
  CHECK(vocabulary.decode(all) == std::string(distinct.begin(), distinct.end()));
  CHECK(vocabulary.decode(*vocabulary.encode(text)) == text);
  const Gathered got = gather(*dataset, Split::train, range(1, 1), 0);
  CHECK(text.find(vocabulary.decode(got.tokens) + vocabulary.decode(got.labels).back()) !=
        std::string::npos);

  const auto unknown = vocabulary.encode("cat!");
  REQUIRE_FALSE(unknown);
  CHECK(unknown.error().kind == ErrorKind::data);
  CHECK(unknown.error().message == concat("byte 33 (at 3 of the text) is none of the vocabulary's ",
                                          distinct.size(),
                                          " characters"));
  CHECK_THROWS_AS(vocabulary.decode(std::vector<std::int32_t>{vocabulary.size()}), ContractError);
  CHECK_THROWS_AS(vocabulary.decode(std::vector<std::int32_t>{-1}), ContractError);
}

TEST_CASE("text that is missing or too short is refused with one sentence", "[runtime][data]") {
  const TemporaryFolder folder;
  folder.write("short", counting(80));
  check_refused(
      options_of(folder / "short", 8),
      folder / "short" +
          " is too short: of its 80 tokens the last tenth, 8, are for tests, and a sample "
          "of data.text.context 8 needs one more than that");
  CHECK(open_text(options_of(folder / "short", 7), 1));
  folder.write("empty", "");
  CHECK_FALSE(open_text(options_of(folder / "empty", 2), 1));
  check_refused(options_of(folder / "none", 8),
                concat("data.text.path is ", folder / "none", ", and there is no such file"));

  const Environment data("TROUPE_DATA", folder.path());
  const Environment cache("XDG_CACHE_HOME", folder / "cache");
  check_refused(options_of("", 8),
                concat("data.text.path is not set, and Shakespeare's text was looked for as ",
                       folder / "shakespeare/input.txt",
                       ", data/shakespeare/input.txt, ",
                       folder / "cache/troupe/shakespeare/input.txt",
                       " and not found: name a text file by --set data.text.path=FILE; `troupe "
                       "data fetch shakespeare` downloads that one"));
  folder.write("cache/troupe/shakespeare/input.txt", counting(100));
  CHECK(open_text(options_of("", 8), 1));
}

TEST_CASE("a pipe is not opened, and little that would become much not read on",
          "[runtime][data]") {
  const TemporaryFolder folder;
  const std::string pipe = folder / "pipe";
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  InputFile waits(pipe);  // nobody writes: opening it would never end
  Bytes bytes;
  CHECK_FALSE(waits.read(1, bytes));
  CHECK(waits.error() == "it is not a file");

  const std::string bomb = folder / "bomb.gz";
  const gzFile out = gzopen(bomb.c_str(), "wb9");
  const std::string zeros(std::size_t{1} << 20, '\0');
  for (int i = 0; i < 100; ++i) {
    REQUIRE(gzwrite(out, zeros.data(), static_cast<unsigned>(zeros.size())) > 0);
  }
  REQUIRE(gzclose(out) == Z_OK);
  const auto read = read_input_file(bomb, std::size_t{1} << 30);
  REQUIRE_FALSE(read);
  CHECK(read.error().message ==
        bomb + " is not usable: it inflates to more than 100 times its size");
}

TEST_CASE("Shakespeare is read as 65 characters", "[runtime][data]") {
  const std::filesystem::path path =
      std::filesystem::path(TROUPE_SHARED_DATA) / "tinyshakespeare" / "input.txt";
  if (!std::filesystem::exists(path)) {
    return skip("no Shakespeare beside the repository");
  }
  proto::Text options = options_of(path.string(), 128);
  options.mutable_vocabulary()->mutable_characters();
  const auto dataset = *open_text(options, 1);
  CHECK(dataset->classes() == 65);
  CHECK(dataset->size(Split::train) == 7841);  // (1115394 - 111539 - 128) / 128
  CHECK(dataset->size(Split::test) == 871);    // (111539 - 1) / 128
}

TEST_CASE("contiguous samples lie side by side in every epoch", "[runtime][data]") {
  const TemporaryFolder folder;
  folder.write("text", counting(240));
  proto::Text options = options_of(folder / "text", 7);
  options.set_contiguous(true);
  const auto opened = open_text(options, 1);
  REQUIRE(opened);
  CHECK((*opened)->contiguous());
  for (std::int64_t epoch = 0; epoch < 5; ++epoch) {
    const Gathered got =
        gather(**opened, Split::train, range(0, (*opened)->size(Split::train)), epoch);
    for (std::size_t i = 0; i < got.tokens.size(); ++i) {
      REQUIRE(got.tokens[i] == static_cast<std::int32_t>(i));
    }
  }
  options.set_stride(3);
  const auto apart = open_text(options, 1);
  REQUIRE_FALSE(apart);
  CHECK(apart.error().message.starts_with("data.text.stride: "));
}

}  // namespace text_test
