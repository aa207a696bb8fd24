// What a person sees of a run while it goes on: on a terminal one line that is rewritten, else a
// line now and then.
#pragma once

#include "messages/record.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>

namespace troupe {

struct ProgressLine {
  std::int64_t step = 0;
  std::optional<double> loss{};      // mean since the last line; empty: no losses came since
  std::optional<double> accuracy{};  // likewise, 0..1
  double samples_per_second = 0;     // of the run's clock
  double tokens_per_second = 0;      // likewise; 0: targets are no tokens
  std::int64_t staleness_p50 = 0;    // versions
  std::int64_t staleness_max = 0;
  std::optional<double> busy{};  // 0..1, mean over the stages
  IdleTimes idle{};              // likewise, while they lacked something
  // Share of the updates of modules but the last that were made by estimates; empty: none could be
  std::optional<double> synthetic{};
  std::optional<double> angle{};  // degrees, mean over modules but the last of the last measured
  /// Of estimates of error signals since the last line, means over the predictors; empty: there are none.
  std::optional<double> estimate_error{};   // in variances of the signal
  std::optional<double> estimate_cosine{};  // with the signal
  double seconds = 0;                       // of the run's clock
};

/// Used by one thread. Seconds to come are told from the wall clock, whatever clock the run has.
class Progress {
 public:
  struct Options {
    bool terminal = false;
    std::int64_t steps = 0;  // of the whole run; 0 where that is not known
    double seconds = 0;      // of the run's clock after which it ends; 0: no limit
  };

  Progress(std::ostream& out, Options options);

  /// True where a terminal should see something new even though no line is due.
  bool stale() const;

  /// A line that stays where it is not a terminal, and is rewritten where it is.
  void step(const ProgressLine& line);
  /// Where a run of known length has more than twenty, those that are a twentieth of it apart, and the last one, which
  /// finish() shows where the run ends early.
  void evaluation(std::int64_t step, double loss, std::optional<double> accuracy);
  /// A line that stays.
  void note(const std::string& text);
  /// The rewritten line stays as it is.
  void finish();

 private:
  using Clock = std::chrono::steady_clock;

  void settle();

  std::ostream& out_;
  Options options_;
  Clock::time_point start_ = Clock::now();
  Clock::time_point painted_;
  std::int64_t evaluated_ = 0;  // the step of the last evaluation that was shown
  std::string hidden_;          // the line of a later one that was not; empty: there is none
  bool open_ = false;           // a line stands that may be rewritten
};

/// "eta 03:12": the share of the run that `line` says is done took `spent` seconds, and the rest will
/// take as long a share; "" where nothing tells how long the run is.
std::string eta_text(const Progress::Options& options, const ProgressLine& line, double spent);
/// What a line on stderr may have and still be rewritten: a longer one would take two rows.
std::size_t terminal_columns();
/// "9.8k", "1.25M": three digits.
std::string short_number(double number);
/// "9.8k samples/s"; of text "1.25M tokens/s".
std::string rate_text(double samples_per_second, double tokens_per_second);
/// "03:12", "1:02:03".
std::string clock_text(double seconds);

}  // namespace troupe
