// What a comparison ends with: a table for a person, and files for other programs.
#pragma once

#include "apps/compare/statistics.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace troupe {

struct Comparison {
  std::string clock;  // "virtual" or "real"
  int seeds = 1;
  std::optional<double> target;  // of the measure
  std::vector<Varied> varied;
  Schemes schemes;
  std::vector<Trial> trials;  // as run_trials returns them
  // What follows from these, by judge():
  Measure measure = Measure::accuracy;
  std::optional<Common> common;
  std::vector<Figures> figures;    // by scheme
  std::vector<std::string> notes;  // what is not on equal terms

  std::span<const Trial> trials_of(std::size_t scheme) const {
    const auto count = static_cast<std::size_t>(seeds);
    return std::span(trials).subspan(scheme * count, count);
  }
};

/// Fills in what follows from schemes and trials.
void judge(Comparison& comparison);

/// A row a scheme; below it refused combinations, failures and notes. Columns that would be empty
/// are left out.
std::string table_text(const Comparison& comparison);

/// A line a scheme, RFC 4180; what was not measured is empty. apps/docs/compare.md has the columns.
std::string csv_text(const Comparison& comparison);

/// A line a trial: scheme, experiment, the varied keys, seed, outcome, updates, epochs, seconds, train_loss,
/// test_loss, accuracy, staleness_mean, staleness_max, gap, bytes_sent, weights_sha256.
std::string runs_text(const Comparison& comparison);

/// Greater seeds stand in JSON as text: most of its readers take numbers for doubles, which end here.
inline constexpr std::uint64_t kSeedOfDigits = std::uint64_t{1} << 53;

/// The same and every trial, in one object. On the virtual clock two comparisons alike are equal
/// bytes.
std::string json_text(const Comparison& comparison);

/// A line an evaluation, of finished and diverged trials: scheme, seed, updates, epochs, seconds,
/// train_loss, test_loss, accuracy.
std::string curves_text(const Comparison& comparison);

}  // namespace troupe
