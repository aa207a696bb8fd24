// What the lead believes of a process that was invited, and what it says of the others.
#include "runtime/cluster/answer.hpp"

#include "messages/wire.hpp"
#include "runtime/cluster/tcp.hpp"
#include "tests/support/catch.hpp"
#include "wire.pb.h"

#include <string>
#include <tuple>
#include <vector>

namespace answer_test {

using namespace troupe;
using Catch::Matchers::Contains;

namespace {

Asked asked_for(bool on_hosts) {
  return {.partners = {0, 1},
          .name = "process 2",
          .version = "0.1.0",
          .cast = "cast",
          .on_hosts = on_hosts};
}

proto::Joined right_answer(bool on_hosts) {
  proto::Joined joined;
  joined.set_version("0.1.0");
  joined.set_protocol(kWireProtocol);
  joined.set_cast("cast");
  joined.set_key(on_hosts ? std::string(64, 'a') : "");
  for (const std::uint32_t other : {0U, 1U}) {
    (*joined.mutable_endpoints())[other] = on_hosts ? "10.0.0.3:7000" : "@troupe-01";
  }
  return joined;
}

}  // namespace

TEST_CASE("who answers rightly takes part", "[cluster]") {
  for (const bool on_hosts : {false, true}) {
    CHECK(check_answer(right_answer(on_hosts), asked_for(on_hosts)));
    proto::Joined more = right_answer(on_hosts);
    (*more.mutable_endpoints())[2] = "nobody asks for this one";
    CHECK(check_answer(more, asked_for(on_hosts)));
  }
}

TEST_CASE("who cannot take part says why, with a kind that there is", "[cluster]") {
  const std::vector<std::tuple<std::uint32_t, ErrorKind>> cases{{2, ErrorKind::usage},
                                                                {3, ErrorKind::data},
                                                                {5, ErrorKind::lost},
                                                                {1, ErrorKind::lost},
                                                                {6, ErrorKind::lost},
                                                                {256, ErrorKind::lost},
                                                                {0xffffffff, ErrorKind::lost}};
  for (const auto& [code, kind] : cases) {
    proto::Joined joined;
    joined.set_exit_code(code);
    joined.set_refusal(
        "no\x1b"
        "data");
    const Result<void> said = check_answer(joined, asked_for(true));
    CAPTURE(code);
    REQUIRE(!said);
    CHECK(said.error().kind == kind);
    CHECK(said.error().message == "process 2: no?data");
  }
}

TEST_CASE("an answer that cannot be right is not believed", "[cluster]") {
  const auto refusal = [](const proto::Joined& joined, bool on_hosts) {
    const Result<void> said = check_answer(joined, asked_for(on_hosts));
    return said ? std::string() : said.error().message;
  };
  for (const bool on_hosts : {false, true}) {
    proto::Joined joined = right_answer(on_hosts);
    joined.set_version("0.2.0");
    CHECK_THAT(refusal(joined, on_hosts), Contains("is of version 0.2.0"));
    joined = right_answer(on_hosts);
    joined.set_protocol(kWireProtocol + 1);
    CHECK_THAT(refusal(joined, on_hosts), Contains("is of version"));
    joined = right_answer(on_hosts);
    joined.set_cast("other");
    CHECK_THAT(refusal(joined, on_hosts), Contains("makes another cast"));
    for (const std::string endpoint :
         {"", "beta:7000", "10.0.0.3", "10.0.0.3:0", "*:7000", "/tmp/x", "@"}) {
      joined = right_answer(on_hosts);
      (*joined.mutable_endpoints())[1] = endpoint;
      CAPTURE(endpoint);
      CHECK_THAT(refusal(joined, on_hosts), Contains("names no socket"));
    }
    joined = right_answer(on_hosts);
    (*joined.mutable_endpoints())[0] += std::string(300, '0');
    CHECK_THAT(refusal(joined, on_hosts), Contains("names no socket"));
    joined = right_answer(on_hosts);
    (*joined.mutable_endpoints())[0].insert(on_hosts ? 8 : 9, 1, '\0');  // behind it C sees nothing
    CHECK_THAT(refusal(joined, on_hosts), Contains("names no socket"));
    CHECK_THAT(refusal(right_answer(!on_hosts), on_hosts), Contains("names no socket"));
    for (const std::uint32_t left_out : {0U, 1U}) {
      joined = right_answer(on_hosts);
      joined.mutable_endpoints()->erase(left_out);
      CHECK_THAT(refusal(joined, on_hosts),
                 Contains("names no socket for process " + std::to_string(left_out)));
      Asked newcomer = asked_for(on_hosts);  // who speaks with the lead alone
      newcomer.partners = {0};
      CHECK(static_cast<bool>(check_answer(joined, newcomer)) == (left_out == 1));
    }
  }
  proto::Joined keyless = right_answer(true);
  keyless.set_key("short");
  CHECK_THAT(refusal(keyless, true), Contains("has shown no key"));
}

TEST_CASE("who computes by other instructions has no copies of what another has", "[cluster]") {
  proto::Joined joined = right_answer(true);
  joined.set_instructions("x86-64-v3");
  Asked asked = asked_for(true);
  CHECK(check_answer(joined, asked));
  asked.instructions = "x86-64-v3";
  CHECK(check_answer(joined, asked));
  asked.instructions = "x86-64-v4";
  const Result<void> said = check_answer(joined, asked);
  REQUIRE(!said);
  CHECK(said.error().kind == ErrorKind::usage);
  CHECK_THAT(said.error().message,
             Contains("process 2: its CPU kernels use the instructions of x86-64-v3") &&
                 Contains("TROUPE_ISA=v3"));
}

TEST_CASE("addresses as numbers have nothing behind them", "[cluster]") {
  for (const char* const address : {"10.0.0.3", "::1"}) {
    CHECK(is_ip(address));
    CHECK(is_host(address));
    for (const std::string& more :
         {std::string(1, '\0'), std::string("\0;ls", 4), std::string(" ")}) {
      CHECK_FALSE(is_ip(address + more));
      CHECK_FALSE(is_host(address + more));
    }
  }
}

}  // namespace answer_test
