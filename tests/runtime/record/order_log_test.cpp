#include "runtime/record/order_log.hpp"

#include "messages/archive.hpp"
#include "messages/pipeline.hpp"
#include "messages/results.hpp"
#include "tests/support/catch.hpp"

#include <filesystem>
#include <fstream>
#include <sstream>

namespace order_log_test {

using namespace troupe;

namespace {

const std::vector<std::string> kNames{"source", "stage-0"};

std::string digest(int deliveries, int changed = -1, double by = 0) {
  OrderLog log(nullptr, kNames);
  for (int i = 0; i < deliveries; ++i) {
    log.delivered(0.5 * i + (i == changed ? by : 0), 1, Activation{{.batch = i}, {}});
  }
  return log.finish();
}

}  // namespace

TEST_CASE("equal orders have equal digests and every part of a delivery counts", "[record]") {
  CHECK(digest(1000) == digest(1000));
  CHECK(digest(1000) != digest(999));
  CHECK(digest(1000) != digest(1000, 999, 1e-12));  // in the last, partial buffer
  CHECK(digest(1000) != digest(1000, 0, 1e-12));
  const auto one = [](ActorId to, const Message& message) {
    OrderLog log(nullptr, kNames);
    log.delivered(1, to, message);
    return log.finish();
  };
  const std::string base = one(0, Activation{});
  CHECK(base != one(1, Activation{}));
  CHECK(base != one(0, Labels{}));
  CHECK(base != one(0, Activation{{.replica = 1}, {}}));
  CHECK(base != one(0, Activation{{.chunk = 1}, {}}));
  CHECK(base != one(0, Activation{{.batch = 1}, {}}));
  CHECK(base != one(0, Activation{{.micro_batch = 1}, {}}));
  CHECK(one(0, Ran<ForwardPass>{.made = {}}) !=
        one(0, Ran<ForwardPass>{.lane = Lane::mark, .made = {}}));
}

TEST_CASE("the digest goes on from a checkpoint, and a checkpoint that is none is refused",
          "[record]") {
  for (const int before : {0, 100, 127, 128, 300}) {
    OrderLog log(nullptr, kNames);
    OrderLog again(nullptr, kNames);
    for (int i = 0; i < before; ++i) {
      log.delivered(0.5 * i, 1, Activation{{.batch = i}, {}});
    }
    Archive written;
    log.archive(written);
    Archive read(written.take());
    again.archive(read);
    for (int i = before; i < 301; ++i) {
      again.delivered(0.5 * i, 1, Activation{{.batch = i}, {}});
    }
    CHECK(again.finish() == digest(301));
  }
  std::string digest_so_far;
  std::size_t count = 128;
  std::int64_t left = 5;
  Archive hostile;
  hostile(digest_so_far, count, left);
  Archive read(hostile.take());
  OrderLog log(nullptr, kNames);
  CHECK_THROWS_AS(log.archive(read), ArchiveError);
}

TEST_CASE("the text has a line a delivery", "[record]") {
  const auto path = std::filesystem::temp_directory_path() / "troupe-order-log-test.log";
  auto file = OutputFile::create(path);
  REQUIRE(file);
  OrderLog log(std::move(*file), kNames);
  const Stamp stamp{.replica = 4, .chunk = 3, .batch = 1000000, .micro_batch = 2};
  log.delivered(0, 0, Start{});
  log.delivered(0.1 + 0.2, 1, sent_by(0, Activation{stamp, {}}));
  const std::string with_text = log.finish();
  REQUIRE(log.close());
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  CHECK(text.str() ==
        "0 source Start 0 0 0 0 -\n"
        "0.30000000000000004 stage-0 Activation 4 3 1000000 2 source\n");
  std::filesystem::remove(path);

  OrderLog silent(nullptr, kNames);
  silent.delivered(0, 0, Start{});
  silent.delivered(0.1 + 0.2, 1, Activation{stamp, {}});
  CHECK(silent.finish() == with_text);
}

TEST_CASE("the text is bounded, and says where it ends; the digest is of all", "[record]") {
  const auto path = std::filesystem::temp_directory_path() / "troupe-order-log-bound-test.log";
  auto file = OutputFile::create(path);
  REQUIRE(file);
  OrderLog log(std::move(*file), kNames, 40);
  OrderLog silent(nullptr, kNames);
  for (int i = 0; i < 100; ++i) {
    log.delivered(i, 0, Start{});
    silent.delivered(i, 0, Start{});
  }
  CHECK(log.finish() == silent.finish());
  REQUIRE(log.close());
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  CHECK(text.str() ==
        "0 source Start 0 0 0 0 -\n1 source Start 0 0 0 0 -\n"
        "# the text ends here; deliveries after it are in the digest alone\n");
  std::filesystem::remove(path);
}

TEST_CASE("one digest of several depends on their order", "[record]") {
  CHECK(combined_sha256({"ab"}) == "ab");
  CHECK(combined_sha256({"ab", "cd"}) != combined_sha256({"cd", "ab"}));
}

}  // namespace order_log_test
