#include "runtime/cluster/sender.hpp"

#include "messages/wire.hpp"

#include <optional>
#include <variant>

namespace troupe {
namespace {

/// The replica that a message says it is from, where it says so.
template <class M>
std::optional<std::int32_t> named_sender(const M& m) {
  if constexpr (std::is_same_v<M, Upload>) {
    return m.far ? std::nullopt : std::optional(m.stamp.replica);  // else it is the group
  } else if constexpr (std::is_same_v<M, Note> || std::is_same_v<M, GradientPart>) {
    return m.stamp.replica;
  } else if constexpr (std::is_same_v<M, Finished> || std::is_same_v<M, MarkDone> ||
                       std::is_same_v<M, Buffers>) {
    return m.replica;
  } else {
    return {};
  }
}

}  // namespace

void check_sender(const Message& message, std::int32_t replica) {
  const auto named = std::visit([](const auto& m) { return named_sender(m); },
                                static_cast<const Message::variant&>(message));
  const auto* upload = std::get_if<Upload>(&message);
  if (upload && upload->far != (replica < 0)) {
    throw WireError("an Upload has come of a machine that sends none of its kind");
  }
  // A machine of an extension is nobody's, and its notes carry whatever it likes.
  if (replica >= 0 && named && *named != replica) {
    throw WireError(concat("a machine of replica ",
                           replica,
                           " speaks in the name of replica ",
                           *named,
                           ": ",
                           message_name(message)));
  }
}

}  // namespace troupe
