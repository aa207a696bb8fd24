#include "runtime/serve/http.hpp"

#include "kernels/wording.hpp"
#include "runtime/cluster/tcp.hpp"
#include "tests/support/catch.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

namespace http_test {

using namespace troupe;

namespace {

HttpServer started(const HttpServer::Options& options = {}) {
  auto server = HttpServer::start(options,
                                  {{"/",
                                    [](const HttpRequest& r) {
                                      std::string all = r.path + "|" + r.header("X-Odd");
                                      for (const auto& [name, value] : r.query) {
                                        all += "|" + name + "=" + value;
                                      }
                                      return HttpReply{.body = all, .type = "text/html"};
                                    }},
                                   {"/throws", [](const HttpRequest&) -> HttpReply {
                                      throw std::runtime_error("no disk");
                                    }}});
  REQUIRE(server);
  return *std::move(server);
}

std::string address_of(const HttpServer& server) {
  return concat("127.0.0.1:", server.port());
}

/// What the server says to these bytes until it hangs up. `hang_up`: after them nothing will come, which ends a request that is
/// not complete.
std::string said_to(const HttpServer& server, const std::string& bytes, bool hang_up = false) {
  const auto socket = connect_to({"127.0.0.1", server.port()}, Nearness::this_machine, {});
  REQUIRE(socket);
  ::fcntl(*socket, F_SETFL, 0);  // one that waits
  std::size_t sent = 0;
  while (sent < bytes.size()) {
    const ssize_t n = ::send(*socket, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (n <= 0) {
      break;
    }
    sent += static_cast<std::size_t>(n);
  }
  if (hang_up) {
    ::shutdown(*socket, SHUT_WR);
  }
  std::string all;
  std::string piece(4096, ' ');
  for (ssize_t n = 0; (n = ::recv(*socket, piece.data(), piece.size(), 0)) > 0;) {
    all.append(piece, 0, static_cast<std::size_t>(n));
  }
  ::close(*socket);
  return all;
}

/// Bytes that the server takes: `begin`, and `piece` with a pause after each until it hangs up, or has taken `most`.
std::size_t sent_until_refused(const HttpServer& server,
                               const std::string& begin,
                               const std::string& piece,
                               std::size_t most,
                               std::chrono::milliseconds pause = {}) {
  const auto socket = connect_to({"127.0.0.1", server.port()}, Nearness::this_machine, {});
  REQUIRE(socket);
  ::fcntl(*socket, F_SETFL, 0);  // one that waits
  std::size_t sent = 0;
  ssize_t n = ::send(*socket, begin.data(), begin.size(), MSG_NOSIGNAL);
  while (n > 0 && sent < most) {
    sent += static_cast<std::size_t>(n);
    std::this_thread::sleep_for(pause);
    n = ::send(*socket, piece.data(), piece.size(), MSG_NOSIGNAL);
  }
  ::close(*socket);
  return sent;
}

}  // namespace

TEST_CASE("a page has path, query and headers of its request", "[serve]") {
  const HttpServer server = started();
  const auto body = http_get(address_of(server), "/?a=1%202&b=%3Cx%3E");
  REQUIRE(body);
  CHECK(*body == "/||a=1 2|b=<x>");
  CHECK(said_to(server, "GET / HTTP/1.1\r\nHost: localhost\r\nx-odd: yes\r\n\r\n").find("/|yes") !=
        std::string::npos);
  CHECK(server.url() == "http://" + address_of(server));
  CHECK(server.url_with_token() == server.url() + "/");
}

TEST_CASE("what is no page is refused in words", "[serve]") {
  const HttpServer server = started();
  const auto none = http_get(address_of(server), "/etc/passwd");
  CHECK(none.error().message ==
        address_of(server) + " answers 404: there is no such page; there is / /throws");
  CHECK(http_get(address_of(server), "/../").error().message.find("404") != std::string::npos);
  CHECK(http_get(address_of(server), "/throws").error().message ==
        address_of(server) + " answers 500: no disk");
  CHECK(said_to(server, "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc")
            .find(" 405 ") != std::string::npos);
  const std::string head = said_to(server, "HEAD / HTTP/1.1\r\nHost: localhost\r\n\r\n");
  CHECK(head.find(" 200 ") != std::string::npos);
  CHECK(head.ends_with("\r\n\r\n"));
}

TEST_CASE("who asks by a foreign name is refused where no token is", "[serve]") {
  const HttpServer server = started();
  CHECK(said_to(server, "GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n").find(" 403 ") !=
        std::string::npos);
  CHECK(said_to(server, "GET / HTTP/1.1\r\nHost: [::1]:80\r\n\r\n").find(" 200 ") !=
        std::string::npos);
  const HttpServer other = started({.token = "t"});
  CHECK(said_to(other, "GET /?token=t HTTP/1.1\r\nHost: evil.example\r\n\r\n").find(" 200 ") !=
        std::string::npos);
}

TEST_CASE("beyond this machine a token is demanded", "[serve]") {
  const HttpServer server = started({.address = "0.0.0.0:0"});
  CHECK(server.token().size() == 32);
  CHECK(server.url_with_token() == server.url() + "/?token=" + server.token());
  std::array<char, 256> name{};  // by which others reach this machine
  REQUIRE(::gethostname(name.data(), name.size() - 1) == 0);
  CHECK(server.url() == concat("http://", name.data(), ":", server.port()));
  CHECK(started({.address = "0.0.0.0:0"}).token() != server.token());
  CHECK(http_get(address_of(server), "/").error().message.find("answers 401: the token") !=
        std::string::npos);
  CHECK_FALSE(http_get(address_of(server), "/", server.token().substr(1)));
  CHECK_FALSE(http_get(address_of(server), "/?token="));
  CHECK(http_get(address_of(server), "/", server.token()));
  CHECK(http_get(address_of(server), "/?token=" + server.token()));
  CHECK_FALSE(is_loopback("0.0.0.0:0"));
  CHECK(is_loopback("[::1]:80"));
}

TEST_CASE("requests that are none end alone", "[serve]") {
  const HttpServer server = started();
  const std::string large(std::size_t{1} << 20, 'a');
  for (const std::string& bytes :
       {std::string(),
        std::string("\r\n\r\n"),
        std::string("\0\x16\x03\x01\xff", 5),
        "GET /" + large + " HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: localhost\r\nX: " + large + "\r\n\r\n",
        std::string("GET / HTTP/9.9\r\n\r\n"),
        std::string("GET /%zz?%=%00&&==& HTTP/1.1\r\nHost: localhost\r\n\r\n"),
        std::string(
            "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999999\r\n\r\n")}) {
    CHECK(said_to(server, bytes, true).find(" 200 ") == std::string::npos);
  }
  CHECK(http_get(address_of(server), "/"));
}

TEST_CASE("a request has an end, in bytes and in time", "[serve]") {
  const HttpServer server = started({.patience = std::chrono::milliseconds(300)});
  constexpr std::size_t kMuch = std::size_t{1} << 26;  // more than the kernel keeps
  const std::string begin = "GET / HTTP/1.1\r\nHost: localhost\r\n";
  const std::string piece(std::size_t{1} << 20, 'a');
  std::string lines;
  while (lines.size() < piece.size()) {
    lines += "a: b\r\n";
  }
  CHECK(sent_until_refused(server, begin + "X: ", piece, kMuch) < kMuch);
  CHECK(sent_until_refused(server, begin, lines, kMuch) < kMuch);
  const auto pause = std::chrono::milliseconds(20);
  CHECK(sent_until_refused(server, begin + "X: ", "a", kMuch, pause) < kMuch);
  CHECK(http_get(address_of(server), "/"));
}

TEST_CASE("ranges of a page are not served", "[serve]") {
  const HttpServer server = started();
  std::string ranges = "bytes=0-";
  while (ranges.size() < 8000) {
    ranges += ",0-";
  }
  const std::string said = said_to(
      server, "GET / HTTP/1.1\r\nHost: localhost\r\nX-Odd: yes\r\nRange: " + ranges + "\r\n\r\n");
  CHECK(said.find(" 200 ") != std::string::npos);
  CHECK(said.ends_with("\r\n\r\n/|yes"));
}

TEST_CASE("a server ends with those connected who never come to an end", "[serve]") {
  std::vector<std::thread> clients;
  {
    const HttpServer server = started();
    std::atomic<int> connected = 0;
    for (int i = 0; i < 4; ++i) {
      clients.emplace_back([&connected, port = server.port()] {
        const auto socket = connect_to({"127.0.0.1", port}, Nearness::this_machine, {});
        ++connected;
        while (socket && ::send(*socket, "a", 1, MSG_NOSIGNAL) == 1) {
          std::this_thread::sleep_for(std::chrono::milliseconds(20));
        }
        ::close(socket ? *socket : -1);
      });
    }
    while (connected < 4) {
      std::this_thread::yield();
    }
  }
  for (std::thread& client : clients) {
    client.join();
  }
}

TEST_CASE("silent connections keep nobody out for long", "[serve]") {
  const HttpServer server = started();
  std::vector<int> silent;
  for (int i = 0; i < 4; ++i) {
    const auto socket = connect_to({"127.0.0.1", server.port()}, Nearness::this_machine, {});
    REQUIRE(socket);
    silent.push_back(*socket);
  }
  CHECK(http_get(address_of(server), "/"));
  for (const int socket : silent) {
    ::close(socket);
  }
}

TEST_CASE("a port that is taken is told, and free after its server", "[serve]") {
  std::string address;
  {
    const HttpServer server = started();
    address = address_of(server);
    const auto second = HttpServer::start({.address = address}, {});
    CHECK(second.error().message ==
          "nothing can be served at " + address +
              ": another program has that port; port 0 takes any that is free");
  }
  CHECK(http_get(address, "/").error().message.starts_with(address + " does not answer"));
  CHECK(HttpServer::start({.address = address}, {}));
  CHECK(HttpServer::start({.address = "nowhere"}, {}).error().message.find("is no HOST:PORT") !=
        std::string::npos);
}

}  // namespace http_test
