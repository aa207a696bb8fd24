// What the shards of one chunk say to one another in replicas without servers, and machines of a program of one's own.
#pragma once

#include "messages/stamp.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace troupe {

/// A segment of the sum of the replicas' gradients of mini-batch stamp.batch, between two shards of
/// a chunk (runtime/schemes/exchanges/all_reduce.hpp).
struct GradientPart {
  Stamp stamp;                  // replica: who sends it; micro_batch: the round
  std::int32_t segment = 0;     // which: what both of them expect in this round
  std::vector<Tensor> tensors;  // by slice

  static constexpr auto kFacts =
      said_by<ShardRole>(is::inside, is::count, is::message).travelling();

  std::optional<std::int32_t> speaks_for() const { return stamp.replica; }
};

/// A word about the one sum of a chunk's gradients that all replicas' shards make at the same time
/// (actors/exchange/group_reduction.hpp).
struct GroupTurn {
  enum class Kind : std::uint8_t {
    ready,  // to the shard that keeps the turns: this replica's gradient is there
    begin,  // of it: all are there, and nobody else uses their GPUs
    done,   // to it: this replica has the mean
  };

  Stamp stamp;  // replica: who sends it; chunk and mini-batch: of the sum
  Kind kind = Kind::ready;

  static constexpr auto kFacts = said_by<ShardRole>(is::inside, is::any);

  Stamp identity() const {
    Stamp turn = stamp;
    turn.micro_batch = static_cast<std::int32_t>(kind);
    return turn;
  }

  std::optional<std::int32_t> speaks_for() const { return stamp.replica; }
};

/// What machines of a program of one's own say to one another: an exchange to the same chunk's shard of
/// another replica, an extension to its machines (runtime/system/extension.hpp).
struct Note {
  Stamp stamp;  // replica: who sends it
  std::string what{};
  std::vector<double> numbers{};
  std::vector<Tensor> tensors{};  // take the modelled time of their bytes

  static constexpr auto kFacts =
      said_by<ShardRole, ExtensionRole>(is::inside, is::text, is::any, is::message).travelling();

  std::optional<std::int32_t> speaks_for() const { return stamp.replica; }
};

/// A shard has applied the last mini-batch of its replica, which ends on its own: replicas that share a
/// buffer, or that have peers.
struct Finished {
  std::int32_t replica = 0;
  std::int32_t chunk = 0;
  std::int64_t updates = 0;  // of the shared buffer, by all replicas; with peers the shard's own

  static constexpr auto kFacts = said_by<ShardRole>(is::replica, is::chunk, is::count);

  Stamp identity() const { return {.replica = replica, .chunk = chunk, .batch = updates}; }

  std::optional<std::int32_t> speaks_for() const { return replica; }
};

}  // namespace troupe
