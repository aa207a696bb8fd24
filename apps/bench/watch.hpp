// What the benches need to run an experiment without files.
#pragma once

#include "apps/topologies/blueprint.hpp"
#include "kernels/check.hpp"
#include "messages/experiment.hpp"
#include "runtime/system/driver.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

namespace troupe {

/// Keeps of a run what the benches look at.
class Watch final : public RecordSink {
 public:
  std::optional<Diverged> on(const RecordEntry& entry, double now) override {
    if (const auto* applied = std::get_if<AppliedRecord>(&entry)) {
      if (applied->stamp.chunk == 0) {
        applied_at_[applied->stamp.batch] = now;
      }
    } else if (const auto* busy = std::get_if<BusyRecord>(&entry)) {
      busy_.push_back(*busy);
    }
    return std::nullopt;
  }

  /// Seconds (on a GPU until it was enqueued, a few jobs ahead) a mini-batch took between the updates `first` and `last` of chunk 0.
  double per_batch(std::int64_t first, std::int64_t last) const {
    return (applied_at_.at(last) - applied_at_.at(first)) / static_cast<double>(last - first);
  }

  /// Busy seconds of these actors between two times, by actor.
  std::vector<double> busy(const std::vector<ActorId>& actors, double from, double to) const {
    std::vector<double> sums(actors.size());
    for (const BusyRecord& b : busy_) {
      const auto at = std::find(actors.begin(), actors.end(), b.actor);
      if (at != actors.end()) {
        sums[static_cast<std::size_t>(at - actors.begin())] +=
            std::max(0.0, std::min(b.end, to) - std::max(b.start, from));
      }
    }
    return sums;
  }

  /// When chunk 0's update of this mini-batch was applied, in seconds of the run.
  double at(std::int64_t batch) const { return applied_at_.at(batch); }

 private:
  std::map<std::int64_t, double> applied_at_;  // by mini-batch
  std::vector<BusyRecord> busy_;
};

/// Of an experiment that is right.
inline Blueprint bench_blueprint(const std::string& text) {
  auto e = parse_experiment(text, "bench");
  TROUPE_CHECK(e, e.error().message);
  auto resolved = resolve(*e);
  TROUPE_CHECK(resolved, resolved.error().message);
  auto b = make_blueprint(*e);
  TROUPE_CHECK(b, b.error().message);
  return *b;
}

}  // namespace troupe
