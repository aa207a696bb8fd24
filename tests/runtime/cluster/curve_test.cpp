// Channels between hosts: the same as on one machine, and nobody is let in but who has the key that was told.
#include "messages/tensor_bytes.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/inbox.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>
#include <zmq.h>

#include <cstdlib>
#include <deque>
#include <string>
#include <thread>

namespace curve_test {

using namespace troupe;
using namespace troupe::test;
using namespace std::chrono_literals;

namespace {

Parcel numbered(std::uint32_t number) {
  return {.recipient = number, .content = {.bytes = "b", .tensors = {}}};
}

Parcel large(std::uint32_t number, std::int64_t elements) {
  Stream stream(Device{});
  std::vector<float> all(static_cast<std::size_t>(elements), static_cast<float>(number));
  Parcel parcel = numbered(number);
  parcel.content.tensors.push_back(from_host(stream, all, {elements}));
  return parcel;
}

/// Two ends that know each other's keys.
struct Pair {
  Pair() {
    endpoint = a.listen_at(1, "127.0.0.1");
    a.expect(1, b.public_key());
    b.connect(0, endpoint, a.public_key());
  }

  void open() {
    a.open(of_a.events());
    b.open(of_b.events());
  }

  bool talk() {
    b.send(0, numbered(1));
    a.send(1, numbered(2));
    return of_a.await(1) && of_b.await(1) && of_a.parcels[0].second.recipient == 1 &&
           of_b.parcels[0].second.recipient == 2;
  }

  Inbox of_a;
  Inbox of_b;
  Channel a{0, "token"};
  Channel b{1, "token"};
  std::string endpoint;
};

/// A connection of TCP to a socket of a Channel's, that says what it is told to.
class Stranger {
 public:
  explicit Stranger(const std::string& endpoint) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int port = std::atoi(endpoint.substr(endpoint.rfind(':') + 1).c_str());
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    connected =
        ::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  }

  ~Stranger() { ::close(socket_); }

  Stranger(const Stranger&) = delete;
  Stranger& operator=(const Stranger&) = delete;

  void say(const std::string& bytes) { ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL); }

  bool connected = false;

 private:
  int socket_;
};

}  // namespace

TEST_CASE(
    "between hosts a channel keeps order and bytes, too, headers of the greatest size included") {
  Pair pair;
  pair.open();
  constexpr std::uint32_t kCount = 60;
  for (std::uint32_t i = 0; i < kCount; ++i) {
    pair.b.send(0, large(i, i % 20 == 7 ? 5'000'000 : i % 3 == 0 ? 3000 : 2));
  }
  Parcel wide = numbered(kCount);
  wide.content.bytes.assign(kFrameBytesMax - 1024, 'w');
  pair.b.send(0, std::move(wide));
  REQUIRE(pair.of_a.await(kCount + 1));
  for (std::uint32_t i = 0; i < kCount; ++i) {
    const Parcel& parcel = pair.of_a.parcels[i].second;
    REQUIRE(parcel.recipient == i);
    REQUIRE(parcel.content.tensors.at(0).span<float>().back() == static_cast<float>(i));
  }
  CHECK(pair.of_a.parcels[kCount].second.content.bytes.size() == kFrameBytesMax - 1024);
  CHECK(pair.of_a.broken.empty());
}

TEST_CASE("who has another key is not let in, and the one who is waited for comes none the less") {
  Pair pair;
  // It knows all but the key: that of the socket, the run's token, and whom it has to be.
  Inbox of_stranger;
  Channel stranger(1, "token");
  stranger.connect(0, pair.endpoint, pair.a.public_key());
  stranger.open(of_stranger.events());
  stranger.send(0, numbered(77));
  pair.a.open(pair.of_a.events());
  std::this_thread::sleep_for(300ms);
  CHECK(pair.of_a.parcels.empty());
  pair.b.open(pair.of_b.events());
  CHECK(pair.talk());
  CHECK(pair.of_a.parcels.size() == 1);
  CHECK(of_stranger.parcels.empty());
  CHECK(pair.of_a.broken.empty());
}

TEST_CASE("who connects to another than he knows the key of says nothing to it") {
  Inbox of_a;
  Inbox of_b;
  Channel a(0, "token");
  Channel b(1, "token");
  const CurveKeys others;
  const std::string endpoint = a.listen_at(1, "127.0.0.1");
  a.expect(1, b.public_key());
  b.connect(0, endpoint, others.public_key());
  a.open(of_a.events());
  b.open(of_b.events());
  b.send(0, numbered(1));
  a.send(1, numbered(2));
  std::this_thread::sleep_for(300ms);
  a.close();
  b.close();
  CHECK(of_a.parcels.empty());
  CHECK(of_b.parcels.empty());
}

TEST_CASE("a peer without a key, or without ZeroMQ, disturbs nobody") {
  Pair pair;
  std::deque<Stranger> strangers;
  for (int i = 0; i < 20; ++i) {
    strangers.emplace_back(pair.endpoint);
    REQUIRE(strangers.back().connected);
  }
  strangers[1].say("GET / HTTP/1.0\r\n\r\n");
  // A greeting of ZeroMQ's that names CURVE, then a frame of 4 GiB.
  strangers[2].say(std::string("\xff\0\0\0\0\0\0\0\1\x7f\3\1CURVE", 17) + std::string(47, '\0') +
                   std::string("\6\0\0\0\1\0\0\0\0", 9));
  void* const context = zmq_ctx_new();
  void* const plain = zmq_socket(context, ZMQ_PAIR);
  const int none = 0;
  zmq_setsockopt(plain, ZMQ_LINGER, &none, sizeof none);
  REQUIRE(zmq_connect(plain, pair.endpoint.c_str()) == 0);
  const std::string hello = hello_frame(1, "token");
  zmq_send(plain, hello.data(), hello.size(), ZMQ_DONTWAIT);
  pair.open();
  CHECK(pair.talk());
  CHECK(pair.of_a.broken.empty());
  zmq_close(plain);
  zmq_ctx_term(context);
}

}  // namespace curve_test
