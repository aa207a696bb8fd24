// Checkpoints on disk: whole or told from whole ones; the newest whole one is found.
#include "runtime/checkpoint/store.hpp"

#include "kernels/stream.hpp"
#include "tests/support/catch.hpp"

#include <fstream>
#include <string>

namespace store_test {

using namespace troupe;

namespace fs = std::filesystem;

namespace {

struct Folder {
  fs::path path = fs::temp_directory_path() / ("troupe-store-" + std::to_string(::getpid()));

  Folder() { fs::remove_all(path); }

  ~Folder() { fs::remove_all(path); }
};

Checkpoint checkpoint_at(std::int64_t step) {
  Stream stream(Device{});
  const std::vector<float> values{1, 2, static_cast<float>(step)};
  return {.version = "1.2",
          .clock = "virtual",
          .step = step,
          .experiment = "seed: 3",
          .folder = "/",
          .metrics_bytes = 70,
          .order_bytes = {5, 6},
          .run = {"state", {from_host(stream, values, {3}), stream.allocate({0}, DType::int32)}}};
}

Result<fs::path> write(const fs::path& folder, std::int64_t step, std::int64_t keep = 10) {
  return write_checkpoint(
      folder, checkpoint_at(step), keep, [](const fs::path&) { return Result<void>{}; });
}

void change_last_byte(const fs::path& file) {
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  stream.seekg(-1, std::ios::end);
  const char byte = static_cast<char>(stream.get() ^ 1);
  stream.seekp(-1, std::ios::end);
  stream.put(byte);
}

}  // namespace

TEST_CASE("a checkpoint is read as it was written", "[store]") {
  const Folder folder;
  const auto path = write(folder.path, 12);
  REQUIRE(path);
  CHECK(*path == folder.path / "step-12");
  const auto again = read_checkpoint(*path);
  REQUIRE(again);
  CHECK(again->version == "1.2");
  CHECK(again->clock == "virtual");
  CHECK(again->step == 12);
  CHECK(again->experiment == "seed: 3");
  CHECK(again->folder == "/");
  CHECK(again->metrics_bytes == 70);
  CHECK(again->order_bytes == std::vector<std::int64_t>{5, 6});
  CHECK(again->run.bytes == "state");
  REQUIRE(again->run.tensors.size() == 2);
  CHECK(to_host(again->run.tensors[0]) == std::vector<double>{1, 2, 12});
  CHECK(again->run.tensors[1].type() == DType::int32);
}

TEST_CASE("the newest are kept, in the order of their steps", "[store]") {
  const Folder folder;
  for (const std::int64_t step : {9, 10, 100}) {
    REQUIRE(write(folder.path, step, 2));
  }
  CHECK(checkpoints_in(folder.path) ==
        std::vector<fs::path>{folder.path / "step-100", folder.path / "step-10"});
  CHECK(find_checkpoint(folder.path)->checkpoint.step == 100);
}

TEST_CASE("a second checkpoint of a step takes the place of the first", "[store]") {
  const Folder folder;
  REQUIRE(write(folder.path, 3));
  REQUIRE(write(folder.path, 3));
  CHECK(verify_checkpoint(folder.path / "step-3"));
}

TEST_CASE(
    "a file that has changed, or is missing, is noticed, and the checkpoint before it is found",
    "[store]") {
  for (const std::string file : {"state.pb", "state.safetensors", "SHA256SUMS"}) {
    for (const bool gone : {false, true}) {
      const Folder folder;
      REQUIRE(write(folder.path, 1));
      REQUIRE(write(folder.path, 2));
      const fs::path damaged = folder.path / "step-2" / file;
      if (gone) {
        fs::remove(damaged);
      } else {
        change_last_byte(damaged);
      }
      const auto whole = verify_checkpoint(folder.path / "step-2");
      CHECK_FALSE(whole);
      CHECK(whole.error().kind == ErrorKind::data);
      CHECK(whole.error().message.find("step-2 is not whole") != std::string::npos);
      const auto found = find_checkpoint(folder.path);
      REQUIRE(found);
      CHECK(found->checkpoint.step == 1);
      CHECK(found->passed_over.size() == 1);
    }
  }
}

TEST_CASE("where no checkpoint is whole the reasons are told", "[store]") {
  const Folder folder;
  CHECK(find_checkpoint(folder.path).error().message.find("no such folder") != std::string::npos);
  fs::create_directories(folder.path);
  CHECK(find_checkpoint(folder.path).error().message.find("none in it") != std::string::npos);
  REQUIRE(write(folder.path, 1));
  change_last_byte(folder.path / "step-1" / "state.pb");
  const auto found = find_checkpoint(folder.path);
  CHECK(found.error().kind == ErrorKind::data);
  CHECK(found.error().message.find("state.pb has another SHA-256") != std::string::npos);
}

TEST_CASE("what was left half-written is not taken for a checkpoint", "[store]") {
  const Folder folder;
  fs::create_directories(folder.path / ".step-5.partial");
  fs::create_directories(folder.path / "step-5x");
  CHECK(checkpoints_in(folder.path).empty());
  REQUIRE(write(folder.path, 6));
  CHECK_FALSE(fs::exists(folder.path / ".step-5.partial"));
}

TEST_CASE("a checkpoint that cannot be written leaves the others as they are", "[store]") {
  const Folder folder;
  REQUIRE(write(folder.path, 1));
  const auto failed = write_checkpoint(folder.path, checkpoint_at(2), 1, [](const fs::path&) {
    return Result<void>(Error{ErrorKind::lost, "the disk is full"});
  });
  CHECK(failed.error().message == "the disk is full");
  CHECK(checkpoints_in(folder.path) == std::vector<fs::path>{folder.path / "step-1"});
  CHECK_FALSE(fs::exists(folder.path / ".step-2.partial"));
}

}  // namespace store_test
