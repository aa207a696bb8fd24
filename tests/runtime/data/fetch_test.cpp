// Whole data sets from a server on this machine; download_test has what a server may do wrong.
#include "runtime/data/fetch.hpp"

#include "runtime/record/sha256.hpp"
#include "tests/runtime/data/files.hpp"
#include "tests/support/bad_server.hpp"
#include "tests/support/catch.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace fetch_test {

using namespace troupe;
using namespace troupe::test;
namespace fs = std::filesystem;

namespace {

constexpr std::array<std::string_view, 2> kUnpacked{"a.bin", "b.bin"};

/// A set of a plain file and an archive, on a server, with its sums.
struct Scene {
  Scene() {
    folder.write("server/plain.gz", "as it is");
    folder.write("server/x/a.bin", "a");
    folder.write("server/x/b.bin", "bb");
    const std::string tar = "cd " + (folder / "server") + " && tar -czf both.tar.gz x";
    REQUIRE(std::system(tar.c_str()) == 0);
    plain_sum = *file_sha256(folder / "server/plain.gz");
    archive_sum = *file_sha256(folder / "server/both.tar.gz");
    files[0] = {"plain.gz", plain_sum, {}};
    files[1] = {"both.tar.gz", archive_sum, kUnpacked};
    server.emplace(folder / "server", folder / "log");
    url = server->url("plain");
    options.folder = folder / "deep/er/here";
    options.attempts = 2;
    options.pause_seconds = 0.001;
    options.note = [this](std::string_view file, const std::string& note) {
      notes.push_back(concat(file, ": ", note));
    };
  }

  Result<void> run() const { return fetch({"test", "Test", url, files}, options); }

  std::vector<std::string> there() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(options.folder)) {
      names.push_back(entry.path().filename().string());
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  TemporaryFolder folder;
  std::string plain_sum;
  std::string archive_sum;
  std::array<FetchFile, 2> files;
  std::optional<BadServer> server;
  std::string url;
  FetchOptions options;
  std::vector<std::string> notes;
};

using Lines = std::vector<std::string>;

}  // namespace

TEST_CASE("a set is fetched, unpacked, and not fetched again", "[runtime][data]") {
  Scene scene;
  REQUIRE(scene.run());
  CHECK(scene.there() == Lines{"a.bin", "b.bin", "plain.gz"});
  CHECK(scene.notes == Lines{"plain.gz: is there", "both.tar.gz: is there"});
  REQUIRE(scene.run());
  CHECK(scene.server->requests() == Lines{"/plain/plain.gz", "/plain/both.tar.gz"});
  CHECK(scene.notes.back() == "both.tar.gz: is there already");

  fs::remove(scene.options.folder / "b.bin");
  scene.options.url = scene.server->url("truncate") + "//";
  REQUIRE(scene.run());
  CHECK(scene.there() == Lines{"a.bin", "b.bin", "plain.gz"});
  CHECK(scene.server->requests().back() == "/truncate/both.tar.gz");
}

TEST_CASE("a file of another content in the place is left alone", "[runtime][data]") {
  Scene scene;
  scene.folder.write("deep/er/here/plain.gz", "mine");
  const auto done = scene.run();
  REQUIRE_FALSE(done);
  CHECK(done.error().kind == ErrorKind::data);
  CHECK_THAT(done.error().message, says("plain.gz is there already, but its SHA-256 is "));
  CHECK_THAT(done.error().message, says("; remove it to fetch it again"));
  CHECK(scene.server->requests().empty());
}

TEST_CASE("sums that are given take the place of those that are known", "[runtime][data]") {
  Scene scene;
  scene.options.sha256["both.tar.gz"] = scene.plain_sum;
  const auto done = scene.run();
  REQUIRE_FALSE(done);
  CHECK_THAT(done.error().message,
             says("its SHA-256 is " + scene.archive_sum + ", not " + scene.plain_sum));
  CHECK(scene.there() == Lines{"plain.gz"});

  std::swap(scene.files[0].sha256, scene.files[1].sha256);
  scene.options.sha256 = {{"plain.gz", scene.plain_sum}, {"both.tar.gz", scene.archive_sum}};
  CHECK(scene.run());
}

TEST_CASE("a folder that cannot be made is told", "[runtime][data]") {
  Scene scene;
  scene.folder.write("deep", "a file");
  const auto done = scene.run();
  REQUIRE_FALSE(done);
  CHECK(done.error().kind == ErrorKind::lost);
  CHECK(done.error().message ==
        scene.options.folder.string() + " could not be made: Not a directory");
}

TEST_CASE("every known set has whole sums and a place", "[runtime][data]") {
  std::set<std::string_view> names;
  for (const FetchSet& set : fetch_sets()) {
    CHECK(names.insert(set.name).second);
    CHECK(set.url.starts_with("http"));
    CHECK_FALSE(set.url.ends_with('/'));
    for (const FetchFile& file : set.files) {
      CHECK(file.sha256.size() == 64);
      CHECK(file.sha256.find_first_not_of("0123456789abcdef") == file.sha256.npos);
    }
  }
  CHECK(names ==
        std::set<std::string_view>{"cifar10", "cifar100", "fashion_mnist", "mnist", "shakespeare"});
}

}  // namespace fetch_test
