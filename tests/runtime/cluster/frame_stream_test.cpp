// Frames leave and come whole, whatever the stream below takes at a time, and take no more memory than is on its way.
#include "runtime/cluster/frame_stream.hpp"

#include "messages/wire.hpp"
#include "tests/support/catch.hpp"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

namespace frame_stream_test {

using namespace troupe;

namespace {

/// What the streams under test are over, and what has become of it.
struct Wire {
  std::size_t takes = 0;  // bytes that may be written
  std::string written{};
  std::span<const char> refused{};  // the last bytes that were not taken, for they come again
  std::set<std::uintptr_t> written_from{};  // pages of memory
  std::string to_read{};
  std::size_t read = 0;
};

class Scripted final : public ControlStream {
 public:
  explicit Scripted(Wire& wire) : wire_(wire) {}

  Passed read(std::span<char> into) override {
    const std::size_t n = std::min(into.size(), wire_.to_read.size() - wire_.read);
    std::copy_n(wire_.to_read.begin() + static_cast<std::ptrdiff_t>(wire_.read), n, into.begin());
    wire_.read += n;
    return {.bytes = n, .await = POLLIN};
  }

  Passed write(std::span<const char> bytes) override {
    constexpr std::uintptr_t kPage = 4096;
    wire_.written_from.insert(reinterpret_cast<std::uintptr_t>(bytes.data()) / kPage);
    const std::size_t n = std::min(bytes.size(), wire_.takes);
    wire_.takes -= n;
    wire_.written.append(bytes.data(), n);
    wire_.refused = n == 0 ? bytes : std::span<const char>{};
    return {.bytes = n, .await = POLLOUT};
  }

  void finish() override {}

  int descriptor() const override { return -1; }

 private:
  Wire& wire_;
};

}  // namespace

TEST_CASE(
    "what a stream has not taken comes again from the same memory, whatever is said meanwhile") {
  Wire wire;
  FrameStream line(std::make_unique<Scripted>(wire));
  line.say(std::string(100, 'a'));
  CHECK(line.write() == 0);
  const std::span<const char> refused = wire.refused;
  REQUIRE_FALSE(refused.empty());
  for (int i = 0; i < 100; ++i) {
    line.say(std::string(1000, 'b'));
    CHECK(line.write() == 0);
    REQUIRE(wire.refused.data() == refused.data());
    REQUIRE(wire.refused.size() == refused.size());
  }
  const std::size_t all = line.unsent();
  CHECK(all == 104 + 100 * 1004);
  wire.takes = all;
  CHECK(line.write() == all);
  CHECK(line.unsent() == 0);
  CHECK(wire.written.substr(4, 100) == std::string(100, 'a'));
  CHECK(wire.written.substr(all - 1000) == std::string(1000, 'b'));
}

TEST_CASE("a backlog that stays as it is takes no more memory, however much passes") {
  Wire wire;
  FrameStream line(std::make_unique<Scripted>(wire));
  const std::string frame(1020, 'x');
  for (int i = 0; i < 100; ++i) {
    line.say(frame);
  }
  const std::size_t backlog = line.unsent();
  for (int i = 0; i < 30'000; ++i) {
    line.say(frame);
    wire.takes = 1024;
    REQUIRE(line.write() == 1024);
    REQUIRE(line.unsent() == backlog);
    wire.written.clear();
  }
  CHECK(wire.written_from.size() < 1000);  // of 7500 that have passed
}

TEST_CASE("nothing more is read of a frame that says that it is too long") {
  Wire wire;
  const std::uint32_t length = 1000;
  wire.to_read.assign(reinterpret_cast<const char*>(&length), sizeof length);
  wire.to_read += std::string(1500, 'x');
  FrameStream line(std::make_unique<Scripted>(wire));
  SECTION("it is") {
    CHECK(line.read_frame(length - 1) == sizeof length);
    CHECK_THROWS_AS(line.next(length - 1), WireError);
  }
  SECTION("it is not, and what is behind it stays where it is") {
    CHECK(line.read_frame(length) == sizeof length + length);
    CHECK(line.next(length).value().size() == length);
    CHECK(wire.read == sizeof length + length);
  }
}

}  // namespace frame_stream_test
