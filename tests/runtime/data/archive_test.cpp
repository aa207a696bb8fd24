// Archives are written here, block by block; GNU tar writes one of them for comparison.
#include "runtime/data/archive.hpp"

#include "kernels/random.hpp"
#include "tests/runtime/data/files.hpp"
#include "tests/support/catch.hpp"

#include <zlib.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace archive_test {

using namespace troupe;
using namespace troupe::test;
namespace fs = std::filesystem;

namespace {

constexpr std::array<std::string_view, 2> kNames{"one.bin", "two.bin"};

std::string contents(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

/// A header whose checksum is right, and the body, padded.
std::string member(const std::string& name, const std::string& body, char kind = '0') {
  std::string header(512, '\0');
  header.replace(0, name.size(), name);
  std::array<char, 16> digits{};
  std::snprintf(digits.data(), digits.size(), "%011zo", body.size());
  header.replace(124, 11, digits.data());
  header[156] = kind;
  header.replace(257, 5, "ustar");
  header.replace(148, 8, "        ");
  unsigned sum = 0;
  for (const char c : header) {
    sum += static_cast<unsigned char>(c);
  }
  std::snprintf(digits.data(), digits.size(), "%06o", sum);
  header.replace(148, 7, digits.data(), 7);
  return header + body + std::string((512 - body.size() % 512) % 512, '\0');
}

const std::string kEnd(1024, '\0');

std::string usual() {
  return member("set/", "", '5') + member("set/readme", "hello") +
         member("set/one.bin", std::string(70'000, 'a')) + member("set/two.bin", "") + kEnd;
}

std::string gzipped(const std::string& text) {
  z_stream stream{};
  REQUIRE(deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  std::string out(deflateBound(&stream, static_cast<uLong>(text.size())), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  REQUIRE(deflate(&stream, Z_FINISH) == Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

struct Scene {
  Scene() { fs::create_directory(folder / "to"); }

  Result<void> unpack_text(const std::string& text) const {
    folder.write("archive", text);
    return unpack(folder / "archive", kNames, folder / "to");
  }

  void check_refused(const std::string& text, const std::string& why) const {
    const auto done = unpack_text(text);
    REQUIRE_FALSE(done);
    CHECK(done.error().kind == ErrorKind::data);
    CHECK(done.error().message == concat(folder / "archive", " is not usable: ", why));
    CHECK(fs::is_empty(folder / "to"));
  }

  TemporaryFolder folder;
};

}  // namespace

TEST_CASE("the files asked for are taken out, and no others", "[runtime][data]") {
  const Scene scene;
  const std::string text = GENERATE(false, true) ? gzipped(usual()) : usual();
  REQUIRE(scene.unpack_text(text));
  CHECK(contents(scene.folder / "to/one.bin") == std::string(70'000, 'a'));
  CHECK(contents(scene.folder / "to/two.bin").empty());
  const fs::directory_iterator all(scene.folder / "to");
  CHECK(std::distance(fs::begin(all), fs::end(all)) == 2);
}

TEST_CASE("an archive of tar's own is read, with names that need more than a header",
          "[runtime][data]") {
  const Scene scene;
  const std::string deep = "in/" + std::string(90, 'd') + "/" + std::string(90, 'e') + "/";
  scene.folder.write(deep + "one.bin", std::string(1000, '1'));
  scene.folder.write("in/" + std::string(120, 'f'), "a long name");
  scene.folder.write("in/two.bin", std::string(512, '2'));
  const std::string format = GENERATE("gnu", "ustar", "pax");
  const std::string command = "cd " + scene.folder.path() + " && tar --format=" + format +
                              " --exclude='fff*' -czf archive.tar.gz in";
  REQUIRE(std::system(command.c_str()) == 0);
  REQUIRE(unpack(scene.folder / "archive.tar.gz", kNames, scene.folder / "to"));
  CHECK(contents(scene.folder / "to/one.bin") == std::string(1000, '1'));
  CHECK(contents(scene.folder / "to/two.bin") == std::string(512, '2'));
}

TEST_CASE(
    "a file that an archive has only the parts with content of is refused: it could be of any "
    "length",
    "[runtime][data]") {
  const Scene scene;
  scene.folder.write("in/one.bin", "1");
  scene.folder.write("in/two.bin", "2");
  fs::resize_file(scene.folder / "in/one.bin", std::uintmax_t{1} << 34);
  const std::string command = "cd " + scene.folder.path() +
                              " && tar --format=" + GENERATE("gnu", "pax") + " -cSf holes.tar in";
  REQUIRE(std::system(command.c_str()) == 0);
  REQUIRE(fs::file_size(scene.folder / "holes.tar") < 100'000);
  const auto done = unpack(scene.folder / "holes.tar", kNames, scene.folder / "to");
  REQUIRE_FALSE(done);
  CHECK(done.error().message ==
        concat(scene.folder / "holes.tar", " is not usable: its one.bin has holes"));
  CHECK(fs::is_empty(scene.folder / "to"));
}

TEST_CASE("archives that are not as they should be leave nothing behind", "[runtime][data]") {
  const Scene scene;
  const std::string outside = ", which leads outside";
  scene.check_refused(member("/etc/one.bin", "x") + kEnd,
                      "it has a file called /etc/one.bin" + outside);
  scene.check_refused(member("set/../../one.bin", "x") + kEnd,
                      "it has a file called set/../../one.bin" + outside);
  scene.check_refused(member("one.bin", "1") + member("../x", "x") + kEnd,
                      "it has a file called ../x" + outside);
  scene.check_refused(member("one.bin", "1") + kEnd, "it has no two.bin");
  scene.check_refused(member("one.bin", "1") + member("two.bin", "", '2') + kEnd,
                      "it has no two.bin");  // a link
  scene.check_refused(member("one.bin", "1") + member("a/one.bin", "2") + kEnd,
                      "it has one.bin twice");
  scene.check_refused(member("one.bin", "1") + member("two.bin", "2"),
                      "it ends before its end mark");
  scene.check_refused(usual().substr(0, 40'000), "it ends before its end mark");
  scene.check_refused("", "it is no tar archive, or a damaged one");
  scene.check_refused(std::string(600, 'x'), "it is no tar archive, or a damaged one");
  std::string damaged = usual();
  damaged[5] ^= 1;
  scene.check_refused(damaged, "it is no tar archive, or a damaged one");
  std::string cut = gzipped(usual());
  scene.check_refused(cut.substr(0, cut.size() - 6), "its compressed data is cut short");
  cut[cut.size() - 6] ^= 1;
  scene.check_refused(cut, "incorrect data check");
}

TEST_CASE("damaged archives are refused or harmless", "[runtime][data]") {
  const Scene scene;
  const std::string whole = usual();
  int accepted = 0;
  for (std::uint64_t round = 0; round < 1000; ++round) {
    CAPTURE(round);
    const RandomStream random(3, Purpose::test, round);
    std::string text = whole;
    for (std::uint64_t i = 0; i <= random.below(0, 3); ++i) {
      // Mostly in the headers: the first three blocks.
      const std::uint64_t end = random.below(10 * i + 1, 4) == 0 ? text.size() : 1536;
      text[random.below(10 * i + 2, end)] = static_cast<char>(random.below(10 * i + 3, 256));
    }
    const auto done = scene.unpack_text(text);
    accepted += static_cast<bool>(done);
    for (const auto& entry : fs::recursive_directory_iterator(scene.folder.path())) {
      const std::string name = entry.path().filename().string();
      REQUIRE((name == "to" || name == "archive" || name == kNames[0] || name == kNames[1]));
    }
  }
  CHECK(accepted > 50);
  CHECK(accepted < 700);
}

}  // namespace archive_test
