// Channels between hosts: the same as on one machine, and nobody is let in but who has the key that was told.
#include "messages/tensor_bytes.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/inbox.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>

namespace run_keys_test {

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
  Parcel parcel = numbered(1);  // one lane
  parcel.content.bytes = std::to_string(number);
  parcel.content.tensors.push_back(from_host(stream, all, {elements}));
  return parcel;
}

/// Two ends that know each other's keys.
struct Pair {
  explicit Pair(int streams = 0) : b(1, "token", 0, streams) {
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
  Channel b;
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

  /// Whether the other end hangs up, and has said nothing that a TLS alert is not.
  bool hung_up() {
    std::string heard;
    std::array<char, 256> some{};
    for (;;) {
      const ssize_t n = ::recv(socket_, some.data(), some.size(), 0);
      if (n <= 0) {
        constexpr std::size_t kAlert = 7;
        return heard.empty() || (heard.size() == kAlert && heard.front() == 0x15);
      }
      heard.append(some.data(), static_cast<std::size_t>(n));
    }
  }

  bool connected = false;

 private:
  int socket_;
};

std::ptrdiff_t descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return std::distance(begin(all), end(all));
}

}  // namespace

TEST_CASE("streams for tensors come about with the first tensor, whichever end sends it") {
  for (const bool connecting_end : {false, true}) {
    constexpr int kStreams = 3;
    Pair pair(kStreams);
    pair.open();
    REQUIRE(pair.talk());
    const std::ptrdiff_t before = descriptors();
    if (connecting_end) {
      pair.b.send(0, large(7, 100'000));
      REQUIRE(pair.of_a.await(2));
    } else {
      pair.a.send(1, large(7, 100'000));
      REQUIRE(pair.of_b.await(2));
    }
    const std::ptrdiff_t expected = before + 2 * kStreams - 1;  // both ends' less one that listened
    const auto until = std::chrono::steady_clock::now() + 30s;
    while (descriptors() != expected && std::chrono::steady_clock::now() < until) {
      std::this_thread::sleep_for(1ms);
    }
    CHECK(descriptors() == expected);
  }
}

TEST_CASE(
    "between hosts a channel keeps order and bytes, too, headers of the greatest size included") {
  Pair pair(GENERATE(1, 3));
  pair.open();
  constexpr std::uint32_t kCount = 60;
  for (std::uint32_t i = 0; i < kCount; ++i) {
    pair.b.send(0, large(i, i % 20 == 7 ? 5'000'000 : i % 3 == 0 ? 3000 : 2));
  }
  Parcel wide = large(kCount, 2);
  wide.content.bytes.assign(kFrameBytesMax - 1024, 'w');
  pair.b.send(0, std::move(wide));
  REQUIRE(pair.of_a.await(kCount + 1));
  for (std::uint32_t i = 0; i < kCount; ++i) {
    const Parcel& parcel = pair.of_a.parcels[i].second;
    REQUIRE(parcel.content.bytes == std::to_string(i));
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
  const RunKeys others;
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

TEST_CASE("strangers without a key disturb nobody, and hear nothing") {
  Pair pair;
  pair.a.open(pair.of_a.events());
  std::deque<Stranger> strangers;
  for (int i = 0; i < 100; ++i) {
    strangers.emplace_back(pair.endpoint);
    REQUIRE(strangers.back().connected);
  }
  const std::string hello = hello_frame(1, "token");
  strangers[1].say("GET / HTTP/1.0\r\n\r\n");
  strangers[2].say(std::string("\x16\3\1\xff\xff", 5) + std::string(70'000, 'x'));  // TLS begins so
  strangers[3].say(std::string("\x60\0\0\0", 4) + hello);
  pair.b.open(pair.of_b.events());
  CHECK(pair.talk());
  CHECK(pair.of_a.broken.empty());
  // A peer that has come with all its streams is the last: whoever waits has been hung up on, and nobody else is let in.
  pair.b.send(0, large(7, 100'000));
  REQUIRE(pair.of_a.await(2));
  for (Stranger& stranger : strangers) {
    CHECK(stranger.hung_up());
  }
  CHECK_FALSE(Stranger(pair.endpoint).connected);
}

TEST_CASE("a stranger that says nothing is hung up on") {
  Channel a(0, "token");
  Inbox of_a;
  const std::string endpoint = a.listen_at(1, "127.0.0.1");
  a.open(of_a.events());
  Stranger stranger(endpoint);
  REQUIRE(stranger.connected);
  CHECK(stranger.hung_up());  // in its time
  CHECK(of_a.broken.empty());
}

TEST_CASE("who takes nothing for long does not end the streams of a channel") {
  Pair pair(2);
  pair.open();
  REQUIRE(pair.talk());
  pair.b.send(0, large(7, 100'000));
  REQUIRE(pair.of_a.await(2));
  int streams = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int socket = std::atoi(entry.path().filename().c_str());
    int most = -1;
    socklen_t size = sizeof most;
    sockaddr_in there{};
    socklen_t length = sizeof there;
    if (::getpeername(socket, reinterpret_cast<sockaddr*>(&there), &length) == 0 &&
        there.sin_family == AF_INET &&
        ::getsockopt(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, &most, &size) == 0) {
      CHECK(most == 0);
      ++streams;
    }
  }
  CHECK(streams >= 6);  // of headers and of tensors, at both ends
}

TEST_CASE("what is said of encryption is what a stream does that has come about") {
  const std::string words = tls_words();
  CAPTURE(words);
  CHECK(words.starts_with("OpenSSL "));
  CHECK((words.find("TLS_AES_128_GCM_SHA256") != std::string::npos ||
         words.find("TLS_CHACHA20_POLY1305_SHA256") != std::string::npos));
  std::ifstream file("/proc/sys/net/ipv4/tcp_available_ulp");
  const std::string offered{std::istreambuf_iterator<char>(file), {}};
  if (offered.find("tls") == std::string::npos) {
    CHECK(words.find("not by the kernel, which offers no TLS") != std::string::npos);
  }
}

}  // namespace run_keys_test
