#include "runtime/cluster/answer.hpp"

#include "kernels/wording.hpp"
#include "messages/wire.hpp"
#include "runtime/cluster/control_stream.hpp"
#include "runtime/cluster/local_socket.hpp"
#include "runtime/cluster/run_keys.hpp"
#include "runtime/cluster/tcp.hpp"
#include "wire.pb.h"

namespace troupe {
namespace {

/// A process that means well names no other sockets. No name of a host: the channels' one thread would wait for its answer.
bool can_be_connected_to(const std::string& endpoint, bool on_hosts) {
  const auto at = parse_address(endpoint);
  return on_hosts ? at && is_ip(at->host) && at->port > 0 : is_local_endpoint(endpoint);
}

/// This program ends with it: what is no kind could be taken for success.
ErrorKind known_kind(std::uint32_t exit_code) {
  constexpr auto kFirst = static_cast<std::uint32_t>(ErrorKind::usage);
  constexpr auto kLast = static_cast<std::uint32_t>(ErrorKind::lost);
  return exit_code < kFirst || exit_code > kLast ? ErrorKind::lost
                                                 : static_cast<ErrorKind>(exit_code);
}

}  // namespace

Result<void> check_answer(const proto::Joined& joined, const Asked& asked) {
  const auto lost = [&](const auto&... words) {
    return Error{ErrorKind::lost, concat(asked.name, ' ', words...)};
  };
  if (joined.exit_code() != 0) {
    return Error{known_kind(joined.exit_code()),
                 concat(asked.name, ": ", printable(joined.refusal(), kStrangersSentenceMax))};
  }
  if (joined.version() != asked.version || joined.protocol() != kWireProtocol ||
      joined.cast() != asked.cast) {
    return lost("is of version ",
                printable(joined.version()),
                " and makes another cast of the experiment; this one is of version ",
                asked.version);
  }
  if (!asked.instructions.empty() && joined.instructions() != asked.instructions) {
    return usage_error(
        "{}: its CPU kernels use the instructions of {}, and another process whose results must be "
        "equal uses those of {}; set TROUPE_ISA=v3 where each process is started",
        asked.name,
        printable(joined.instructions(), kStrangersSentenceMax),
        asked.instructions);
  }
  for (const int other : asked.partners) {
    const auto named = joined.endpoints().find(static_cast<std::uint32_t>(other));
    if (named == joined.endpoints().end()) {
      return lost("names no socket for process ", other);
    }
    if (!can_be_connected_to(named->second, asked.on_hosts)) {
      return lost("names no socket that others could connect to");
    }
  }
  if (asked.on_hosts && joined.key().size() != kRunKeySize) {
    return lost("has shown no key for its channels");
  }
  return {};
}

}  // namespace troupe
