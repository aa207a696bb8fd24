// What is said of a mini-batch on its way through the stages of a replica.
#pragma once

#include "messages/stamp.hpp"

#include <cstdint>

namespace troupe {

/// The cast stands: begin.
struct Start {
  static constexpr auto kFacts = stays_here();

  Stamp identity() const { return {}; }
};

/// The first stage (where modules wait for no later one, the last; where they wait for none, each) has
/// taken a micro-batch: another may be admitted.
struct Credit {
  std::int32_t chunk = 0;  // that has taken it

  static constexpr auto kFacts = said_by<StageRole>(is::chunk);

  Stamp identity() const { return {}; }
};

/// The input of a chunk. stamp.chunk is the chunk that is to work on it.
struct Activation {
  Stamp stamp;
  Bundle bundle;

  static constexpr auto kFacts =
      said_by<SourceRole, StageRole, PredictorRole>(is::inside, is::activation).travelling();
};

/// What a head compares with.
struct Labels {
  Stamp stamp;
  Tensor labels;

  static constexpr auto kFacts = said_by<SourceRole>(is::inside, is::labels);
};

/// dL / d(output of chunk stamp.chunk).
struct ErrorSignal {
  Stamp stamp;
  Bundle bundle;

  static constexpr auto kFacts =
      said_by<StageRole, PredictorRole>(is::inside, is::error).travelling();
};

}  // namespace troupe
