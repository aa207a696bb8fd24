// Downloads from a server on this machine that misbehaves in every way that we could think of.
#include "runtime/data/download.hpp"

#include "runtime/record/sha256.hpp"
#include "tests/runtime/data/files.hpp"
#include "tests/support/bad_server.hpp"
#include "tests/support/catch.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace download_test {

using namespace troupe;
using namespace troupe::test;
namespace fs = std::filesystem;

namespace {

std::string sha256_of(const std::string& text) {
  Sha256 sha;
  sha.update(text.data(), text.size());
  return sha.finish();
}

std::string contents(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

std::string noise(std::size_t count) {
  std::string text;
  for (std::size_t i = 0; i < count; ++i) {
    text += static_cast<char>(i * i % 251 + i / 251);
  }
  return text;
}

/// The file `data` of 5,003 bytes on a server, and where it is to go.
struct Scene {
  explicit Scene(const std::string& behaviour) {
    folder.write("server/data", body);
    fs::create_directory(folder / "here");
    server.emplace(folder / "server", folder / "log");
    wanted.url = server->url(behaviour) + "/data";
    wanted.path = folder / "here/data";
    wanted.sha256 = sha256_of(body);
    wanted.bytes_max = 1 << 20;
    wanted.stall_seconds = 1;
    wanted.attempts = 3;
    wanted.pause_seconds = 0.001;
    wanted.note = [this](const std::string& note) {
      notes.push_back(note);
    };
  }

  std::string part() const { return wanted.path.string() + ".part"; }

  /// The ranges asked for, one a request; "" for a whole.
  std::vector<std::string> ranges() const {
    std::vector<std::string> all;
    for (const std::string& line : server->requests()) {
      const std::size_t blank = line.find(' ');
      all.push_back(blank == line.npos ? "" : line.substr(blank + 1));
    }
    return all;
  }

  void check_arrived() const {
    const auto done = download(wanted);
    CHECK((done ? "" : done.error().message) == "");
    CHECK(contents(wanted.path) == body);
    CHECK_FALSE(fs::exists(part()));
  }

  void check_fails(const std::string& why, ErrorKind kind = ErrorKind::data) const {
    const auto done = download(wanted);
    REQUIRE_FALSE(done);
    CHECK(done.error().kind == kind);
    CHECK(done.error().message == concat(wanted.url, " could not be fetched: ", why));
    CHECK_FALSE(fs::exists(wanted.path));
  }

  std::string kept(std::size_t bytes) const {
    return concat("; the ",
                  bytes,
                  " bytes that came are kept in ",
                  part(),
                  ", and a next try goes on from there");
  }

  std::string body = noise(5003);
  TemporaryFolder folder;
  std::optional<BadServer> server;
  Download wanted;
  std::vector<std::string> notes;
};

using Lines = std::vector<std::string>;

}  // namespace

TEST_CASE("a file is fetched whole, checked and named", "[runtime][data]") {
  Scene scene(GENERATE("plain", "redirect"));
  std::int64_t bytes = 0;
  std::int64_t total = 0;
  scene.wanted.progress = [&](std::int64_t now, std::int64_t all) {
    CHECK(now >= bytes);
    bytes = now;
    total = all;
  };
  scene.check_arrived();
  CHECK(bytes == 5003);
  CHECK(total == 5003);
  CHECK(scene.notes.empty());
}

TEST_CASE("a broken connection is taken up where it broke", "[runtime][data]") {
  SECTION("once") {
    Scene scene("truncate-once");
    scene.check_arrived();
    CHECK(scene.ranges() == Lines{"", "bytes=2501-"});
    CHECK(scene.notes == Lines{"the connection ended too early; trying again"});
  }
  SECTION("more often than there are attempts, but each time further on") {
    Scene scene("truncate");
    scene.check_arrived();
    CHECK(scene.ranges() ==
          Lines{"", "bytes=1000-", "bytes=2000-", "bytes=3000-", "bytes=4000-", "bytes=5000-"});
  }
  SECTION("by an earlier call") {
    Scene scene("plain");
    scene.folder.write("here/data.part", scene.body.substr(0, 4000));
    std::int64_t total = 0;
    scene.wanted.progress = [&](std::int64_t, std::int64_t all) {
      total = all;
    };
    scene.check_arrived();
    CHECK(total == 5003);
    CHECK(scene.ranges() == Lines{"bytes=4000-"});
  }
  SECTION("when all had come") {
    Scene scene("plain");
    scene.folder.write("here/data.part", scene.body);
    scene.check_arrived();
    CHECK(scene.ranges() == Lines{"bytes=5003-"});
  }
  SECTION("by a server that sends all again") {
    Scene scene("ignore-range");
    scene.check_arrived();
    CHECK(scene.ranges() == Lines{"", "bytes=2501-"});
  }
  SECTION("and never comes further") {
    Scene scene("truncate-always");
    scene.check_fails("the connection ended too early" + scene.kept(2501));
    CHECK(contents(scene.part()) == scene.body.substr(0, 2501));
    CHECK(scene.ranges().size() == 4);
  }
}

TEST_CASE("what comes from somewhere else in the file is noticed", "[runtime][data]") {
  SECTION("a wrong range") {
    Scene scene("wrong-range");
    scene.check_arrived();
    CHECK(scene.ranges() == Lines{"", "bytes=2501-", ""});
    CHECK(scene.notes.back() == "what came over several connections is not the file; trying again");
  }
  SECTION("a rest of another file") {
    Scene scene("plain");
    scene.folder.write("here/data.part", std::string(3000, 'x'));
    scene.check_arrived();
    CHECK(scene.ranges() == Lines{"bytes=3000-", ""});
  }
  SECTION("a rest that is too long") {
    Scene scene("plain");
    scene.folder.write("here/data.part", std::string(6000, 'x'));
    scene.check_arrived();
    CHECK(scene.ranges() == Lines{"bytes=6000-", ""});
  }
}

TEST_CASE("a server that stalls is given up, and asked again", "[runtime][data]") {
  SECTION("once") {
    Scene scene("stall-once");
    scene.check_arrived();
    CHECK(scene.ranges() == Lines{"", "bytes=2501-"});
    CHECK(scene.notes == Lines{"less than 1024 bytes a second came for 1 s; trying again"});
  }
  SECTION("for good") {
    Scene scene("stall");
    scene.wanted.attempts = 2;
    scene.check_fails("less than 1024 bytes a second came for 1 s");
    CHECK(scene.ranges().size() == 2);
    CHECK_FALSE(fs::exists(scene.part()));
  }
}

TEST_CASE("a server that trickles is given up, and asked for the rest", "[runtime][data]") {
  Scene scene("trickle-once");  // all of the file in 25 s, never a pause of one
  scene.check_arrived();
  CHECK(scene.notes == Lines{"less than 1024 bytes a second came for 1 s; trying again"});
  const Lines ranges = scene.ranges();
  REQUIRE(ranges.size() == 2);
  CHECK(ranges[0].empty());
  CHECK(ranges[1].starts_with("bytes="));  // what had come is kept
  CHECK(ranges[1] != "bytes=0-");
}

TEST_CASE("a length that is not true does no harm", "[runtime][data]") {
  SECTION("too long") {
    Scene scene("too-long");
    scene.check_arrived();
  }
  SECTION("too short") {
    Scene scene("too-short");
    scene.check_fails(concat("its SHA-256 is ",
                             sha256_of(scene.body.substr(0, 4993)),
                             ", not ",
                             scene.wanted.sha256,
                             " as it should be"));
  }
  SECTION("none, and no end") {
    Scene scene("endless");
    scene.check_fails("it goes on after 1048576 bytes");
    CHECK_FALSE(fs::exists(scene.part()));
  }
}

TEST_CASE("wrong bytes never get the file's name, and are not kept", "[runtime][data]") {
  Scene scene("wrong");
  std::string wrong = scene.body;
  wrong[0] ^= 1;
  scene.check_fails(concat(
      "its SHA-256 is ", sha256_of(wrong), ", not ", scene.wanted.sha256, " as it should be"));
  CHECK_FALSE(fs::exists(scene.part()));
  CHECK(scene.ranges().size() == 1);
}

TEST_CASE("what the server says is told, and asked again where that may help", "[runtime][data]") {
  SECTION("not there") {
    Scene scene("plain");
    scene.wanted.url += "x";
    scene.check_fails("the server answered 404");
    CHECK(scene.ranges().size() == 1);
    CHECK_FALSE(fs::exists(scene.part()));
  }
  SECTION("not there any more") {
    Scene scene("plain");
    scene.folder.write("here/data.part", scene.body.substr(0, 10));
    scene.wanted.url += "x";
    scene.check_fails("the server answered 404" + scene.kept(10));
    CHECK(contents(scene.part()) == scene.body.substr(0, 10));
  }
  SECTION("busy") {
    Scene scene("busy");
    scene.check_arrived();
    CHECK(scene.ranges().size() == 3);
    CHECK(scene.notes.front() == "the server answered 503; trying again");
  }
  SECTION("always busy") {
    Scene scene("always-busy");
    scene.check_fails("the server answered 503");
    CHECK(scene.ranges().size() == 3);
  }
  SECTION("go round in circles") {
    Scene scene("loop");
    scene.check_fails("it is redirected more than 5 times");
    CHECK(scene.ranges().size() == 6);
  }
  SECTION("read your own files") {
    Scene scene("elsewhere");
    scene.check_fails("it is, or leads to, neither http nor https");
  }
}

TEST_CASE("URLs that cannot be fetched are refused", "[runtime][data]") {
  Scene scene("plain");
  for (const std::string url : {"file:///etc/passwd", "ftp://127.0.0.1/data", "http://"}) {
    CAPTURE(url);
    scene.wanted.url = url;
    const auto done = download(scene.wanted);
    REQUIRE_FALSE(done);
    CHECK(done.error().kind == ErrorKind::data);
    CHECK(done.error().message.starts_with(url + " could not be fetched: "));
  }
  CHECK(scene.ranges().empty());
  CHECK(scene.notes.empty());
}

TEST_CASE("a file of which another process has the pen is left to it", "[runtime][data]") {
  Scene scene("plain");
  scene.folder.write("here/data.part", "theirs");
  const int other = ::open(scene.part().c_str(), O_RDWR);
  REQUIRE(::flock(other, LOCK_EX | LOCK_NB) == 0);
  const auto done = download(scene.wanted);
  REQUIRE_FALSE(done);
  CHECK(done.error().kind == ErrorKind::data);
  CHECK(done.error().message == scene.part() + " is being written by another process; wait for it");
  CHECK(contents(scene.part()) == "theirs");
  ::close(other);
  scene.check_arrived();
}

TEST_CASE("a full disk is an error of its own, and what fitted is kept", "[runtime][data]") {
  Scene scene("plain");
  // The limit on a file's size fails a write as a full disk does.
  const auto before = std::signal(SIGXFSZ, SIG_IGN);
  rlimit limit{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &limit) == 0);
  const rlimit small{2000, limit.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &small) == 0);
  const auto done = download(scene.wanted);
  ::setrlimit(RLIMIT_FSIZE, &limit);
  std::signal(SIGXFSZ, before);
  REQUIRE_FALSE(done);
  CHECK(done.error().kind == ErrorKind::lost);
  CHECK(done.error().message == scene.part() + " could not be written: File too large");
  CHECK(fs::file_size(scene.part()) == 2000);
  scene.check_arrived();
  CHECK(scene.ranges() == Lines{"", "bytes=2000-"});
}

TEST_CASE("a folder that is not there is told", "[runtime][data]") {
  Scene scene("plain");
  scene.wanted.path = scene.folder / "nowhere/data";
  const auto done = download(scene.wanted);
  REQUIRE_FALSE(done);
  CHECK(done.error().kind == ErrorKind::lost);
  CHECK(done.error().message == scene.part() + " could not be written: No such file or directory");
}

}  // namespace download_test
