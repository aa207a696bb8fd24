// How a run ends: in order, by an interrupt or because something has gone wrong.
#pragma once

#include "messages/stamp.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace troupe {

/// The run has `batches` mini-batches; no later one will be admitted.
struct End {
  std::int64_t batches = 0;

  static constexpr auto kFacts = said_by<SourceRole, DirectorRole, ServerRole>(is::count);

  Stamp identity() const { return {.batch = batches}; }
};

/// Admit no further mini-batch.
struct Halt {
  static constexpr auto kFacts = said_by<DirectorRole, SourceRole>();

  Stamp identity() const { return {}; }
};

/// How far a server has come, or a stage (one of its chunks, and the mini-batches that it has begun), asked for by Halt.
struct Halted {
  std::int32_t chunk = 0;
  std::size_t slice = 0;
  std::int64_t step = 0;

  static constexpr auto kFacts = said_by<StageRole, ServerRole>(is::chunk, is::slice, is::count);

  Stamp identity() const { return {.batch = step}; }
};

struct Concluded {
  std::int32_t chunk = 0;
  std::size_t slice = 0;  // of a server: which; of a replica's shard 0, and all of the chunk follow
  Weights weights;

  static constexpr auto kFacts = said_by<ShardRole, ServerRole>(is::chunk, is::slice, is::some);

  Stamp identity() const { return {}; }
};

/// The buffers of a chunk after the last forward of the run.
struct Buffers {
  std::int32_t replica = 0;
  std::int32_t chunk = 0;
  std::vector<Tensor> tensors;

  static constexpr auto kFacts = said_by<StageRole>(is::replica, is::chunk, is::message);

  Stamp identity() const { return {}; }

  std::optional<std::int32_t> speaks_for() const { return replica; }
};

struct Down {
  std::string actor;
  std::string cause;
  ActorId id = 0;
  bool with_process = false;  // it was lost with the process that it played in

  static constexpr auto kFacts = stays_here();

  /// Whose end it was.
  Stamp identity() const { return {.batch = id}; }
};

struct Diverged {
  Stamp stamp;
  double loss = 0;

  static constexpr auto kFacts = stays_here();
};

}  // namespace troupe
