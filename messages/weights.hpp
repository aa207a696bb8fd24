// What stages and the shards of their chunks say of weights and gradients, and shards to one another to clip them.
#pragma once

#include "messages/stamp.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace troupe {

/// Asks for the weights of a View; answered when its step exists.
struct Pull {
  Ref<LearnerRole> from;
  std::uint64_t request = 0;  // echoed, so that an answer finds its question
  View view;
  bool pinned = false;  // for a Mark: the step is pinned until the Director releases it
  std::optional<std::size_t> slice{};  // this slice alone (a tied parameter); none: all
  bool own = false;  // with `pinned`: the replica's own weights, where an evaluation reads others

  static constexpr auto kFacts = said_by<StageRole, PredictorRole>(
      is::sender, is::any, is::inside, is::any, is::slice, is::any);

  Stamp identity() const { return {.batch = view.step}; }
};

struct PullReply {
  std::uint64_t request = 0;
  std::int32_t chunk = 0;
  Weights weights;

  static constexpr auto kFacts = said_by<ShardRole>(is::any, is::chunk, is::some);

  Stamp identity() const { return {}; }
};

/// The gradient of mini-batch stamp.batch, already divided by the number of micro-batches.
struct Push {
  Ref<LearnerRole> from;
  Stamp stamp;
  std::uint64_t sequence = 0;    // of this sender, from 1: a shard drops what it has seen
  double read_time = 0;          // when the oldest forward began, by the sender's clock
  std::vector<Tensor> gradient;  // by slice
  std::vector<Read> reads;       // by micro-batch
  Weights forward;  // what its first forward read, where the gap is to be measured; else empty

  static constexpr auto kFacts = said_by<StageRole, PredictorRole>(
      is::sender, is::inside, is::one_or_more, is::seconds, is::weights, is::inside, is::inside);
};

/// The share of a tied parameter's gradient that a chunk other than its owner has for mini-batch
/// stamp.batch; stamp.chunk is the sender's. Or that of an alternate: another stage of the same chunk (pipeline.copies).
struct TiedPush {
  Ref<StageRole> from;
  Stamp stamp;
  std::uint64_t sequence = 0;  // as Push::sequence
  std::size_t slice = 0;       // of the owner
  Tensor gradient;

  static constexpr auto kFacts =
      said_by<StageRole>(is::sender, is::inside, is::one_or_more, is::slice, is::weights);
};

/// A shard's sums of squares, to the first of those that clip together, which decides for all.
struct Norms {
  Ref<ShardRole> from;
  Stamp stamp;
  std::vector<double> norms;  // by tensor, in layer order

  static constexpr auto kFacts = said_by<ShardRole>(is::sender, is::inside, is::any);
};

/// The verdict on mini-batch `batch`, the same at every shard.
struct Decide {
  std::int64_t batch = 0;
  double gradient_scale = 1;

  static constexpr auto kFacts = said_by<ShardRole>(is::count, is::share);

  Stamp identity() const { return {.batch = batch}; }
};

}  // namespace troupe
