#include "runtime/record/order_log.hpp"

#include "messages/messages.hpp"
#include "tests/support/catch.hpp"

#include <filesystem>
#include <fstream>
#include <sstream>

using namespace troupe;

namespace {

const std::vector<std::string> kNames{"source", "stage-0"};

std::string digest(int deliveries, int changed = -1, double by = 0) {
  OrderLog log(nullptr, kNames);
  for (int i = 0; i < deliveries; ++i) {
    log.delivered(0.5 * i + (i == changed ? by : 0), 1, 2, {.batch = i});
  }
  return log.finish();
}

}  // namespace

TEST_CASE("equal orders have equal digests and every part of a delivery counts", "[record]") {
  CHECK(digest(1000) == digest(1000));
  CHECK(digest(1000) != digest(999));
  CHECK(digest(1000) != digest(1000, 999, 1e-12));  // in the last, partial buffer
  CHECK(digest(1000) != digest(1000, 0, 1e-12));
  const auto one = [](ActorId to, std::size_t message, Stamp stamp) {
    OrderLog log(nullptr, kNames);
    log.delivered(1, to, message, stamp);
    return log.finish();
  };
  const std::string base = one(0, 0, {});
  CHECK(base != one(1, 0, {}));
  CHECK(base != one(0, 1, {}));
  CHECK(base != one(0, 0, {.replica = 1}));
  CHECK(base != one(0, 0, {.chunk = 1}));
  CHECK(base != one(0, 0, {.batch = 1}));
  CHECK(base != one(0, 0, {.micro_batch = 1}));
}

TEST_CASE("the text has a line a delivery", "[record]") {
  const auto path = std::filesystem::temp_directory_path() / "troupe-order-log-test.log";
  auto file = OutputFile::create(path);
  REQUIRE(file);
  OrderLog log(std::move(*file), kNames);
  log.delivered(0, 0, Message(Start{}).index(), {});
  log.delivered(
      0.25, 1, Message(Activation{}).index(), {.chunk = 3, .batch = 1000000, .micro_batch = 2});
  const std::string with_text = log.finish();
  REQUIRE(log.close());
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  CHECK(text.str() == "0 source Start 0 0 0\n0.25 stage-0 Activation 3 1000000 2\n");
  std::filesystem::remove(path);

  OrderLog silent(nullptr, kNames);
  silent.delivered(0, 0, Message(Start{}).index(), {});
  silent.delivered(
      0.25, 1, Message(Activation{}).index(), {.chunk = 3, .batch = 1000000, .micro_batch = 2});
  CHECK(silent.finish() == with_text);
}

TEST_CASE("the text is bounded, and says where it ends; the digest is of all", "[record]") {
  const auto path = std::filesystem::temp_directory_path() / "troupe-order-log-bound-test.log";
  auto file = OutputFile::create(path);
  REQUIRE(file);
  OrderLog log(std::move(*file), kNames, 40);
  OrderLog silent(nullptr, kNames);
  for (int i = 0; i < 100; ++i) {
    log.delivered(i, 0, Message(Start{}).index(), {});
    silent.delivered(i, 0, Message(Start{}).index(), {});
  }
  CHECK(log.finish() == silent.finish());
  REQUIRE(log.close());
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  CHECK(text.str() ==
        "0 source Start 0 0 0\n1 source Start 0 0 0\n"
        "# the text ends here; deliveries after it are in the digest alone\n");
  std::filesystem::remove(path);
}

TEST_CASE("one digest of several depends on their order", "[record]") {
  CHECK(combined_sha256({"ab"}) == "ab");
  CHECK(combined_sha256({"ab", "cd"}) != combined_sha256({"cd", "ab"}));
}
