// Sparse Hogwild: workers on one shared buffer.
#pragma once

#include "messages/stamp.hpp"

#include <cstdint>

namespace troupe {

/// Work on your mini-batches before mini-batch `batches`.
struct Advance {
  std::int64_t batches = 0;

  static constexpr auto kFacts = said_by<RowSourceRole>(is::count);

  Stamp identity() const { return {.batch = batches}; }
};

/// They are done.
struct Advanced {
  std::int32_t replica = 0;
  std::int64_t batches = 0;

  static constexpr auto kFacts = said_by<RowWorkerRole>(is::replica, is::count);

  Stamp identity() const { return {.batch = batches}; }
};

}  // namespace troupe
