// How replicas and their stages are dealt to processes, where nothing else is said: whole replicas first, else groups of
// neighbouring stages.
#pragma once

#include <cstdint>

namespace troupe {

/// The process of each stage of each replica.
class Seats {
 public:
  Seats(std::int32_t replicas, std::int32_t stages, std::int32_t processes)
      : replicas_(replicas), stages_(stages), processes_(processes) {}

  int of(std::int32_t replica, std::int32_t stage) const {
    if (processes_ <= replicas_) {
      return replica * processes_ / replicas_;
    }
    const std::int32_t first = replica * processes_ / replicas_;
    const std::int32_t own = (replica + 1) * processes_ / replicas_ - first;
    return first + stage * own / stages_;
  }

  /// No replica has more processes than stages.
  bool fit() const { return (processes_ + replicas_ - 1) / replicas_ <= stages_; }

 private:
  std::int32_t replicas_;
  std::int32_t stages_;
  std::int32_t processes_;
};

}  // namespace troupe
