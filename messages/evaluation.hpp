// Evaluations: forward-only batches at a step whose weights are pinned for them (a Mark).
#pragma once

#include "messages/stamp.hpp"

#include <cstdint>
#include <optional>

namespace troupe {

/// The weights of step `step` are pinned everywhere or will be: evaluate them.
struct MarkDue {
  std::int64_t step = 0;
  bool last = false;
  bool own = false;  // to a source: evaluate its replica's own weights of that step

  static constexpr auto kFacts =
      said_by<DirectorRole, ShardRole, ServerRole>(is::count, is::any, is::any);

  Stamp identity() const { return {.batch = step}; }
};

/// One batch of an evaluation at step `step`, on its way through the chunks.
struct MarkBatch {
  std::int64_t step = 0;
  std::int64_t index = 0;  // of the batch within the Mark
  std::int32_t chunk = 0;  // that is to work on it
  Bundle bundle;
  Tensor labels;     // of several parts that send pieces, of one
  bool own = false;  // as MarkDue::own

  static constexpr auto kFacts = said_by<SourceRole, StageRole>(
      is::count, is::count, is::chunk, is::activation, is::labels_or_not, is::any);

  Stamp identity() const { return {.batch = step}; }
};

/// What the head made of it.
struct MarkResult {
  std::int64_t step = 0;
  std::int64_t index = 0;
  Tensor result;          // as LossRecord::result
  std::int64_t part = 0;  // of the head that has made it: of those samples that it has

  static constexpr auto kFacts = said_by<StageRole>(is::count, is::count, is::losses, is::count);

  Stamp identity() const { return {.batch = step}; }
};

/// All batches of the Mark are back; the rest is as in the EvaluationRecord that the director makes of
/// it.
struct MarkDone {
  std::int32_t replica = 0;  // that has made it
  std::int64_t step = 0;
  double loss = 0;
  double accuracy = 0;
  bool has_accuracy = false;
  std::int64_t samples = 0;
  bool last = false;  // the Mark at the run's last step
  bool own = false;   // as MarkDue::own

  static constexpr auto kFacts = said_by<SourceRole>(
      is::replica, is::count, is::any, is::any, is::any, is::amount, is::any, is::any);

  Stamp identity() const { return {.batch = step}; }

  std::optional<std::int32_t> speaks_for() const { return replica; }
};

/// The pinned step may go; where `conclude` is set, these are the run's final weights and the shard
/// sends them.
struct Release {
  std::int64_t step = 0;
  bool conclude = false;
  bool passed_over = false;  // to every replica: there is no evaluation at the step

  static constexpr auto kFacts =
      said_by<DirectorRole, SourceRole>(is::count_or_not, is::any, is::any);

  Stamp identity() const { return {.batch = step}; }
};

}  // namespace troupe
