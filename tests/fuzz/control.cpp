// What a visitor of a node can send before anybody knows who he is: a lead's first word.
#include "kernels/group_mean.hpp"
#include "runtime/cluster/node.hpp"
#include "tests/fuzz/fuzz.hpp"
#include "wire.pb.h"

#include <sys/socket.h>

#include <array>
#include <cstdlib>

namespace troupe::fuzz {

std::vector<std::string> seeds() {
  std::vector<std::string> all;
  for (const std::uint32_t pids : {0U, 3U}) {
    proto::Join join;
    join.set_version("0.1.0");
    join.set_process(1);
    join.set_processes(3);
    join.set_protocol(kWireProtocol);
    join.set_token("token");
    join.add_partners(0);
    join.set_experiment("pipeline { stages: 3 }");
    for (std::uint32_t pid = 1; pid <= pids; ++pid) {
      join.add_pids(pid);
    }
    join.add_groups(std::string(kGroupIdBytes, 'x'));
    all.push_back(
        joined({join.SerializeAsString()}));  // a word is its size in four bytes, and itself
  }
  return all;
}

}  // namespace troupe::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace troupe;
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()) != 0) {
    std::abort();
  }
  DescriptorStream visitor(ends[0], ends[0]);
  DescriptorStream node(ends[1], ends[1]);
  visitor.write({reinterpret_cast<const char*>(data), size});  // no more than a socket holds
  visitor.finish();
  const auto invitation = read_invitation(node);
  fuzz::tried(invitation && check_invitation(*invitation, "0.1.0"));
  return 0;
}
