// Channels keep the order and the bytes of what goes over them, and let nobody in but the process that they
// wait for.
#include "runtime/cluster/channel.hpp"

#include "messages/tensor_bytes.hpp"
#include "runtime/cluster/frame_stream.hpp"
#include "runtime/cluster/local_socket.hpp"
#include "runtime/cluster/started_process.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/inbox.hpp"
#include "wire.pb.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <deque>
#include <filesystem>
#include <limits>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace channel_test {

using namespace troupe;
using namespace troupe::test;
using namespace std::chrono_literals;

namespace {

constexpr auto kPatience = 30s;

Tensor numbers(std::int64_t count, float first) {
  Stream stream(Device{});
  std::vector<float> all(static_cast<std::size_t>(count));
  std::iota(all.begin(), all.end(), first);
  return from_host(stream, all, {count});
}

Parcel numbered(std::uint32_t number, std::vector<Tensor> tensors = {}) {
  return {.recipient = number, .content = {.bytes = "b", .tensors = std::move(tensors)}};
}

/// From one machine to another, whatever the number.
Parcel in_lane(std::uint32_t number, std::vector<Tensor> tensors = {}) {
  return {.recipient = 5,
          .speaker = 3,
          .content = {.bytes = std::to_string(number), .tensors = std::move(tensors)}};
}

}  // namespace

TEST_CASE("what goes over a channel keeps its order and its bytes, whatever it carries") {
  TwoChannels two;
  auto& [of_a, of_b, a, b] = two;
  a.open(of_a.events());
  b.open(of_b.events());
  constexpr std::uint32_t kCount = 400;
  for (std::uint32_t i = 0; i < kCount; ++i) {
    const std::int64_t size = i % 100 == 7 ? 5'000'000 : i % 10 == 3 ? 3000 : 2;
    a.send(1, in_lane(i, {numbers(size, static_cast<float>(i))}));
    b.send(0, numbered(i));
  }
  REQUIRE(of_b.await(kCount));
  REQUIRE(of_a.await(kCount));
  for (std::uint32_t i = 0; i < kCount; ++i) {
    REQUIRE(of_a.parcels[i].second.recipient == i);
    const auto& [from, parcel] = of_b.parcels[i];
    REQUIRE(from == 0);
    REQUIRE(parcel.content.bytes == std::to_string(i));
    const Tensor& tensor = parcel.content.tensors.at(0);
    const float last = static_cast<float>(i) + static_cast<float>(tensor.elements() - 1);
    REQUIRE(tensor.span<float>().front() == static_cast<float>(i));
    REQUIRE(tensor.span<float>().back() == Approx(last));
  }
  CHECK(of_a.broken.empty());
  CHECK(of_b.broken.empty());
}

TEST_CASE("many large headers go without a word from the other side") {
  TwoChannels two;
  auto& [of_a, of_b, a, b] = two;
  a.open(of_a.events());
  b.open(of_b.events());
  constexpr std::uint32_t kCount = 40;
  for (std::uint32_t i = 0; i < kCount; ++i) {
    a.send(1, {.recipient = i, .content = {.bytes = std::string(300'000, 'x'), .tensors = {}}});
  }
  REQUIRE(of_b.await(kCount));
  CHECK(of_b.parcels.back().second.recipient == kCount - 1);
}

TEST_CASE("nothing comes from a peer that was dropped, and what goes there is dropped") {
  TwoChannels two;
  auto& [of_a, of_b, a, b] = two;
  std::atomic<int> heard = 0;
  Channel::Events events = of_a.events();
  events.parcel = [&](int from, Parcel) {
    heard += 1;
    a.drop(from);  // of 1000 that are there, the first is the last
    a.send(from, numbered(3));
    a.send(7, numbered(4));  // there is no such peer
  };
  for (std::uint32_t i = 0; i < 1000; ++i) {
    b.send(0, numbered(i));
  }
  a.open(std::move(events));
  b.open(of_b.events());
  const auto until = std::chrono::steady_clock::now() + kPatience;
  while (heard == 0 && std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(1ms);
  }
  std::this_thread::sleep_for(50ms);
  b.close();
  a.close();
  CHECK(heard == 1);
  CHECK(of_b.parcels.empty());
}

TEST_CASE("another takes the place of a peer that was dropped, and that one is heard no more") {
  Inbox of_a;
  Inbox of_b;
  Inbox of_c;
  std::atomic<std::uint32_t> wanted = 0;  // the life of who comes; a's thread looks until it ends
  std::string place;
  Channel a(0, "token");
  Channel b(1, "token");
  Channel c(1, "token", 2);
  a.connect(1, b.listen(0, ::getpid()));
  place = c.listen(0, ::getpid());
  Channel::Events events = of_a.events();
  events.tick = [&] {
    if (const std::uint32_t life = wanted.exchange(0)) {
      a.renew(1, life, place);
    }
  };
  a.open(std::move(events));
  b.open(of_b.events());
  c.open(of_c.events());
  b.send(0, numbered(1));
  REQUIRE(of_a.await(1));
  a.drop(1);
  a.send(1, numbered(2));
  b.send(0, numbered(3));
  wanted = 2;
  c.send(0, numbered(4));
  REQUIRE(of_a.await(2));
  a.send(1, numbered(5));
  REQUIRE(of_c.await(1));
  CHECK(of_a.parcels.back().second.recipient == 4);
  CHECK(of_c.parcels.back().second.recipient == 5);
  CHECK(of_a.broken.empty());
  CHECK(of_b.parcels.empty());
}

namespace {

/// A bare connection to a socket of a Channel's.
class Connection {
 public:
  explicit Connection(const std::string& endpoint) : socket_(connect_here(endpoint)) {}

  ~Connection() { ::close(socket_); }

  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  bool connected() const { return socket_ >= 0; }

  /// Whether the other end hangs up without a word.
  bool hung_up() {
    char byte = 0;
    return await(socket_, POLLIN, {.until = std::chrono::steady_clock::now() + kPatience}) ==
               Talk::done &&
           ::recv(socket_, &byte, 1, 0) <= 0;
  }

 private:
  int socket_;
};

std::ptrdiff_t descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return std::distance(begin(all), end(all));
}

}  // namespace

TEST_CASE("a process that is not the expected one is hung up on, however often it comes") {
  Inbox of_a;
  Inbox of_stranger;
  Channel a(0, "token");
  const std::string endpoint = a.listen(1, ::getppid());
  a.open(of_a.events());
  a.send(1, numbered(2));
  const std::ptrdiff_t before = descriptors();
  std::optional<Channel> stranger(std::in_place, 1, "token");  // it even knows the token
  stranger->connect(0, endpoint);
  stranger->open(of_stranger.events());
  stranger->send(0, numbered(1));
  for (int i = 0; i < 300; ++i) {
    Connection again(endpoint);
    REQUIRE(again.connected());
    REQUIRE(again.hung_up());  // at the latest now, the first one has been hung up on as well
  }
  stranger.reset();  // which comes again and again
  const auto until = std::chrono::steady_clock::now() + kPatience;
  while (descriptors() > before && std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(1ms);
  }
  CHECK(descriptors() <= before);
  a.close();
  CHECK(of_a.parcels.empty());
  CHECK(of_a.broken.empty());
  CHECK(of_stranger.parcels.empty());
}

TEST_CASE("who listens is hung up on, too, where it is not the expected process") {
  Inbox of_a;
  Inbox of_b;
  Channel a(0, "token");
  Channel b(1, "token");
  b.connect(0, a.listen(1, ::getpid()), "", ::getppid());
  a.open(of_a.events());
  b.open(of_b.events());
  a.send(1, numbered(1));
  b.send(0, numbered(2));
  std::this_thread::sleep_for(500ms);
  b.close();
  a.close();
  CHECK(a.traffic().at(1).received == 0);
  CHECK(b.traffic().at(0).sent == 0);
  CHECK(of_a.broken.empty());
}

TEST_CASE("many strangers at once keep nobody waiting, and a name that none can have is none") {
  const std::string endpoint = "@troupe-" + make_token();
  const int listening = listen_here(endpoint);
  std::deque<Connection> strangers;
  for (int i = 0; i < 64; ++i) {
    strangers.emplace_back(endpoint);
    REQUIRE(strangers.back().connected());
  }
  const Connection last(endpoint);
  REQUIRE(last.connected());
  CHECK(accept_here(listening, ::getppid()) == -1);
  CHECK(errno == EAGAIN);
  const int socket = accept_here(listening, ::getpid());  // the last one still waits
  CHECK(socket >= 0);
  ::close(socket);
  ::close(listening);
  for (const std::string& name :
       {std::string(), std::string("@"), std::string("/tmp/x"), '@' + std::string(200, 'x')}) {
    CHECK(connect_here(name) == -1);
  }
}

TEST_CASE("connections that say nothing disturb nobody") {
  Inbox of_a;
  Inbox of_b;
  Channel a(0, "token");
  Channel b(1, "token");
  const std::string endpoint = a.listen(1, ::getpid());
  a.open(of_a.events());
  std::deque<Connection> silent;
  for (int i = 0; i < 20; ++i) {
    silent.emplace_back(endpoint);
    REQUIRE(silent.back().connected());
  }
  b.connect(0, endpoint);
  b.open(of_b.events());
  b.send(0, numbered(1));
  a.send(1, numbered(2));
  REQUIRE(of_a.await(1));
  CHECK(of_a.parcels[0].second.recipient == 1);
  REQUIRE(of_b.await(1));
  CHECK(of_b.parcels[0].second.recipient == 2);
  CHECK(of_a.broken.empty());
}

TEST_CASE("an exception of the channel's thread is told, and ends it") {
  TwoChannels two;
  auto& [of_a, of_b, a, b] = two;
  Channel::Events events = of_a.events();
  SECTION("of a parcel that could not be taken, though it may be believed") {
    events.parcel = [](int, Parcel) {
      throw std::runtime_error("no memory");
    };
  }
  SECTION("of a tick") {
    events.tick = [] {
      throw std::runtime_error("no memory");
    };
  }
  a.open(std::move(events));
  b.open(of_b.events());
  b.send(0, numbered(1));
  REQUIRE(of_a.await_failed());
  CHECK(of_a.failed == std::vector<std::string>{"no memory"});
  CHECK(of_a.broken.empty());
  a.close();
}

TEST_CASE("a parcel that the other side would refuse is not sent") {
  TwoChannels two;
  auto& [of_a, of_b, a, b] = two;
  a.open(of_a.events());
  b.open(of_b.events());
  Parcel late = numbered(1);
  late.due = std::numeric_limits<double>::infinity();
  CHECK_THROWS_AS(b.send(0, std::move(late)), WireError);
  b.send(0, numbered(2));
  REQUIRE(of_a.await(1));
  CHECK(of_a.parcels[0].second.recipient == 2);
}

namespace {

/// A peer that is let in and sends what it likes.
class Forger {
 public:
  explicit Forger(std::string endpoint) : endpoint_(std::move(endpoint)) { connect(); }

  /// Over a stream of its own from now on.
  void connect() {
    const int socket = connect_here(endpoint_);
    REQUIRE(socket >= 0);
    lines_.push_back(
        std::make_unique<FrameStream>(std::make_unique<DescriptorStream>(socket, socket)));
  }

  void send(const std::string& frame) {
    lines_.back()->say(frame);
    go_on();
  }

  void go_on() { lines_.back()->write(); }

  /// Closes the stream that was made last.
  void hang_up() { lines_.pop_back(); }

  std::size_t unsent() const { return lines_.back()->unsent(); }

  /// What it hears over the stream that was made last.
  std::span<const std::byte> next() {
    for (int i = 0; i < 1000; ++i) {
      lines_.back()->read_frame(kFrameBytesMax);
      if (const auto frame = lines_.back()->next(kFrameBytesMax)) {
        return *frame;
      }
      std::this_thread::sleep_for(10ms);
    }
    return {};
  }

  /// Without a length before them.
  void send_bytes(std::span<const std::byte> bytes) {
    const auto stream = lines_.back()->release();
    for (std::size_t at = 0; at < bytes.size();) {
      const auto left = bytes.subspan(at);
      at += stream->write({reinterpret_cast<const char*>(left.data()), left.size()}).bytes;
    }
  }

  /// Where a frame would begin.
  void send_length(std::uint32_t length) {
    const auto stream = lines_.back()->release();
    stream->write({reinterpret_cast<const char*>(&length), sizeof length});
    connect();
  }

 private:
  std::string endpoint_;
  std::vector<std::unique_ptr<FrameStream>> lines_;
};

}  // namespace

TEST_CASE("a peer whose frames cannot be believed is heard no more") {
  Inbox of_a;
  Channel a(0, "token");
  const std::string endpoint = a.listen(1, ::getpid());
  a.open(of_a.events());
  Forger forger(endpoint);
  SECTION("without a greeting") {
    forger.send(header_frame(numbered(1), 1, 1));
  }
  SECTION("with the greeting of another run") {
    forger.send(hello_frame(1, "guess"));
  }
  SECTION("with the greeting of another process") {
    forger.send(hello_frame(2, "token"));
  }
  SECTION("a parcel twice") {
    forger.send(hello_frame(1, "token"));
    forger.send(header_frame(numbered(1), 1, 1));
    forger.send(header_frame(numbered(1), 1, 1));
  }
  SECTION("with the greeting of another life") {
    forger.send(hello_frame(1, "token", 1));
  }
  SECTION("a parcel of another life") {
    forger.send(hello_frame(1, "token"));
    forger.send(header_frame(numbered(1), 1, 1, 1));
  }
  SECTION("a tensor of 4 GiB") {
    forger.send(hello_frame(1, "token"));
    proto::WireHeader header;
    header.set_sender(1);
    header.set_sequence(1);
    header.set_whole(1);
    header.add_tensors()->add_extents(std::int64_t{1} << 32);
    forger.send(header.SerializeAsString());
  }
  SECTION("a frame of 4 GiB") {
    forger.send(hello_frame(1, "token"));
    forger.send_length(~std::uint32_t{0});
  }
  SECTION("a greeting that is as long as a header may be") {
    forger.send(std::string(kHelloBytesMax + 1, 'x'));
  }
  SECTION("a stream of headers twice") {
    forger.send(hello_frame(1, "token"));
    forger.connect();
    forger.send(hello_frame(1, "token"));
  }
  SECTION("a stream for tensors twice") {
    forger.send(hello_frame(1, "token", 0, {.streams = 2}));
    for (int i = 0; i < 2; ++i) {
      forger.connect();
      forger.send(hello_frame(1, "token", 0, {.stream = 1, .streams = 2}));
    }
  }
  SECTION("a stream for tensors that ends before they have come") {
    const Tensor load = numbers(2'000'000, 1);
    forger.send(hello_frame(1, "token", 0, {.streams = 2}));
    forger.send(header_frame(in_lane(1, {load}), 1, 1));
    forger.connect();
    forger.send(hello_frame(1, "token", 0, {.stream = 1, .streams = 2}));
    forger.send_bytes(bytes_of(load).first(1'000'000));
    forger.connect();
  }
  SECTION("its stream of headers ends, and nobody says that it has") {
    forger.send(hello_frame(1, "token"));
    forger.hang_up();
    forger.connect();
  }
  SECTION("a stream for tensors before that of headers") {
    forger.send(hello_frame(1, "token", 0, {.stream = 1, .streams = 1}));
  }
  SECTION("a stream that it has not announced") {
    forger.send(hello_frame(1, "token"));
    forger.connect();
    forger.send(hello_frame(1, "token", 0, {.stream = 2, .streams = 2}));
  }
  REQUIRE(of_a.await_broken());
  const std::size_t before = of_a.parcels.size();
  forger.send(header_frame(numbered(2), 1, 2));
  std::this_thread::sleep_for(100ms);
  CHECK(of_a.parcels.size() == before);
}

TEST_CASE("a process whose greeting was not answered greets again, and is told all then") {
  Inbox of_a;
  Channel a(0, "token");
  const std::string endpoint = a.listen(1, ::getpid());
  a.open(of_a.events());
  a.send(1, numbered(7));
  Forger forger(endpoint);
  forger.send(hello_frame(1, "token"));
  forger.hang_up();
  std::this_thread::sleep_for(100ms);
  forger.connect();
  forger.send(hello_frame(1, "token"));
  forger.send(header_frame(numbered(1), 1, 1));
  REQUIRE(of_a.await(1));
  Unpacker unpacker(0, 0);
  std::vector<Announced> none;
  CHECK_NOTHROW(check_hello(forger.next(), 0, "token", 0));
  CHECK(unpacker.take(forger.next(), none).recipient == 7);
  std::this_thread::sleep_for(2500ms);  // the stream that has ended is not held against it
  CHECK(of_a.broken.empty());
}

TEST_CASE("streams for tensors are tried for again where nobody listens for a while") {
  Inbox of_b;
  Channel b(1, "token");
  const std::string endpoint = "@troupe-" + make_token();
  const auto come = [](int listening) {
    pollfd one{.fd = listening, .events = POLLIN, .revents = 0};
    REQUIRE(::poll(&one, 1, 10'000) == 1);
    const int socket = accept_here(listening, ::getpid());
    REQUIRE(socket >= 0);
    return FrameStream(std::make_unique<DescriptorStream>(socket, socket));
  };
  int listening = listen_here(endpoint);
  b.connect(0, endpoint);
  b.open(of_b.events());
  FrameStream headers = come(listening);
  ::close(listening);
  headers.say(hello_frame(0, "token"));
  headers.write();
  Parcel kept = numbered(1, {numbers(100'000, 0)});
  kept.kind = ParcelKind::state;  // what is kept takes no shared memory
  b.send(0, std::move(kept));
  std::this_thread::sleep_for(2500ms);  // more than a stream that is cut has
  CHECK(of_b.broken.empty());
  listening = listen_here(endpoint);
  FrameStream tensors = come(listening);
  std::optional<std::span<const std::byte>> hello;
  for (int i = 0; i < 1000 && !hello; ++i) {
    std::this_thread::sleep_for(10ms);
    tensors.read_frame(kHelloBytesMax);
    hello = tensors.next(kHelloBytesMax);
  }
  REQUIRE(hello);
  CHECK(check_hello(*hello, 1, "token", 0).stream == 1);
  b.close();
  ::close(listening);
  CHECK(of_b.broken.empty());
}

TEST_CASE("what is small passes tensors on their way, and stays behind those of its own lane") {
  Inbox of_a;
  Channel a(0, "token");
  const std::string endpoint = a.listen(1, ::getpid());
  a.open(of_a.events());
  Forger forger(endpoint);
  forger.send(hello_frame(1, "token"));
  const Tensor load = numbers(2'000'000, 1);
  std::uint64_t sequence = 0;
  const auto say = [&](const Parcel& parcel) {
    forger.send(header_frame(parcel, 1, ++sequence));
  };
  say(in_lane(1, {load}));
  say(in_lane(2));
  say(numbered(9));
  say({.kind = ParcelKind::records});
  say({.kind = ParcelKind::rested});
  say(numbered(10));
  say({.kind = ParcelKind::heartbeat});
  REQUIRE(of_a.await(3));
  std::this_thread::sleep_for(50ms);
  REQUIRE(of_a.parcels.size() == 3);
  CHECK(of_a.parcels[0].second.recipient == 9);
  CHECK(of_a.parcels[1].second.kind == ParcelKind::records);
  CHECK(of_a.parcels[2].second.kind == ParcelKind::heartbeat);
  forger.connect();
  forger.send(hello_frame(1, "token", 0, {.stream = 1}));
  forger.send_bytes(bytes_of(load));
  REQUIRE(of_a.await(7));
  CHECK(std::ranges::equal(bytes_of(of_a.parcels[3].second.content.tensors.at(0)), bytes_of(load)));
  CHECK(of_a.parcels[4].second.content.bytes == "2");
  CHECK(of_a.parcels[5].second.kind == ParcelKind::rested);
  CHECK(of_a.parcels[6].second.recipient == 10);
  CHECK(of_a.broken.empty());
}

TEST_CASE("who announces more than it sends is read no further, and hears others none the less") {
  Inbox of_a;
  Channel a(0, "token");
  const std::string endpoint = a.listen(1, ::getpid());
  a.open(of_a.events());
  Forger forger(endpoint);
  forger.send(hello_frame(1, "token"));
  const Tensor load = numbers(2000, 1);
  constexpr std::uint64_t kCount = 100'000;
  std::uint64_t sequence = 0;
  while (sequence < kCount && forger.unsent() == 0) {
    forger.send(header_frame(in_lane(1, {load}), 1, ++sequence));
    for (int i = 0; i < 20 && forger.unsent() > 0; ++i) {
      std::this_thread::sleep_for(10ms);
      forger.go_on();
    }
  }
  CHECK(sequence < kCount);
  CHECK(forger.unsent() > 0);  // the rest waits at its own end
  CHECK(of_a.parcels.empty());
  CHECK(of_a.broken.empty());
}

TEST_CASE("a descriptor at its end is told of until nobody watches it") {
  Inbox of_a;
  std::array<int, 2> ends{};
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) == 0);
  Channel a(0, "token");
  Channel::Events events = of_a.events();
  std::atomic<int> told = 0;
  events.readable = [&](int descriptor) {
    a.unwatch(descriptor);
    told += descriptor == ends[0] ? 1 : 100;
  };
  events.watched = {ends[0]};
  a.open(std::move(events));
  std::this_thread::sleep_for(50ms);
  CHECK(told == 0);
  ::close(ends[1]);
  const auto until = std::chrono::steady_clock::now() + kPatience;
  while (told == 0 && std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(1ms);
  }
  std::this_thread::sleep_for(50ms);
  CHECK(told == 1);
  a.close();
  ::close(ends[0]);
}

}  // namespace channel_test
