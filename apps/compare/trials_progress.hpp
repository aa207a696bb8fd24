// What a person sees of a comparison that goes on: a line for each trial that ends, and below them one that says where
// the trials under way stand.
#pragma once

#include "apps/cli/status_line.hpp"
#include "apps/compare/report.hpp"

#include <chrono>
#include <cstddef>
#include <map>
#include <mutex>
#include <string>

namespace troupe {

/// What trials tell may come from several threads at once.
class TrialsProgress {
 public:
  /// `comparison`: its schemes and seeds. `recalled`: trials that need not be made. All three outlive this.
  TrialsProgress(StatusLine& line, const Comparison& comparison, std::size_t recalled);

  void on_way(const Trial& trial, const TrialStanding& standing);
  void on_finish(const Trial& trial);

  /// Of the trial under way that was begun first, in the order of seeds and schemes; "" of none. `spent`: seconds.
  ///
  ///   [3/12] weights=stash seed 1: epoch 1.20, 40 % done, loss 0.3120; 1 more beside it; eta 02:10
  std::string standing_text(double spent);

 private:
  using Clock = std::chrono::steady_clock;

  std::string locked_standing_text(double spent) const;
  std::string name_of(std::size_t scheme, std::uint64_t seed) const;

  StatusLine& line_;
  const Comparison& comparison_;
  const std::size_t recalled_;
  const std::size_t all_;
  const Clock::time_point start_ = Clock::now();
  std::mutex mutex_;
  std::size_t done_;
  std::map<std::pair<std::uint64_t, std::size_t>, TrialStanding> under_way_;  // by seed and scheme
};

}  // namespace troupe
