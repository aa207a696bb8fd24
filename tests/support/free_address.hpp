// An address of this machine for a test that listens.
#pragma once

#include "runtime/cluster/tcp.hpp"
#include "tests/support/catch.hpp"

#include <unistd.h>

namespace troupe::test {

/// With a port that was free a moment ago. Fails the test where there is none.
inline HostAddress free_address() {
  const auto listening = listen_at({"127.0.0.1", 0}, Nearness::this_machine);
  REQUIRE(listening);
  const auto address = parse_address(near_address(*listening));
  ::close(*listening);
  REQUIRE(address);
  return *address;
}

}  // namespace troupe::test
