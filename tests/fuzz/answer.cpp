// What one that was invited to a run can answer, between hosts and on one machine (the first byte says which).
#include "runtime/cluster/answer.hpp"

#include "messages/wire.hpp"
#include "runtime/cluster/control_stream.hpp"
#include "tests/fuzz/fuzz.hpp"
#include "wire.pb.h"

#include <sys/socket.h>

#include <array>
#include <cstdlib>

namespace troupe::fuzz {

std::vector<std::string> seeds() {
  std::vector<std::string> all;
  for (const bool on_hosts : {false, true}) {
    proto::Joined joined;
    joined.set_version("0.1.0");
    joined.set_protocol(kWireProtocol);
    joined.set_cast("cast");
    joined.set_key(std::string(64, 'a'));
    (*joined.mutable_endpoints())[0] = on_hosts ? "10.0.0.3:7000" : "@troupe-0123";
    (*joined.mutable_endpoints())[1] = on_hosts ? "[::1]:7001" : "@troupe-4567";
    all.push_back((on_hosts ? "1" : "0") + fuzz::joined({joined.SerializeAsString()}));
  }
  return all;
}

}  // namespace troupe::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace troupe;
  if (size == 0) {
    return 0;
  }
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()) != 0) {
    std::abort();
  }
  DescriptorStream node(ends[0], ends[0]);
  DescriptorStream lead(ends[1], ends[1]);
  node.write({reinterpret_cast<const char*>(data) + 1, size - 1});  // no more than a socket holds
  node.finish();
  proto::Joined joined;
  if (read_message(lead, joined) != Talk::done) {
    return 0;
  }
  const Result<void> believed = check_answer(joined,
                                             {.partners = {0, 1},
                                              .name = "process 2",
                                              .version = "0.1.0",
                                              .cast = "cast",
                                              .on_hosts = data[0] == '1'});
  fuzz::tried(believed);
  if (believed && (joined.endpoints().count(0) == 0 || joined.endpoints().count(1) == 0)) {
    std::abort();  // a channel to it would be missing
  }
  for (const auto& [other, endpoint] : joined.endpoints()) {
    if (believed && other < 2 && endpoint.find('\0') != endpoint.npos) {
      std::abort();  // the system would see another one
    }
  }
  if (!believed && believed.error().kind != ErrorKind::lost && joined.exit_code() > 5) {
    std::abort();  // the program would end with it
  }
  return 0;
}
