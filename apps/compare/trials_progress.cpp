#include "apps/compare/trials_progress.hpp"

#include "apps/cli/text.hpp"
#include "kernels/check.hpp"
#include "kernels/wording.hpp"

#include <cmath>

namespace troupe {

TrialsProgress::TrialsProgress(StatusLine& line, const Comparison& comparison, std::size_t recalled)
    : line_(line),
      comparison_(comparison),
      recalled_(recalled),
      all_(comparison.schemes.schemes.size() * static_cast<std::size_t>(comparison.seeds)),
      done_(recalled) {}

std::string TrialsProgress::name_of(std::size_t scheme, std::uint64_t seed) const {
  return concat(comparison_.schemes.schemes[scheme].label, " seed ", seed);
}

std::string TrialsProgress::standing_text(double spent) {
  const std::lock_guard lock(mutex_);
  return locked_standing_text(spent);
}

std::string TrialsProgress::locked_standing_text(double spent) const {
  if (under_way_.empty()) {
    return "";
  }
  double work = static_cast<double>(done_ - recalled_);  // of this process, in trials
  for (const auto& [trial, standing] : under_way_) {
    work += standing.share;
  }
  const auto& [trial, standing] = *under_way_.begin();
  std::string text = fill_in("[{}/{}] {}: epoch {}, {}",
                             done_,
                             all_,
                             name_of(trial.second, trial.first),
                             number(standing.epochs, "%.2f"),
                             number(100 * standing.share, "%.0f %% done"));
  if (std::isfinite(standing.loss)) {
    text += ", loss " + number(standing.loss);
  }
  if (under_way_.size() > 1) {
    text += concat("; ", under_way_.size() - 1, " more beside it");
  }
  const std::string eta = eta_text(work / static_cast<double>(all_ - recalled_), spent);
  return text + (eta.empty() ? "" : "; " + eta);
}

void TrialsProgress::on_way(const Trial& trial, const TrialStanding& standing) {
  const std::lock_guard lock(mutex_);
  under_way_[{trial.seed, trial.scheme}] = standing;
  if (line_.due()) {
    line_.show(locked_standing_text(std::chrono::duration<double>(Clock::now() - start_).count()));
  }
}

void TrialsProgress::on_finish(const Trial& trial) {
  const std::lock_guard lock(mutex_);
  under_way_.erase({trial.seed, trial.scheme});
  std::string text = concat("[", ++done_, "/", all_, "] ", name_of(trial.scheme, trial.seed), ": ");
  if (trial.outcome != Outcome::finished) {
    line_.note(text + trial.cause);
    return;
  }
  const Measure measure = measure_of(comparison_.schemes.schemes);
  if (!trial.curve.empty()) {
    const double value = measured(trial.curve.back(), measure);
    text += measure == Measure::accuracy ? percent(value) : concat("test loss ", value);
    text += ", ";
  }
  line_.note(text + concat(grouped(trial.summary.updates),
                           trial.summary.updates == 1 ? " update, " : " updates, ",
                           duration(trial.summary.seconds)));
}

}  // namespace troupe
