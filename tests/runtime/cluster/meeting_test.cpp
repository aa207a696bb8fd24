// Who comes to the lead: strangers, however many, keep out nobody who is awaited.
#include "runtime/cluster/meeting.hpp"

#include "tests/support/catch.hpp"
#include "tests/support/free_address.hpp"

#include <unistd.h>

#include <chrono>
#include <vector>

namespace meeting_test {

using namespace troupe;
using namespace troupe::test;
using namespace std::chrono_literals;

namespace {

constexpr int kStrangers = 200;

Patience for_a_while(std::chrono::seconds most) {
  return {.until = std::chrono::steady_clock::now() + most};
}

}  // namespace

TEST_CASE("those who say nothing keep nobody out who is awaited") {
  const HostAddress address = free_address();
  auto meeting = Meeting::open(address, 2, nullptr, [](const std::string&) {});
  REQUIRE(meeting);
  std::vector<int> silent;
  for (int i = 0; i < kStrangers; ++i) {
    const auto socket = connect_to(address, Nearness::this_machine, for_a_while(9s));
    REQUIRE(socket);
    silent.push_back(*socket);
  }
  // Less than a stranger's own time.
  auto come = come_to(address, 1, 2, nullptr, for_a_while(9s), {});
  REQUIRE(come);
  const auto arrived = (*meeting)->await(1, for_a_while(9s));
  CHECK(arrived);
  for (const int socket : silent) {
    ::close(socket);
  }
  (*meeting)->close();
}

}  // namespace meeting_test
