// What a visitor sends to one that has keys, before he has shown who he is.
#include "runtime/cluster/keys.hpp"
#include "runtime/cluster/tls.hpp"
#include "tests/fuzz/fuzz.hpp"

#include <sys/socket.h>

#include <array>
#include <cstdlib>

namespace troupe::fuzz {
namespace {

const Credentials& credentials() {
  static const Credentials all = [] {
    const Files files;
    const auto made = make_keys(files.folder() / "keys", {"alpha"});
    auto loaded = Credentials::load(files.folder() / "keys" / "alpha");
    if (!made || !loaded) {
      std::abort();
    }
    return *std::move(loaded);
  }();
  return all;
}

/// Not waited on.
std::array<int, 2> pair_of_sockets() {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()) != 0) {
    std::abort();
  }
  return ends;
}

}  // namespace

/// What the other end would say first.
std::vector<std::string> seeds() {
  const auto ends = pair_of_sockets();
  DescriptorStream node(ends[1], ends[1]);
  (void)credentials().greet(ends[0], "alpha", {.until = std::chrono::steady_clock::now()});
  std::string said(1 << 16, 0);
  said.resize(node.read(said).bytes);
  return {said};
}

}  // namespace troupe::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace troupe;
  const auto ends = fuzz::pair_of_sockets();
  DescriptorStream visitor(ends[0], ends[0]);
  visitor.write({reinterpret_cast<const char*>(data), size});  // no more than a socket holds
  visitor.finish();
  const auto stream = fuzz::credentials().welcome(ends[1], {});
  if (stream) {
    std::abort();  // nobody has shown a certificate
  }
  // To a sound greeting it has answered, and then the visitor was gone.
  fuzz::sound = stream.error().message.find("closed the connection") != std::string::npos;
  return 0;
}
