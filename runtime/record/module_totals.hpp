// What is told of the modules of a decoupled network: what their updates are made of, how good their predictors are, and
// how their updates lie to backpropagation's.
#pragma once

#include "messages/archive.hpp"
#include "messages/record.hpp"
#include "runtime/record/progress.hpp"
#include "runtime/record/summary.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace troupe {

class ModuleTotals {
 public:
  using ByChunk = std::map<std::int32_t, Summary::Module>;
  using Predictors = std::map<std::string, Summary::Predictor>;  // by name

  explicit ModuleTotals(std::int32_t chunks) : chunks_(chunks) {}

  void add(const SignalRecord& record);
  void add(const PredictionRecord& record);
  /// Of an input that was drawn.
  void add(const InputRecord& record);
  /// The angle in degrees; empty where one of the two is no direction: no update was made, or by an estimate of zero.
  std::optional<double> add(const AngleRecord& record);

  /// Fills in what a person is told of all modules but the last, since begin_window().
  void tell(ProgressLine& line) const;

  /// Since begin_window().
  const ByChunk& window() const { return window_; }

  const Predictors& predictors() const { return of_window_; }

  void begin_window();

  void summarize(Summary& summary) const;

  void archive(Archive& a) { a(all_, of_last_line_, window_, of_window_); }

 private:
  std::int32_t chunks_;
  ByChunk all_;
  Predictors of_last_line_;
  ByChunk window_;  // not their angles
  Predictors of_window_;
};

}  // namespace troupe
