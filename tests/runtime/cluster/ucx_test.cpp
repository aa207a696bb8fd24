// Over UCX channels keep the laws of channel_test: order and bytes, whatever dies and in whatever order both ends close, and an
// address that is none costs nobody but its sender anything.
#include "messages/tensor_bytes.hpp"
#include "runtime/cluster/frame_stream.hpp"
#include "runtime/cluster/local_socket.hpp"
#include "runtime/cluster/node.hpp"
#include "runtime/cluster/ucx_plane.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/inbox.hpp"
#include "tests/support/skip.hpp"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

namespace ucx_test {

using namespace troupe;
using namespace troupe::test;
using namespace std::chrono_literals;

namespace {

/// What UCX may use: each a world of its own.
const std::vector<std::string> kLanes{"tcp,self", "posix,self", "posix,cma,self", "all"};

/// False where this program or host has no UCX, which is told.
bool with_lanes(const std::string& lanes) {
  ::setenv("UCX_TLS", lanes.c_str(), 1);
  ::setenv("UCX_POSIX_ERROR_HANDLING", "y", 1);  // else it takes no shared memory
  const auto there = check_ucx();
  if (!there) {
    skip(there.error().message);
  }
  return static_cast<bool>(there);
}

/// Elements that tell which tensor they are of, and where they are in it.
Tensor numbered(std::uint32_t number, std::int64_t count) {
  Stream stream(Device{});
  std::vector<float> all(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i] = static_cast<float>(number) + static_cast<float>(i % 4096);
  }
  return from_host(stream, all, {count});
}

Parcel parcel_of(std::uint32_t number, std::int64_t count) {
  return {.recipient = 5,
          .speaker = 3,
          .content = {.bytes = std::to_string(number), .tensors = {numbered(number, count)}}};
}

bool is_whole(const Parcel& parcel, std::uint32_t number, std::int64_t count) {
  return parcel.content.bytes == std::to_string(number) &&
         std::ranges::equal(bytes_of(parcel.content.tensors.at(0)),
                            bytes_of(numbered(number, count)));
}

std::int64_t size_of(std::uint32_t number) {
  return number % 50 == 7 ? 3'000'000 : number % 5 == 3 ? 100'000 : 1100 + number;
}

struct Two {
  Two() { b.connect(0, a.listen(1, ::getpid())); }

  void open() {
    a.open(of_a.events());
    b.open(of_b.events());
  }

  Inbox of_a;
  Inbox of_b;
  Channel a{0, "token", 0, 0, Transport::ucx};
  Channel b{1, "token", 0, 0, Transport::ucx};
};

/// A peer that is let in and says what it likes.
class Forger {
 public:
  explicit Forger(const std::string& endpoint) {
    const int socket = connect_here(endpoint);
    REQUIRE(socket >= 0);
    line_.emplace(std::make_unique<DescriptorStream>(socket, socket));
  }

  void send(const std::string& frame) {
    line_->say(frame);
    line_->write();
  }

 private:
  std::optional<FrameStream> line_;
};

}  // namespace

TEST_CASE("tensors over UCX keep order and bytes, large ones and small ones, both ways at once") {
  for (const std::string& lanes : kLanes) {
    INFO(lanes);
    if (!with_lanes(lanes)) {
      return;
    }
    Two two;
    two.open();
    constexpr std::uint32_t kCount = 200;
    for (std::uint32_t i = 0; i < kCount; ++i) {
      two.a.send(1, parcel_of(i, size_of(i)));
      two.b.send(0, parcel_of(i, size_of(i)));
    }
    REQUIRE(two.of_a.await(kCount));
    REQUIRE(two.of_b.await(kCount));
    for (std::uint32_t i = 0; i < kCount; ++i) {
      REQUIRE(is_whole(two.of_a.parcels[i].second, i, size_of(i)));
      REQUIRE(is_whole(two.of_b.parcels[i].second, i, size_of(i)));
    }
    CHECK(two.of_a.broken.empty());
    CHECK(two.of_b.broken.empty());
  }
}

TEST_CASE("whichever end drops or closes first while tensors are on their way, nothing hangs") {
  for (const std::string& lanes : kLanes) {
    INFO(lanes);
    if (!with_lanes(lanes)) {
      return;
    }
    for (std::uint32_t round = 0; round < 12; ++round) {
      auto two = std::make_unique<Two>();
      two->open();
      for (std::uint32_t i = 0; i < 20; ++i) {
        two->a.send(1, parcel_of(i, 400'000));
        two->b.send(0, parcel_of(i, i % 2 == 0 ? 400'000 : 2000));
      }
      REQUIRE(two->of_b.await(round % 4));
      switch (round % 4) {
        case 0:
          two->a.close();
          break;
        case 1:
          two->b.close();
          break;
        case 2:
          two->a.drop(1);
          std::this_thread::sleep_for(10ms);
          break;
        default:
          two->b.drop(0);
          two->a.drop(1);
          break;
      }
      two.reset();
    }
  }
}

TEST_CASE("over UCX another takes the place of a peer that was dropped") {
  if (!with_lanes("all")) {
    return;
  }
  Inbox of_a;
  Inbox of_b;
  Inbox of_c;
  std::atomic<bool> wanted = false;
  Channel a(0, "token", 0, 0, Transport::ucx);
  Channel b(1, "token", 0, 0, Transport::ucx);
  Channel c(1, "token", 2, 0, Transport::ucx);
  a.connect(1, b.listen(0, ::getpid()));
  const std::string place = c.listen(0, ::getpid());
  Channel::Events events = of_a.events();
  events.tick = [&] {
    if (wanted.exchange(false)) {
      a.renew(1, 2, place);
    }
  };
  a.open(std::move(events));
  b.open(of_b.events());
  c.open(of_c.events());
  b.send(0, parcel_of(1, 100'000));
  REQUIRE(of_a.await(1));
  b.send(0, parcel_of(3, 1'000'000));
  a.drop(1);
  wanted = true;
  c.send(0, parcel_of(4, 100'000));
  REQUIRE(of_a.await_parcel([](const Parcel& one) { return is_whole(one, 4, 100'000); }));
  a.send(1, parcel_of(5, 100'000));
  REQUIRE(of_c.await(1));
  CHECK(is_whole(of_c.parcels.back().second, 5, 100'000));
  CHECK(of_a.broken.empty());
}

TEST_CASE("a peer with an address that is none is given up, and others talk on") {
  if (!with_lanes("all")) {
    return;
  }
  Two two;
  const std::string endpoint = two.a.listen(2, ::getpid());
  two.open();
  const std::string real = make_ucx_plane({.arrived = [] {},
                                           .failed =
                                               [](const std::string&) {
                                               }})
                               ->address();
  std::string address = real;
  SECTION("none") {
    address.clear();
  }
  SECTION("of another form") {
    address.front() = static_cast<char>(~address.front());
  }
  SECTION("too long") {
    address.resize(kAddressBytesMax + 1, 'x');
  }
  SECTION("cut short") {
    address.resize(address.size() / 2);
  }
  SECTION("all bits are set") {
    std::fill(address.begin() + 1, address.end(), '\xff');
  }
  SECTION("none is set") {
    std::fill(address.begin() + 1, address.end(), '\0');
  }
  Forger forger(endpoint);
  forger.send(hello_frame(2, "token", 0, {.address = address}));
  forger.send(header_frame(parcel_of(1, 10'000), 2, 1));
  REQUIRE(two.of_a.await_broken());
  CAPTURE(two.of_a.broken);
  CHECK(two.of_a.parcels.empty());
  two.b.send(0, parcel_of(7, 100'000));
  two.a.send(1, parcel_of(8, 100'000));
  REQUIRE(two.of_a.await(1));
  REQUIRE(two.of_b.await(1));
  CHECK(is_whole(two.of_a.parcels[0].second, 7, 100'000));
  CHECK(two.of_b.broken.empty());
}

TEST_CASE("streams and UCX do not talk to each other: that is told") {
  if (!with_lanes("all")) {
    return;
  }
  Inbox of_a;
  Inbox of_b;
  Channel a(0, "token", 0, 0, Transport::ucx);
  Channel b(1, "token");
  b.connect(0, a.listen(1, ::getpid()));
  a.open(of_a.events());
  b.open(of_b.events());
  b.send(0, parcel_of(1, 10));
  REQUIRE(of_a.await_broken());
  CHECK_THAT(of_a.broken.front(), says("no address of UCX"));
}

TEST_CASE("a process without the lead's UCX refuses its invitation in a sentence") {
  if (!with_lanes("all")) {
    return;
  }
  Invitation invitation{.version = "1", .protocol = kWireProtocol};
  CHECK(check_invitation(invitation, "1"));
  invitation.ucx = ucx_version();
  CHECK(check_invitation(invitation, "1"));
  invitation.ucx = "0.9";
  const auto refused = check_invitation(invitation, "1");
  REQUIRE(!refused);
  CHECK_THAT(refused.error().message, says("the lead 0.9"));
  ::setenv("UCX_TLS", "none-such", 1);
  CHECK(!check_ucx());
}

namespace {

/// What process 1 does in the test below: sends until it is killed.
[[noreturn]] void send_for_ever(int from_parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // a test that fails leaves nobody behind
  std::array<char, 256> endpoint{};
  const ssize_t n = ::read(from_parent, endpoint.data(), endpoint.size());
  Inbox inbox;
  Channel b(1, "token", 0, 0, Transport::ucx);
  b.connect(0, std::string(endpoint.data(), static_cast<std::size_t>(std::max<ssize_t>(n, 0))));
  b.open(inbox.events());
  for (std::uint32_t i = 0;; ++i) {
    b.send(0, parcel_of(i, 1'000'000));
    inbox.await(i);  // an answer each
  }
}

}  // namespace

TEST_CASE("a peer that stands still for long is borne, and one that is killed is told of") {
  for (const std::string& lanes : kLanes) {
    INFO(lanes);
    if (!with_lanes(lanes)) {
      return;
    }
    std::array<int, 2> pipe{};
    REQUIRE(::pipe(pipe.data()) == 0);
    const pid_t child = ::fork();  // no thread of this process lives now
    if (child == 0) {
      send_for_ever(pipe[0]);
    }
    Inbox of_a;
    Channel a(0, "token", 0, 0, Transport::ucx);
    const std::string endpoint = a.listen(1, child);
    REQUIRE(::write(pipe[1], endpoint.data(), endpoint.size()) > 0);
    Channel::Events events = of_a.events();
    events.parcel = [&a, take = events.parcel](int from, Parcel parcel) {
      take(from, std::move(parcel));
      a.send(1, parcel_of(0, 1'000'000));
    };
    a.open(std::move(events));
    REQUIRE(of_a.await(3));
    ::kill(child, SIGSTOP);
    std::this_thread::sleep_for(3s);  // longer than a stream that is cut has
    CHECK(of_a.broken.empty());
    ::kill(child, SIGCONT);
    REQUIRE(of_a.await(10));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    CHECK(of_a.await_broken());
    a.close();
    CHECK(is_whole(of_a.parcels[2].second, 2, 1'000'000));
    ::close(pipe[0]);
    ::close(pipe[1]);
  }
}

}  // namespace ucx_test
