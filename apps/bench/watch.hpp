// What the benches need to run an experiment without files.
#pragma once

#include "apps/topologies/blueprint.hpp"
#include "kernels/check.hpp"
#include "runtime/system/driver.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

namespace troupe {

/// Keeps of a run what the benches look at.
class Watch final : public RecordSink {
 public:
  /// Which chunk's updates count: the first one's, or of each mini-batch the last to be applied.
  enum class Of : std::uint8_t { first_chunk, last_to_apply };

  explicit Watch(Of of = Of::first_chunk) : of_(of) {}

  std::optional<Diverged> on(const RecordEntry& entry, double now) override {
    if (const auto* applied = std::get_if<AppliedRecord>(&entry)) {
      if (of_ == Of::last_to_apply || applied->stamp.chunk == 0) {
        applied_at_[applied->stamp.batch] = now;
        applied_.push_back(now);
      }
    } else if (const auto* busy = std::get_if<BusyRecord>(&entry)) {
      busy_.push_back(*busy);
    }
    return std::nullopt;
  }

  /// Seconds (on a GPU until it was enqueued, a few jobs ahead) a mini-batch took between the updates `first` and `last`.
  double per_batch(std::int64_t first, std::int64_t last) const {
    return (applied_at_.at(last) - applied_at_.at(first)) / static_cast<double>(last - first);
  }

  /// Busy seconds of these actors between two times.
  double busy(const std::vector<ActorId>& actors, double from, double to) const {
    double sum = 0;
    for (const BusyRecord& b : busy_) {
      const bool counts = std::find(actors.begin(), actors.end(), b.actor) != actors.end();
      sum += counts ? std::max(0.0, std::min(b.end, to) - std::max(b.start, from)) : 0;
    }
    return sum;
  }

  /// When the update of this mini-batch was applied, in seconds of the run.
  double at(std::int64_t batch) const { return applied_at_.at(batch); }

  /// Seconds between two updates, whosever they were, counted from 1.
  double between(std::int64_t from, std::int64_t to) const {
    return applied_.at(static_cast<std::size_t>(to - 1)) -
           applied_.at(static_cast<std::size_t>(from - 1));
  }

 private:
  Of of_;
  std::vector<double> applied_;
  std::map<std::int64_t, double> applied_at_;  // by mini-batch
  std::vector<BusyRecord> busy_;
};

/// What all of them keep of a run: nothing but what Watch does.
constexpr const char* kBenchRecord = " record { evaluate: false order: false gap_every: 0 }";

}  // namespace troupe
