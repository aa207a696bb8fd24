// A scheme is run once a seed, and what it tells on the way is kept.
#pragma once

#include "apps/compare/schemes.hpp"
#include "runtime/record/summary.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace troupe {

/// One evaluation. What was not measured is NaN.
struct CurvePoint {
  std::int64_t updates = 0;
  double epochs = 0;
  double seconds = 0;     // of the run's clock
  double train_loss = 0;  // mean of the losses that came since the point before
  double test_loss = 0;
  double accuracy = 0;  // of the test data, 0..1
};

/// Where a trial under way stands.
struct TrialStanding {
  double share = 0;  // of the trial that is done, 0..1, as far as its length is known
  double epochs = 0;
  double loss = 0;  // mean of the training losses that came since the last standing; NaN of none
};

enum class Outcome : std::uint8_t {
  finished,
  diverged,     // a loss that is not finite
  failed,       // something else ended it
  interrupted,  // or never begun
};

struct Trial {
  std::size_t scheme = 0;  // index
  std::uint64_t seed = 0;
  Outcome outcome = Outcome::interrupted;
  int exit_code = 0;    // as `troupe sim` would end with
  std::string cause{};  // one sentence where outcome is not finished
  Summary summary{};
  std::vector<CurvePoint> curve{};
};

struct TrialOptions {
  bool virtual_clock = true;
  int seeds = 1;                      // of each scheme: its own, its own + 1, ...
  int jobs = 1;                       // trials at once, a thread each; on the real clock 1
  std::function<bool()> interrupted;  // from any thread; true: end all that runs
  std::function<void(const Trial&)> on_finish;  // one call at a time, from any thread
  /// Fills in a trial that need not be made, and says so; asked of every trial, before one is made.
  std::function<bool(Trial&)> recall{};
  std::function<void()> on_begin{};  // after the last question, before the first trial
  std::function<void(const Trial&, const TrialStanding&)>
      on_way{};                                   // from any thread, several at once
  std::chrono::milliseconds standing_every{200};  // of each trial
};

/// By scheme, then seed. Seeds are run one after the other, each with all schemes, so that what an
/// interrupt leaves is as even as it can be. On the virtual clock a trial has the same bits whatever
/// runs beside it; nothing that schemes share is written, but the pool of buffers, which has a lock.
std::vector<Trial> run_trials(const std::vector<Contender>& schemes, const TrialOptions& options);

}  // namespace troupe
