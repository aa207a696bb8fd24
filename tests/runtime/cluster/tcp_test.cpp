// Listening and connecting: what both versions of the Internet's addresses have to do with one another.
#include "runtime/cluster/tcp.hpp"

#include "tests/support/catch.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <string>

namespace tcp_test {

using namespace troupe;

namespace {

int port_of(int socket) {
  const std::string text = near_address(socket);
  return std::stoi(text.substr(text.rfind(':') + 1));
}

}  // namespace

TEST_CASE(
    "who listens everywhere is reached by both versions of addresses, and tells each as it is",
    "[cluster]") {
  const auto listening = listen_at({"::", 0}, Nearness::anywhere);
  if (!listening) {
    WARN("a machine without IPv6: " << listening.error().message);
    return;
  }
  int reached = 0;
  for (const std::string host : {"127.0.0.1", "::1"}) {
    INFO(host);
    const auto connected = connect_to({host, port_of(*listening)}, Nearness::anywhere, {});
    if (!connected && host == "::1") {
      continue;  // no loopback of IPv6
    }
    REQUIRE(connected);
    std::string who;
    int accepted = -1;
    for (int i = 0; accepted < 0 && i < 1000; ++i) {
      accepted = accept_one(*listening, who);
      ::usleep(1000);
    }
    REQUIRE(accepted >= 0);
    CHECK(near_host(accepted) == host);
    CHECK(who.starts_with(host == "::1" ? "[::1]:" : "127.0.0.1:"));
    ::close(accepted);
    ::close(*connected);
    ++reached;
  }
  CHECK(reached >= 1);
  ::close(*listening);
}

}  // namespace tcp_test
