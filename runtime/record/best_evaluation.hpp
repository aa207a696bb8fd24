// Which evaluation is the best one so far, and when to wait for a better one no longer (early stopping; Prechelt, "Early
// stopping - but when?", 1998: the criterion UP, here of evaluations in a row).
#pragma once

#include "messages/proto.hpp"
#include "messages/record.hpp"

#include <cmath>
#include <cstdint>
#include <optional>
#include <utility>

namespace troupe {

class BestEvaluation {
 public:
  struct Config {
    bool by_accuracy = false;  // else by loss
    double min_delta = 0;      // what is better by no more than this is no better
    // Evaluations in a row that are no better, after which the run ends; 0: none
    std::int64_t patience = 0;
  };

  explicit BestEvaluation(Config config) : c_(config) {}

  /// The next evaluation of the run. True where it is better than all before it: the first one is, and the first whose
  /// number is one. A step that is evaluated once more, at the end, counts once.
  bool see(const EvaluationRecord& record) {
    if (std::exchange(seen_, record.step) == record.step) {
      return false;
    }
    const double score = c_.by_accuracy ? record.accuracy : -record.loss;
    const bool better =
        !best_ || score > *best_ + c_.min_delta || (std::isnan(*best_) && !std::isnan(score));
    if (better) {
      best_ = score;
      others_ = 0;
    } else {
      ++others_;
    }
    return better;
  }

  /// Whether so many have come since the best one that the run is to end.
  bool exhausted() const { return c_.patience > 0 && others_ >= c_.patience; }

  void archive(auto& a) { a(best_, others_, seen_); }

 private:
  Config c_;
  std::optional<double> best_;        // larger is better
  std::int64_t others_ = 0;           // since then
  std::optional<std::int64_t> seen_;  // the last step
};

/// What a resolved experiment says of it.
BestEvaluation::Config best_evaluation_config(const proto::Experiment& experiment);

}  // namespace troupe
