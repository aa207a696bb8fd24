// The end of a link at which a server's answers come, at a replica's shard or at a group's server: there the
// messages of a codec (replicas.codec.down) become weights.
#pragma once

#include "messages/servers.hpp"
#include "runtime/schemes/codecs/codec.hpp"

#include <cstdint>

namespace troupe {

struct AnswerLink {
  const Codec* codec = nullptr;   // what answers come through; null: none
  bool whole = false;             // ... and of whole weights
  std::int64_t numbers = 0;       // of the slice
  Tensor has{};                   // (n) what differences count from; may be empty
  std::int64_t has_version = -1;  // of it
};

/// Puts the weights in the place of messages, which may have come from another process. ContractError where they
/// are none.
void decode(Answer& m, const AnswerLink& link);

}  // namespace troupe
