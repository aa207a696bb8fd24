// How long each stage was busy, and what it waited for when it was not.
#pragma once

#include "messages/archive_sized.hpp"
#include "runtime/record/progress.hpp"
#include "runtime/record/summary.hpp"
#include "runtime/system/driver.hpp"

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace troupe {

/// What a stage's seconds went to.
struct StageSpent {
  double busy = 0;
  IdleTimes idle{};
};

class StageTimes {
 public:
  /// `stage_of_actor`: by ActorId, on whose thread it works; -1: on nobody's.
  StageTimes(std::size_t stages, std::vector<std::int32_t> stage_of_actor)
      : stage_of_actor_(std::move(stage_of_actor)), stages_(stages) {}

  void add(const BusyRecord& record);
  /// While its optimizer or its predictor had their thread, a stage was not idle.
  void add(const WaitRecord& record);

  std::size_t stages() const { return stages_.size(); }

  /// Of all stages together, in seconds.
  double busy() const;
  IdleTimes idle() const;
  /// By stage, so far.
  std::vector<StageSpent> spent() const;

  /// Fills busy and idle, shares of a run of `seconds`, and locks. Idle and locks are told by stages that tell when they
  /// wait.
  void summarize(double seconds, Summary& summary) const;

  void archive(Archive& a) { archive_sized(a, stages_); }

 private:
  struct Stage {
    double busy = 0;                                   // seconds
    IdleTimes idle{};                                  // seconds
    bool tells = false;                                // when it waits
    double began = 0;                                  // its own last job
    std::vector<std::pair<double, double>> updates{};  // start and end of others' jobs since then
  };

  /// On whose thread `actor` works, or null.
  Stage* of(ActorId actor);

  std::vector<std::int32_t> stage_of_actor_;
  std::vector<Stage> stages_;
};

}  // namespace troupe
