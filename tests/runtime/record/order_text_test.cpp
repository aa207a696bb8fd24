// What an OrderLog has written is read back as it was. What is no such text: tests/apps/replay_test.cpp.
#include "runtime/record/order_text.hpp"

#include "messages/message.hpp"
#include "messages/pipeline.hpp"
#include "runtime/record/order_log.hpp"
#include "tests/support/catch.hpp"

#include <filesystem>
#include <fstream>
#include <limits>
#include <random>

namespace order_text_test {

using namespace troupe;

namespace {

Cast cast() {
  Cast all;
  for (const auto& [name, thread] : {std::pair("source", 0), {"stage-0", 1}, {"shard-0", 1}}) {
    Cast::Member member;
    member.name = name;
    member.thread = thread;
    all.members.push_back(std::move(member));
  }
  all.threads = 2;
  return all;
}

}  // namespace

TEST_CASE("the order is read as it was written", "[record]") {
  const Cast all = cast();
  const auto path = std::filesystem::temp_directory_path() / "troupe-order-text-test.log";
  auto file = OutputFile::create(path);
  REQUIRE(file);
  OrderLog log(std::move(*file), {"source", "stage-0", "shard-0"});
  std::mt19937_64 random(1);
  std::vector<Delivery> written;
  double now = 0;
  for (int i = 0; i < 1000; ++i) {
    now += std::uniform_real_distribution<double>(0, 1e-3)(random);
    const Stamp stamp{.replica = static_cast<std::int32_t>(random() % 7),
                      .chunk = static_cast<std::int32_t>(random() % 5),
                      .batch = static_cast<std::int64_t>(random() >> 1),
                      .micro_batch = static_cast<std::int32_t>(random() >> 33)};
    const auto to = static_cast<ActorId>(1 + random() % 2);
    const ActorId from = random() % 4 == 3 ? kOutside : static_cast<ActorId>(random() % 3);
    const Message message =
        i % 2 == 0 ? sent_by(from, Activation{stamp, {}}) : sent_by(from, Labels{stamp, {}});
    log.delivered(now, to, message);
    written.push_back({now, to, from, message_name(message), stamp});
  }
  (void)log.finish();
  REQUIRE(log.close());
  const auto read = read_order(path, all, 1);
  REQUIRE(read);
  REQUIRE(read->size() == written.size());
  bool same = true;
  for (std::size_t i = 0; i < written.size(); ++i) {
    const Delivery& a = (*read)[i];
    const Delivery& b = written[i];
    same = same && a.now == b.now && a.to == b.to && a.from == b.from && a.message == b.message &&
           a.stamp == b.stamp;
  }
  CHECK(same);
  CHECK_FALSE(read_order(path, all, 0));  // of another thread
  std::filesystem::remove(path);
  CHECK_FALSE(read_order(path, all, 1));
}

TEST_CASE("an empty order is one, a longer one than is written is none", "[record]") {
  const Cast all = cast();
  const auto path = std::filesystem::temp_directory_path() / "troupe-order-text-size-test.log";
  { std::ofstream file(path); }
  const auto empty = read_order(path, all, 1);
  REQUIRE(empty);
  CHECK(empty->empty());
  std::filesystem::resize_file(path, static_cast<std::uintmax_t>(OrderLog::kTextBytesMax) + 5000);
  const auto large = read_order(path, all, 1);
  REQUIRE_FALSE(large);
  CHECK_THAT(large.error().message, test::says("is longer than what troupe writes"));
  std::filesystem::remove(path);
}

}  // namespace order_text_test
