// Sandblaster: a coordinator without parameters, shards that keep vectors.
#pragma once

#include "messages/stamp.hpp"

#include <compare>
#include <cstdint>
#include <vector>

namespace troupe {

/// Names a vector that every shard keeps its part of.
enum class VectorKind : std::uint8_t {
  weights,    // w: the last point that was accepted
  point,      // x: where the gradient is asked for; immutable once a version has been given out
  gradient,   // at w
  sum,        // the gradient at x, once all portions are in
  direction,  // of descent
  step,       // s of the pair `slot`
  change,     // y of the pair `slot`
};

struct VectorName {
  VectorKind kind = VectorKind::weights;
  std::int64_t slot = 0;  // of the history; step and change only

  auto operator<=>(const VectorName&) const = default;
};

/// One operation on a vector, which every shard does to its part.
struct VectorCommand {
  enum class Kind : std::uint8_t {
    copy,        // to = a
    scale,       // to *= factor
    add_scaled,  // to += factor a
    dot,         // a number: to . a
  };
  Kind kind = Kind::copy;
  VectorName to{};
  VectorName a{};
  float factor = 1;
};

/// Carried out in order. Where one of them writes `point`, the point is that of version `version`
/// from then on, and the portions before that are void.
struct VectorCommands {
  std::uint64_t request = 0;  // echoed
  std::int64_t version = 0;
  std::vector<VectorCommand> commands;

  static constexpr auto kFacts = stays_here();

  Stamp identity() const { return {.batch = version}; }
};

struct VectorReply {
  std::uint64_t request = 0;
  std::int32_t shard = 0;
  std::vector<double> dots;  // this shard's parts, in the order of the dot commands

  static constexpr auto kFacts = stays_here();

  Stamp identity() const { return {.batch = static_cast<std::int64_t>(request)}; }
};

/// Samples [first, last) at the point of version `version`.
struct Portion {
  Stamp stamp;  // batch: of the evaluation; micro_batch: the portion; replica: the worker
  std::int64_t version = 0;
  std::int64_t first = 0;
  std::int64_t last = 0;
  bool test = false;  // of the test data, forward only
  float share = 0;    // of the batch: what the mean gradient of these samples counts

  static constexpr auto kFacts = stays_here();
};

struct PortionDone {
  Stamp stamp;
  std::int64_t version = 0;
  Tensor result;  // as LossRecord::result

  static constexpr auto kFacts = stays_here();
};

/// Asks a shard for its part of the point.
struct PointPull {
  Ref<PortionWorkerRole> from;
  std::int64_t version = 0;

  static constexpr auto kFacts = stays_here();

  Stamp identity() const { return {.batch = version}; }
};

struct PointReply {
  std::int32_t shard = 0;
  std::int64_t version = 0;
  Tensor values;  // (n)

  static constexpr auto kFacts = stays_here();

  Stamp identity() const { return {.batch = version}; }
};

/// A portion's mean gradient, this shard's part of it.
struct PartialGradient {
  std::int64_t version = 0;
  std::int32_t portion = 0;
  float share = 0;  // as Portion::share
  Tensor gradient;  // (n)

  static constexpr auto kFacts = stays_here();

  Stamp identity() const { return {.batch = version, .micro_batch = portion}; }
};

/// All portions of version `version` are in `sum`.
struct GradientReady {
  std::int32_t shard = 0;
  std::int64_t version = 0;

  static constexpr auto kFacts = stays_here();

  Stamp identity() const { return {.batch = version}; }
};

}  // namespace troupe
