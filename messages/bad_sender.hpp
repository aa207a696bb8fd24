// What only a machine can know of a message that another process has sent: that its sender cannot have meant it.
#pragma once

#include "kernels/check.hpp"
#include "messages/stamp.hpp"

#include <optional>
#include <string>

namespace troupe {

/// Thrown by a machine that is told what cannot be, before anything has changed because of it. Where the sender plays in
/// another process, that process is given up and the machine goes on; else it is a failed check as any other.
class BadSender : public ContractError {
 public:
  explicit BadSender(const std::string& why, std::optional<ActorId> who = {})
      : ContractError(why), from(who) {}

  std::optional<ActorId> from;  // where it is not the sender of the message that is being handled
};

}  // namespace troupe

/// TROUPE_BELIEVE(m.chunk == c_.chunk, "weights of chunk ", m.chunk): of a message, where TROUPE_CHECK is of ourselves.
#define TROUPE_BELIEVE(condition, ...)                          \
  do {                                                          \
    if (!(condition)) [[unlikely]]                              \
      throw ::troupe::BadSender(::troupe::concat(__VA_ARGS__)); \
  } while (false)
