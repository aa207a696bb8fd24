// Files are made by hand as bytes: what the format's own library writes and reads is spelt out, and
// damage is done byte by byte.
#include "runtime/checkpoint/safetensors.hpp"

#include "kernels/random.hpp"
#include "tests/support/catch.hpp"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <new>
#include <sstream>

using namespace troupe;
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

/// A folder of its own for each test, gone at the end.
struct Folder {
  Folder() {
    static int count = 0;
    path = fs::temp_directory_path() / concat("troupe-safetensors-test-", getpid(), "-", ++count);
    fs::create_directory(path);
  }

  ~Folder() { fs::remove_all(path); }

  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  fs::path path;
};

/// A new file each time: ext4 waits for the disk when one is written over.
void store(const fs::path& path, const std::string& bytes) {
  fs::remove(path);
  std::ofstream(path, std::ios::binary) << bytes;
}

std::string contents(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

/// A file with this header, its length in front, and this data.
std::string file_of(const std::string& header, const std::string& data) {
  std::string bytes(8, '\0');
  const std::uint64_t length = header.size();
  std::memcpy(bytes.data(), &length, sizeof length);
  return bytes + header + data;
}

std::string raw(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), 4 * values.size()};
}

std::string raw(const std::vector<std::uint16_t>& values) {
  return {reinterpret_cast<const char*>(values.data()), 2 * values.size()};
}

SafetensorsEntry entry(std::string name,
                       std::vector<std::int64_t> shape,
                       const std::vector<float>& values) {
  return {std::move(name), "F32", std::move(shape), std::as_bytes(std::span(values))};
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), 4 * a.size()) == 0;
}

/// Opens a file of these bytes; the sentence behind "as a safetensors file: ", or "" where it is
/// fine.
std::string verdict(const std::string& bytes) {
  const Folder folder;
  const fs::path path = folder.path / "x";
  store(path, bytes);
  const auto file = SafetensorsFile::open(path);
  if (file) {
    return "";
  }
  CHECK(file.error().kind == ErrorKind::data);
  const std::string start = path.string() + " is not usable as a safetensors file: ";
  REQUIRE(file.error().message.starts_with(start));
  return file.error().message.substr(start.size());
}

}  // namespace

// -- what is well-formed --------------------------------------------------------------------------

// save_file({"b": torch.arange(3, dtype=torch.bfloat16), "a": torch.eye(2)}, ..., {"format": "pt"})
// sorts by width, then name, and pads the header with blanks to a multiple of 8 bytes.
TEST_CASE("a file as the format's own library writes it is read", "[runtime][checkpoint]") {
  const std::string header =
      R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},)"
      R"("b":{"dtype":"BF16","shape":[3],"data_offsets":[16,22]}})";
  REQUIRE(header.size() % 8 == 0);
  const Folder folder;
  store(folder.path / "x",
        file_of(header,
                raw(std::vector<float>{1, 0, 0, 1}) +
                    raw(std::vector<std::uint16_t>{0, 0x3f80, 0x4000})));
  const auto file = SafetensorsFile::open(folder.path / "x");
  REQUIRE(file);
  CHECK(file->metadata() == std::map<std::string, std::string>{{"format", "pt"}});
  REQUIRE(file->entries().size() == 2);
  CHECK(file->entries()[0].name == "a");
  CHECK(file->entries()[0].shape == std::vector<std::int64_t>{2, 2});
  CHECK(file->entries()[1].dtype == "BF16");
  CHECK(file->entries()[1].elements() == 3);
  REQUIRE(file->find("b"));
  CHECK(floats_of(*file->find("a")) == std::vector<float>{1, 0, 0, 1});
  CHECK(floats_of(*file->find("b")) == std::vector<float>{0, 1, 2});
  CHECK_FALSE(file->find("c"));
}

TEST_CASE("what is written is byte for byte what the format's own library would read",
          "[runtime][checkpoint]") {
  const Folder folder;
  const std::vector<float> eye{1, 0, 0, 1};
  const std::vector<float> one{0.1f};
  REQUIRE(write_safetensors(
      folder.path / "x", {entry("w", {2, 2}, eye), entry("s", {}, one)}, {{"format", "pt"}}));
  std::string header =
      R"({"__metadata__":{"format":"pt"},"w":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},)"
      R"("s":{"dtype":"F32","shape":[],"data_offsets":[16,20]}})";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  CHECK(contents(folder.path / "x") == file_of(header, raw(eye) + raw(one)));
  CHECK_FALSE(fs::exists(folder.path / "x.partial"));
}

TEST_CASE("a round trip keeps every bit, name and shape", "[runtime][checkpoint]") {
  const Folder folder;
  std::vector<float> values;
  const RandomStream random(7, Purpose::test);
  for (std::uint64_t i = 0; i < 7 * 31; ++i) {  // any bits, NaNs among them
    values.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(random.bits(i))));
  }
  const std::vector<float> none;
  const std::vector<float> large(100'003, 0.25f);  // more than a buffer of the writer
  const std::string odd = "\"quoted\"\\ \n\t\x01 \xc3\xa9 \xf0\x9f\x8e\xad";
  REQUIRE(write_safetensors(
      folder.path / "x",
      {entry("z", {7, 31}, values), entry("empty", {3, 0}, none), entry(odd, {100'003}, large)},
      {{"k", odd}, {"", ""}}));
  const auto file = SafetensorsFile::open(folder.path / "x");
  REQUIRE(file);
  REQUIRE(file->entries().size() == 3);
  CHECK(same_bits(floats_of(*file->find("z")), values));
  CHECK(file->find("z")->shape == std::vector<std::int64_t>{7, 31});
  CHECK(file->find("empty")->elements() == 0);
  CHECK(floats_of(*file->find("empty")).empty());
  CHECK(same_bits(floats_of(*file->find(odd)), large));
  CHECK(file->metadata() == std::map<std::string, std::string>{{"", ""}, {"k", odd}});
  // Entries are valid as long as any copy of the file is.
  SafetensorsEntry kept;
  SafetensorsFile copy = *file;
  kept = *copy.find("z");
  CHECK(same_bits(floats_of(kept), values));
}

TEST_CASE("white space, escapes and any order of tensors are JSON's", "[runtime][checkpoint]") {
  const Folder folder;
  store(folder.path / "x",
        file_of("{ \"\\u0062\\ud83c\\udfad\" :\n{\"shape\":[ 1 ],\t\"data_offsets\":[4, 8] , "
                "\"dtype\":\"F32\"}, \"a\":{\"dtype\":\"F32\",\"shape\":[1,1],"
                "\"data_offsets\":[0,4]}}\r\n",
                raw(std::vector<float>{3, 4})));
  const auto file = SafetensorsFile::open(folder.path / "x");
  REQUIRE(file);
  CHECK(floats_of(*file->find("b\xf0\x9f\x8e\xad")) == std::vector<float>{4});
  CHECK(floats_of(*file->find("a")) == std::vector<float>{3});
  CHECK(verdict(file_of("{}", "")).empty());
}

// A float16 is sign * fraction * 2^exponent in double arithmetic, all 65536 of them.
TEST_CASE("every float16 and bfloat16 becomes the float of the same value",
          "[runtime][checkpoint]") {
  std::vector<std::uint16_t> bits(1 << 16);
  for (std::size_t i = 0; i < bits.size(); ++i) {
    bits[i] = static_cast<std::uint16_t>(i);
  }
  const SafetensorsEntry f16{"h", "F16", {1 << 16}, std::as_bytes(std::span(bits))};
  const SafetensorsEntry bf16{"b", "BF16", {1 << 16}, std::as_bytes(std::span(bits))};
  const std::vector<float> half = floats_of(f16);
  const std::vector<float> brain = floats_of(bf16);
  for (std::size_t i = 0; i < bits.size(); ++i) {
    const auto value = [&](int exponent_bits, int fraction_bits) {
      const int exponent = static_cast<int>(i >> fraction_bits) & ((1 << exponent_bits) - 1);
      const int fraction = static_cast<int>(i) & ((1 << fraction_bits) - 1);
      const int bias = (1 << (exponent_bits - 1)) - 1;
      const double sign = i >> 15 ? -1 : 1;
      if (exponent == (1 << exponent_bits) - 1) {
        return fraction ? std::numeric_limits<double>::quiet_NaN()
                        : sign * std::numeric_limits<double>::infinity();
      }
      return exponent == 0 ? sign * std::ldexp(fraction, 1 - bias - fraction_bits)
                           : sign * std::ldexp(fraction + (1 << fraction_bits),
                                               exponent - bias - fraction_bits);
    };
    const auto agrees = [](float met, double expected) {
      return std::isnan(expected) ? std::isnan(met)
                                  : met == expected && std::signbit(met) == std::signbit(expected);
    };
    if (!agrees(half[i], value(5, 10)) || !agrees(brain[i], value(8, 7))) {
      FAIL("bits " << i << ": " << half[i] << ", " << brain[i]);
    }
  }
}

TEST_CASE("a dtype that is no float32 is refused only when floats are asked for",
          "[runtime][checkpoint]") {
  const Folder folder;
  store(folder.path / "x",
        file_of(R"({"n":{"dtype":"I64","shape":[1],"data_offsets":[0,8]}})", std::string(8, 1)));
  const auto file = SafetensorsFile::open(folder.path / "x");
  REQUIRE(file);
  CHECK_FALSE(readable_as_floats("I64"));
  CHECK_THROWS_AS(floats_of(file->entries()[0]), ContractError);
}

// -- what is malformed ----------------------------------------------------------------------------

TEST_CASE("malformed files are refused with one sentence", "[runtime][checkpoint]") {
  const std::string four = raw(std::vector<float>{1});
  const auto with = [&](const std::string& members, const std::string& data) {
    return verdict(file_of("{\"t\":{" + members + "}}", data));
  };
  CHECK(verdict("") == "it is only 0 bytes long");
  CHECK(verdict("1234567") == "it is only 7 bytes long");
  CHECK(verdict(std::string(8, '\xff')) ==
        "its header would be 18446744073709551615 bytes long, where 0 are possible");
  CHECK(verdict(file_of("{}", "").substr(0, 9)) ==
        "its header would be 2 bytes long, where 1 are possible");
  CHECK(verdict(file_of("", "")) == "it does not begin with {");
  CHECK(verdict(file_of(" {}", "")) == "it does not begin with {");
  CHECK_THAT(verdict(file_of("{", "")), test::says("its header is not JSON: "));
  CHECK_THAT(verdict(file_of("{}x", "")), test::says("its header is not JSON: "));
  CHECK(verdict(file_of("{\"a\":{}}", "")) == "\"a\" has no dtype");
  CHECK(verdict(file_of("{\"a\":1}", "")) == "\"a\" has no dtype");
  CHECK(verdict(file_of("{\"__metadata__\":{\"k\":1}}", "")) == "the metadata's \"k\" is no text");
  CHECK_THAT(verdict(file_of("{\"__metadata__\":{\"k\":\"\",\"k\":\"\"}}", "")),
             test::says("Repeated map key: 'k'"));
  CHECK(verdict(file_of("{}", four)) ==
        "its tensors do not fill its 4 bytes of data without holes and overlaps");

  const std::string offsets = R"(,"data_offsets":[0,4])";
  CHECK(with(R"("dtype":"F32","shape":[1])" + offsets, four).empty());
  CHECK(with(R"("dtype":"F31","shape":[1])" + offsets, four) ==
        "its tensor \"t\" has the unknown dtype \"F31\"");
  CHECK(with(R"("dtype":"F32","shape":[2])" + offsets, four) ==
        "its tensor \"t\" has 4 bytes where dtype and shape ask for 8");
  CHECK(with(R"("dtype":"F32","shape":[4503599627370496,4503599627370496])" + offsets, four) ==
        "its tensor \"t\" has more elements than can be counted");
  CHECK(with(R"("dtype":"F32","shape":[1],"data_offsets":[0,8])", four) ==
        "its tensor \"t\" ends at byte 8 of 4");
  CHECK(with(R"("dtype":"F32","shape":[1],"data_offsets":[4,0])", four) ==
        "its tensor \"t\" has data_offsets that are not a first and a last one");
  CHECK(with(R"("dtype":"F32","shape":[1],"data_offsets":[4])", four) ==
        "its tensor \"t\" has data_offsets that are not a first and a last one");
  CHECK(with(R"("dtype":"F32","shape":[1],"data_offsets":[4,8])", four + four) ==
        "its tensors do not fill its 8 bytes of data without holes and overlaps");
  CHECK_THAT(with(R"("dtype":"F32","dtype":"F32","shape":[1])" + offsets, four),
             test::says("Repeated map key: 'dtype'"));
  CHECK(with(R"("dtype":"F32","shape":[1],"strides":[1])" + offsets, four) ==
        "\"t\" has more than dtype, shape and data_offsets");
  for (const char* number : {"-1", "1.5", "01", "9007199254740992", "1e400", "", "\"1\"", "[1]"}) {
    INFO(number);
    CHECK_FALSE(with(concat(R"("dtype":"F32","shape":[)", number, ",1]", offsets), four).empty());
  }
  std::string ones = "1";
  for (int i = 0; i < 64; ++i) {
    ones += ",1";
  }
  CHECK_THAT(with(R"("dtype":"F32","shape":[)" + ones + ']' + offsets, four),
             test::says("\"t\": its shape is no list of at most 64 numbers"));

  const auto named = [&](const std::string& name) {
    return verdict(file_of(
        "{\"" + name + "\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", four));
  };
  CHECK(named("\xf4\x8f\xbf\xbf\\u0000").empty());
  for (const char* name : {"\\u12",
                           "\\u12g4",
                           "\\ud800",
                           "\\udc00",
                           "\\ud800\\u0041",
                           "\x80",
                           "\xc0\x80",
                           "\xe0\x80\x80",
                           "\xed\xa0\x80",
                           "\xf4\x90\x80\x80",
                           "\xe2\x82"}) {
    CHECK_FALSE(named(name).empty());
  }
}

TEST_CASE("names that come twice and bytes that are used twice are refused",
          "[runtime][checkpoint]") {
  const auto two = [](const std::string& first, const std::string& second, const char* begin) {
    return verdict(file_of(
        "{\"" + first + "\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},\"" + second +
            "\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[" + begin + ",8]}}",
        raw(std::vector<float>{1, 2})));
  };
  CHECK(two("a", "b", "4").empty());
  CHECK_THAT(two("a", "\\u0061", "4"), test::says("Repeated map key: 'a'"));
  CHECK(two("a", "b", "2") == "its tensor \"b\" has 6 bytes where dtype and shape ask for 4");
  const std::string four = raw(std::vector<float>{1});
  CHECK(verdict(file_of("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},\"b\":{"
                        "\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}",
                        four)) ==
        "its tensors do not fill its 4 bytes of data without holes and overlaps");
}

TEST_CASE("a file that somebody shortens is read all the same", "[runtime][checkpoint]") {
  const Folder folder;
  const std::vector<float> values(1 << 16, 0.5f);
  REQUIRE(write_safetensors(folder.path / "x", {entry("w", {1 << 16}, values)}, {}));
  const auto file = SafetensorsFile::open(folder.path / "x");
  REQUIRE(file);
  fs::resize_file(folder.path / "x", 100);  // a mapping would end the program here
  CHECK(same_bits(floats_of(*file->find("w")), values));
}

TEST_CASE("what is no file is refused with the reason", "[runtime][checkpoint]") {
  const auto said = [](const char* path) {
    return SafetensorsFile::open(path).error().message;
  };
  CHECK(said("/nonexistent/x") ==
        "/nonexistent/x is not usable as a safetensors file: it cannot be opened: No such file or "
        "directory");
  CHECK(said("/tmp") == "/tmp is not usable as a safetensors file: it is not a file");
  CHECK(said("/dev/null") == "/dev/null is not usable as a safetensors file: it is not a file");
}

// Thousands of damaged headers: none crashes the reader, none makes it allocate more than a few
// times what the file holds, and what it does accept can be read to the last byte.
TEST_CASE("damaged files are either valid or refused", "[runtime][checkpoint]") {
  const Folder folder;
  const fs::path path = folder.path / "x";
  std::vector<float> values(20);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(i);
  }
  const std::span<const float> all(values);
  REQUIRE(write_safetensors(path,
                            {{"conv.weight", "F32", {2, 1, 3, 2}, std::as_bytes(all.first(12))},
                             {"n", "I64", {1}, std::as_bytes(all.subspan(12, 2))},
                             {"conv.bias", "F16", {2, 3}, std::as_bytes(all.subspan(14, 3))},
                             {"scalar", "U8", {}, std::as_bytes(all.subspan(17, 1)).first(1)}},
                            {{"format", "pt"}}));
  const std::string whole = contents(path);
  const std::string words = "{}[],:\"\\0123456789 -.eu\xff";
  const int rounds = 20000;
  int accepted = 0;
  for (int round = 0; round < rounds; ++round) {
    CAPTURE(round);
    const RandomStream random(1, Purpose::test, static_cast<std::uint64_t>(round));
    std::string bytes = whole;
    const std::uint64_t changes = 1 + random.below(0, 3);
    for (std::uint64_t change = 0; change < changes && !bytes.empty(); ++change) {
      const std::uint64_t counter = 10 + 6 * change;
      const std::size_t at = random.below(counter, bytes.size());
      const char any = static_cast<char>(random.below(counter + 1, 256));
      const char word = words[random.below(counter + 2, words.size())];
      const std::size_t other = random.below(counter + 4, bytes.size());
      const std::size_t count = random.below(counter + 5, 40);
      switch (random.below(counter + 3, 7)) {
        case 0:
          bytes.resize(at);
          break;
        case 1:
          bytes[at] = any;
          break;
        case 2:
          bytes.insert(at, 1, word);
          break;
        case 3:
          bytes.erase(at, count);
          break;
        case 4:
          bytes.insert(at, bytes.substr(other, count));
          break;
        default:
          bytes[at] = word;
      }
    }
    // Half of the time the length is made to agree again, so that the JSON is looked at.
    if (random.below(1, 2) == 0 && bytes.size() >= 8) {
      const std::size_t end = bytes.rfind('}');
      const std::uint64_t length = end == bytes.npos || end < 8 ? 0 : end - 7;
      std::memcpy(bytes.data(), &length, sizeof length);
    }
    store(path, bytes);

    largest_allocation = 0;
    const auto file = SafetensorsFile::open(path);
    const std::size_t largest = largest_allocation;
    REQUIRE(largest <= std::max<std::size_t>(2 * bytes.size(), 1024));
    if (file) {
      ++accepted;
      std::size_t total = 0;
      for (const SafetensorsEntry& tensor : file->entries()) {
        total += tensor.bytes.size();
        if (readable_as_floats(tensor.dtype)) {
          REQUIRE(static_cast<std::int64_t>(floats_of(tensor).size()) == tensor.elements());
        }
      }
      REQUIRE(total < bytes.size());
    } else {
      REQUIRE(file.error().kind == ErrorKind::data);
      REQUIRE(file.error().message.starts_with(path.string()));
    }
  }
  // Damage to an element or to a letter of a name is not seen; most other damage is.
  CHECK(accepted > rounds / 100);
  CHECK(accepted < rounds / 2);
}

// -- what cannot be written -----------------------------------------------------------------------

TEST_CASE("entries that contradict themselves are a bug of the caller", "[runtime][checkpoint]") {
  const Folder folder;
  const std::vector<float> two{1, 2};
  const auto attempt = [&](const std::vector<SafetensorsEntry>& entries) {
    (void)write_safetensors(folder.path / "x", entries, {});
  };
  CHECK_THROWS_AS(attempt({entry("a", {3}, two)}), ContractError);
  CHECK_THROWS_AS(attempt({entry("a", {2}, two), entry("a", {2}, two)}), ContractError);
  CHECK_THROWS_AS(attempt({entry("__metadata__", {2}, two)}), ContractError);
  CHECK(fs::is_empty(folder.path));
}

TEST_CASE("a disk that is full leaves what was there, and nothing half-written",
          "[runtime][checkpoint]") {
  const Folder folder;
  const fs::path path = folder.path / "x";
  const std::vector<float> small{1};
  const std::vector<float> large(100'000, 1.0f);
  REQUIRE(write_safetensors(path, {entry("a", {1}, small)}, {}));
  const std::string before = contents(path);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);  // then writing fails instead
  rlimit old{};
  getrlimit(RLIMIT_FSIZE, &old);
  const rlimit tight{100'000, old.rlim_max};
  setrlimit(RLIMIT_FSIZE, &tight);
  const auto written = write_safetensors(path, {entry("a", {100'000}, large)}, {});
  setrlimit(RLIMIT_FSIZE, &old);
  std::signal(SIGXFSZ, handler);
  REQUIRE_FALSE(written);
  CHECK(written.error().kind == ErrorKind::lost);
  CHECK(written.error().message == path.string() + ".partial could not be written: File too large");
  CHECK(contents(path) == before);
  CHECK_FALSE(fs::exists(path.string() + ".partial"));
}

TEST_CASE("a device is never replaced by a file", "[runtime][checkpoint]") {
  const auto written = write_safetensors("/dev/null", {}, {});
  REQUIRE_FALSE(written);
  CHECK(written.error().message == "/dev/null could not be written: it is no file");
}
