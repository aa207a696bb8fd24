// Channels keep the order and the bytes of what goes over them, and let nobody in who does not know the
// run's token.
#include "runtime/cluster/channel.hpp"

#include "messages/tensor_bytes.hpp"
#include "tests/support/catch.hpp"
#include "wire.pb.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>
#include <zmq.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

using namespace troupe;
using namespace std::chrono_literals;

namespace {

constexpr auto kPatience = 30s;

/// What has come, from all peers.
class Inbox {
 public:
  Channel::Events events() {
    return {.parcel =
                [this](int from, Parcel parcel) {
                  const std::lock_guard lock(mutex_);
                  parcels.emplace_back(from, std::move(parcel));
                  changed_.notify_all();
                },
            .broken =
                [this](int /*from*/, const std::string& why) {
                  const std::lock_guard lock(mutex_);
                  broken.push_back(why);
                  changed_.notify_all();
                },
            .tick = [] {},
            .readable =
                [](int) {
                }};
  }

  /// False where they have not come in time.
  bool await(std::size_t count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kPatience, [&] { return parcels.size() >= count; });
  }

  bool await_broken() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kPatience, [&] { return !broken.empty(); });
  }

  std::vector<std::pair<int, Parcel>> parcels;
  std::vector<std::string> broken;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
};

Tensor numbers(std::int64_t count, float first) {
  Stream stream(Device{});
  std::vector<float> all(static_cast<std::size_t>(count));
  std::iota(all.begin(), all.end(), first);
  return from_host(stream, all, {count});
}

Parcel numbered(std::uint32_t number, std::vector<Tensor> tensors = {}) {
  return {.recipient = number, .content = {.bytes = "b", .tensors = std::move(tensors)}};
}

}  // namespace

TEST_CASE("what goes over a channel keeps its order and its bytes, whatever it carries") {
  Inbox of_a;
  Inbox of_b;
  Channel a(0, "token");
  Channel b(1, "token");
  b.connect(0, a.listen(1));
  a.open(of_a.events());
  b.open(of_b.events());
  constexpr std::uint32_t kCount = 400;
  for (std::uint32_t i = 0; i < kCount; ++i) {
    const std::int64_t size = i % 100 == 7 ? 5'000'000 : i % 10 == 3 ? 3000 : 2;
    a.send(1, numbered(i, {numbers(size, static_cast<float>(i))}));
    b.send(0, numbered(i));
  }
  REQUIRE(of_b.await(kCount));
  REQUIRE(of_a.await(kCount));
  for (std::uint32_t i = 0; i < kCount; ++i) {
    REQUIRE(of_a.parcels[i].second.recipient == i);
    const auto& [from, parcel] = of_b.parcels[i];
    REQUIRE(from == 0);
    REQUIRE(parcel.recipient == i);
    const Tensor& tensor = parcel.content.tensors.at(0);
    const float last = static_cast<float>(i) + static_cast<float>(tensor.elements() - 1);
    REQUIRE(tensor.span<float>().front() == static_cast<float>(i));
    REQUIRE(tensor.span<float>().back() == Approx(last));
  }
  CHECK(of_a.broken.empty());
  CHECK(of_b.broken.empty());
}

TEST_CASE("close() hands over what was sent before it") {
  Inbox of_a;
  Inbox of_b;
  Channel a(0, "token");
  auto b = std::make_unique<Channel>(1, "token");
  b->connect(0, a.listen(1));
  a.open(of_a.events());
  b->open(of_b.events());
  for (std::uint32_t i = 0; i < 50; ++i) {
    b->send(0, numbered(i, {numbers(300'000, 1)}));
  }
  b->close(20s);
  b.reset();
  REQUIRE(of_a.await(50));
  CHECK(of_a.parcels.back().second.recipient == 49);
}

TEST_CASE("nothing comes from a peer that was dropped, and what goes there is dropped") {
  Inbox of_a;
  Inbox of_b;
  Channel a(0, "token");
  Channel b(1, "token");
  b.connect(0, a.listen(1));
  a.open(of_a.events());
  b.open(of_b.events());
  b.send(0, numbered(1));
  REQUIRE(of_a.await(1));
  a.drop(1);
  b.send(0, numbered(2));
  a.send(1, numbered(3));
  a.send(7, numbered(4));  // there is no such peer
  std::this_thread::sleep_for(200ms);
  CHECK(of_a.parcels.size() == 1);
  CHECK(of_b.parcels.empty());
}

TEST_CASE("who does not know the token is not let in and disturbs nobody") {
  Inbox of_a;
  Inbox of_b;
  Inbox of_stranger;
  Channel a(0, "token");
  Channel stranger(1, "guess");
  Channel b(1, "token");
  const std::string endpoint = a.listen(1);
  stranger.connect(0, endpoint);
  b.connect(0, endpoint);
  a.open(of_a.events());
  stranger.open(of_stranger.events());
  stranger.send(0, numbered(66));
  std::this_thread::sleep_for(200ms);  // the stranger is first
  b.open(of_b.events());
  b.send(0, numbered(1));
  REQUIRE(of_a.await(1));
  CHECK(of_a.parcels[0].second.recipient == 1);
  CHECK(of_a.broken.empty());
  CHECK(of_stranger.parcels.empty());
}

TEST_CASE("bytes that are no ZeroMQ, and connections that say nothing, disturb nobody") {
  Inbox of_a;
  Inbox of_b;
  Channel a(0, "token");
  const std::string endpoint = a.listen(1);
  a.open(of_a.events());
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port =
      htons(static_cast<std::uint16_t>(std::stoi(endpoint.substr(endpoint.rfind(':') + 1))));
  ::inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
  std::vector<int> strangers;
  for (int i = 0; i < 20; ++i) {
    strangers.push_back(::socket(AF_INET, SOCK_STREAM, 0));
    REQUIRE(::connect(strangers.back(), reinterpret_cast<sockaddr*>(&address), sizeof address) ==
            0);
    std::string noise(i % 4 == 0 ? 0 : 1000, static_cast<char>(0xff - i));
    REQUIRE(::send(strangers.back(), noise.data(), noise.size(), MSG_NOSIGNAL) ==
            static_cast<ssize_t>(noise.size()));
  }
  Channel b(1, "token");
  b.connect(0, endpoint);
  b.open(of_b.events());
  b.send(0, numbered(1));
  CHECK(of_a.await(1));
  CHECK(of_a.broken.empty());
  for (const int descriptor : strangers) {
    ::close(descriptor);
  }
}

namespace {

/// A peer that knows the token and sends what it likes.
class Forger {
 public:
  Forger(const std::string& endpoint, const std::string& token)
      : context_(zmq_ctx_new()), socket_(zmq_socket(context_, ZMQ_PAIR)) {
    const int none = 0;
    zmq_setsockopt(socket_, ZMQ_LINGER, &none, sizeof none);
    zmq_setsockopt(socket_, ZMQ_PLAIN_USERNAME, "x", 1);
    zmq_setsockopt(socket_, ZMQ_PLAIN_PASSWORD, token.data(), token.size());
    zmq_connect(socket_, endpoint.c_str());
  }

  ~Forger() {
    zmq_close(socket_);
    zmq_ctx_term(context_);
  }

  void send(const std::string& frame) { zmq_send(socket_, frame.data(), frame.size(), 0); }

 private:
  void* context_;
  void* socket_;
};

}  // namespace

TEST_CASE("a peer whose frames cannot be believed is heard no more") {
  Inbox of_a;
  Channel a(0, "token");
  const std::string endpoint = a.listen(1);
  a.open(of_a.events());
  Forger forger(endpoint, "token");
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
  SECTION("a tensor of 4 GiB") {
    forger.send(hello_frame(1, "token"));
    proto::WireHeader header;
    header.set_sender(1);
    header.set_sequence(1);
    header.set_whole(1);
    header.add_tensors()->add_extents(std::int64_t{1} << 32);
    forger.send(header.SerializeAsString());
  }
  REQUIRE(of_a.await_broken());
  const std::size_t before = of_a.parcels.size();
  forger.send(header_frame(numbered(2), 1, 2));
  std::this_thread::sleep_for(100ms);
  CHECK(of_a.parcels.size() == before);
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
  a.close({});
  ::close(ends[0]);
}
