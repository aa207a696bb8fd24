#include "runtime/cluster/sender.hpp"

#include "kernels/wording.hpp"
#include "messages/messages.hpp"
#include "messages/wire.hpp"

#include <optional>

namespace troupe {
namespace {

/// The replica that a message says it is from, where it says so.
template <class M>
std::optional<std::int32_t> named_sender(const M& m) {
  if constexpr (requires { m.speaks_for(); }) {
    return m.speaks_for();
  } else {
    return {};
  }
}

}  // namespace

void check_sender(const Message& message, std::int32_t replica) {
  const auto named = visit([](const auto& m) { return named_sender(m); }, message);
  const auto* upload = get_if<Upload>(&message);
  if (upload && upload->far != (replica < 0)) {
    throw WireError("an Upload has come of a machine that sends none of its kind");
  }
  // A machine of an extension is nobody's, and its notes carry whatever it likes.
  if (replica >= 0 && named && *named != replica) {
    throw WireError(fill_in("a machine of replica {} speaks in the name of replica {}: {}",
                            replica,
                            *named,
                            message_name(message)));
  }
}

}  // namespace troupe
