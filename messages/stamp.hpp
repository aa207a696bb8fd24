// Who and what: the identity that every message about a mini-batch carries, and the words for
// weights at a step.
#pragma once

#include "kernels/tensor.hpp"
#include "messages/facts.hpp"

#include <compare>
#include <cstdint>
#include <vector>

namespace troupe {

struct Stamp {
  std::int32_t replica = 0;
  std::int32_t chunk = 0;
  std::int64_t batch = 0;        // mini-batch b
  std::int32_t micro_batch = 0;  // j

  auto operator<=>(const Stamp&) const = default;

  static constexpr auto kFacts = bounded(is::replica, is::chunk, is::batch, is::round);
};

/// How a View moves from the slice of its step.
enum class ReachKind : std::uint8_t {
  none,    // the slice itself
  linear,  // w - eta h d: `horizon` more steps of the optimizer's present direction d (SpecTrain)
  geometric,  // w - eta S_h v, S_h = gamma + ... + gamma^h: the velocity coasts and fades (msnag)
  displacement,  // w + h delta, h < 0: back along the smoothed displacement (PipeMare)
};

struct Reach {
  ReachKind kind = ReachKind::none;
  std::int32_t horizon = 0;  // steps; negative where the past is reconstructed

  auto operator<=>(const Reach&) const = default;

  static constexpr auto kFacts = bounded(is::reach, is::any);
};

/// At which weights: the slice of `step`, moved by `reach`.
struct View {
  std::int64_t step = 0;
  Reach reach;

  auto operator<=>(const View&) const = default;

  static constexpr auto kFacts = bounded(is::count_or_not, is::inside);
};

/// An immutable part of a chunk's parameters. Its step counts this replica's own mini-batches; its
/// version counts the updates of the shard at the top of the chain. With one replica they are
/// equal.
struct Slice {
  Tensor values{};  // flat (n)
  std::int64_t step = 0;
  std::int64_t version = 0;
  double rate = 0;  // of the update that follows this slice
  Reach reach{};

  static constexpr auto kFacts =
      bounded(is::weights, is::count_or_not, is::count_or_not, is::rate, is::inside);
};

/// A chunk's slices, all of one View.
using Weights = std::vector<Slice>;

/// What one micro-batch read.
struct Read {
  std::int32_t micro_batch = 0;
  View forward{};
  View backward{};
  std::int64_t forward_version = 0;
  std::int64_t backward_version = 0;

  static constexpr auto kFacts =
      bounded(is::count, is::inside, is::inside, is::count_or_not, is::count_or_not);
};

}  // namespace troupe
