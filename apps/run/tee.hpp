// What the recorder gets of a run's records: counted from where the run before began, where this one goes on with
// it. Shown to a second sink first. What a copy that has become the head tells again goes to neither.
#pragma once

#include "messages/proto.hpp"
#include "runtime/record/recorder.hpp"
#include "runtime/system/driver.hpp"

#include <atomic>
#include <cstdint>
#include <optional>

namespace troupe {

class Tee final : public RecordSink {
 public:
  /// `second` may be null. Both outlive the Tee. It tells all threads how many updates are complete.
  Tee(const proto::Experiment& experiment, Recorder& recorder, RecordSink* second);

  std::optional<Diverged> on(const RecordEntry& entry, double now) override;

  std::int64_t completed() const { return completed_.load(std::memory_order_relaxed); }

 private:
  RecordEntry counted(RecordEntry entry) const;

  Recorder& recorder_;
  RecordSink* second_;
  std::atomic<std::int64_t> completed_;
  const std::int64_t updates_;       // before this run
  const std::int64_t mini_batches_;  // of each replica
  const double seconds_;
};

/// The same of how the run has ended.
void count_before(const proto::Experiment& experiment, Ending& ending);

}  // namespace troupe
