#include "runtime/record/output_file.hpp"

#include "tests/support/catch.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <thread>
#include <vector>

namespace output_file_test {

using namespace troupe;
namespace fs = std::filesystem;

namespace {

/// A folder of this test, empty at the start and gone at the end.
struct Folder {
  fs::path path = fs::temp_directory_path() / "troupe-output-file-test";

  Folder() {
    fs::remove_all(path);
    fs::create_directory(path);
  }

  ~Folder() { fs::remove_all(path); }
};

bool is_locked(const fs::path& path) {
  const int looks = ::open(path.c_str(), O_RDONLY);
  const bool locked = ::flock(looks, LOCK_SH | LOCK_NB) != 0;
  ::close(looks);
  return locked;
}

std::string contents(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

}  // namespace

TEST_CASE("everything that was written is there after close", "[record]") {
  const Folder folder;
  auto file = OutputFile::create(folder.path / "lines");
  REQUIRE(file);
  std::string expected;
  for (int i = 0; i < 50000; ++i) {
    const std::string line = std::to_string(i) + "\n";
    (*file)->write(line);
    expected += line;
  }
  REQUIRE((*file)->close());
  CHECK(contents(folder.path / "lines") == expected);
}

TEST_CASE("a full disk is told by name at the flush, and again at the end", "[record]") {
  auto file = OutputFile::create("/dev/full");
  REQUIRE(file);
  (*file)->write("metrics");
  CHECK_FALSE((*file)->failed());  // buffered so far
  const auto flushed = (*file)->flush();
  REQUIRE_FALSE(flushed);
  CHECK(flushed.error().kind == ErrorKind::lost);
  CHECK(flushed.error().message == "/dev/full could not be written: No space left on device");
  CHECK((*file)->failed());
  (*file)->write("more");
  CHECK((*file)->close().error().message == flushed.error().message);
}

TEST_CASE("a full disk is noticed without a flush when the buffer overflows", "[record]") {
  auto file = OutputFile::create("/dev/full");
  REQUIRE(file);
  (*file)->write(std::string(1 << 17, 'x'));
  CHECK((*file)->failed());
}

TEST_CASE("a file is replaced in one step, or stays as it was", "[record]") {
  const Folder folder;
  const fs::path path = folder.path / "x";
  std::string before;  // what stands there until the new file is complete
  const auto replace = [&](const fs::path& where, const std::string& text) {
    return replace_file(where, [&](OutputFile& file) {
      file.write(text);
      CHECK((fs::exists(path) ? contents(path) : "") == before);
    });
  };
  REQUIRE(replace(path, "old"));
  before = "old";
  const std::string large(200'000, 'n');  // more than the buffer
  REQUIRE(replace(path, large));
  before = large;
  CHECK(contents(path) == large);
  CHECK_FALSE(fs::exists(folder.path / "x.partial"));

  const auto refused = replace(folder.path, "new");
  REQUIRE_FALSE(refused);
  CHECK(refused.error().kind == ErrorKind::lost);
  CHECK(refused.error().message == folder.path.string() + " could not be written: it is no file");
  fs::create_symlink("/dev/full", folder.path / "y.partial");
  const auto full = replace(folder.path / "y", "new");
  REQUIRE_FALSE(full);
  CHECK_THAT(full.error().message, test::says("y.partial could not be written: No space left"));
  CHECK_FALSE(fs::exists(folder.path / "y"));
  CHECK_FALSE(fs::is_symlink(folder.path / "y.partial"));
}

TEST_CASE("a text goes where a link leads, and stays kept from others", "[record]") {
  const Folder folder;
  const fs::path path = folder.path / "x";
  const fs::path link = folder.path / "link";
  constexpr auto kMine = fs::perms::owner_read | fs::perms::owner_write;
  REQUIRE(write_file(path, "old"));
  fs::permissions(path, kMine);
  fs::create_symlink("x", link);
  REQUIRE(write_file(link, "new"));
  CHECK(fs::is_symlink(link));
  CHECK(contents(path) == "new");
  REQUIRE(write_file(path, "newer"));
  CHECK(contents(link) == "newer");
  CHECK(fs::status(path).permissions() == kMine);
  CHECK(write_file("/dev/null", "anything"));
}

TEST_CASE("a file that was removed, moved or replaced under its writer is noticed", "[record]") {
  const Folder folder;
  const fs::path here = folder.path / "run";
  const fs::path away = folder.path / "away";
  const auto moved_away = [&] {
    fs::rename(here, away);
  };
  const auto replaced = [&] {
    fs::rename(here, away);
    fs::create_directory(here);
    std::ofstream(here / "lines") << "another";
  };
  const auto removed = [&] {
    fs::remove(here / "lines");
  };
  for (const std::function<void()>& lose :
       std::vector<std::function<void()>>{removed, moved_away, replaced}) {
    fs::remove_all(here);
    fs::remove_all(away);
    fs::create_directory(here);
    auto file = OutputFile::create(here / "lines");
    REQUIRE(file);
    (*file)->write("one\n");
    CHECK((*file)->flush());
    CHECK((*file)->in_place());
    lose();
    CHECK_FALSE((*file)->in_place());
    (*file)->write("two\n");
    const auto closed = (*file)->close();
    REQUIRE_FALSE(closed);
    CHECK(closed.error().kind == ErrorKind::lost);
    CHECK(closed.error().message ==
          (here / "lines").string() +
              " could not be written: it was removed, moved or replaced by another while it was "
              "being written");
  }
}

TEST_CASE("a file is found whatever the working directory is meanwhile", "[record]") {
  const Folder folder;
  const fs::path before = fs::current_path();
  fs::current_path(folder.path);
  auto file = OutputFile::create("lines");
  REQUIRE(file);
  fs::current_path(before);
  (*file)->write("one\n");
  CHECK((*file)->close());
}

TEST_CASE("who looks whether a file is written keeps its writer out for a moment only",
          "[record]") {
  const Folder folder;
  const fs::path path = folder.path / "lines";
  std::ofstream(path) << "";
  for (const bool anew : {false, true}) {
    const int looks = ::open(path.c_str(), O_RDONLY);
    REQUIRE(::flock(looks, LOCK_SH) == 0);
    std::thread leaves([looks] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      ::close(looks);
    });
    const auto file = anew ? OutputFile::create(path) : OutputFile::resume(path, 0);
    leaves.join();
    REQUIRE(file);
    CHECK(is_locked(path));
  }
}

TEST_CASE("a file that cannot be made is refused with the reason", "[record]") {
  const auto file = OutputFile::create("/nonexistent/metrics.jsonl");
  REQUIRE_FALSE(file);
  CHECK(file.error().kind == ErrorKind::lost);
  CHECK(file.error().message ==
        "/nonexistent/metrics.jsonl could not be created: No such file or directory");
}

TEST_CASE("a run directory is made with the folders above it, and never used twice", "[record]") {
  const Folder folder;
  const fs::path path = folder.path / "a" / "b";
  REQUIRE(make_run_directory(path));
  CHECK(fs::is_directory(path));
  CHECK(make_run_directory(path));  // empty: nothing can be lost
  REQUIRE(write_file(path / "file", "x"));
  const auto again = make_run_directory(path);
  REQUIRE_FALSE(again);
  CHECK(again.error().kind == ErrorKind::usage);
  CHECK_THAT(again.error().message, test::says(path.string() + " exists already"));
  const fs::path before = fs::current_path();
  fs::current_path(folder.path);
  CHECK(make_run_directory("relative"));
  fs::current_path(before);
  CHECK(fs::is_directory(folder.path / "relative"));
  fs::create_symlink("nowhere", folder.path / "dangling");
  CHECK(make_run_directory(folder.path / "dangling").error().kind == ErrorKind::usage);
}

TEST_CASE("a run directory below a file is refused with the reason", "[record]") {
  const Folder folder;
  REQUIRE(write_file(folder.path / "file", "x"));
  const auto made = make_run_directory(folder.path / "file" / "run");
  REQUIRE_FALSE(made);
  CHECK(made.error().kind == ErrorKind::lost);
  CHECK_THAT(made.error().message, test::says("could not be made"));
}

}  // namespace output_file_test
