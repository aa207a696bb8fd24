#include "runtime/record/module_totals.hpp"

#include "kernels/check.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

namespace troupe {

void ModuleTotals::add(const SignalRecord& record) {
  for (ByChunk* const modules : {&all_, &window_}) {
    Summary::Module& module = (*modules)[record.stamp.chunk];
    ++module.mini_batches;
    module.synthetic += record.synthetic ? 1 : 0;
  }
}

void ModuleTotals::add(const PredictionRecord& record) {
  const char* const what = record.of == PredictionOf::input ? "input-predictor-" : "predictor-";
  of_window_[concat(what, record.stamp.chunk)].add(record);
}

void ModuleTotals::add(const InputRecord& record) {
  for (ByChunk* const modules : {&all_, &window_}) {
    Summary::Module& module = (*modules)[record.stamp.chunk];
    ++module.inputs;
    module.reused += record.drawn == Drawn::again ? 1 : 0;
    module.replaced += record.replaced;
  }
}

std::optional<double> ModuleTotals::add(const AngleRecord& record) {
  Summary::Module& module = all_[record.stamp.chunk];
  const double lengths = std::sqrt(record.update * record.truth);
  if (!(lengths > 0) || !std::isfinite(lengths)) {
    return {};
  }
  ++module.angles;
  module.last = std::acos(std::clamp(record.product / lengths, -1.0, 1.0)) * 180 / std::numbers::pi;
  module.degrees += module.last;
  return module.last;
}

/// The last module has the loss: its update is by no estimate, and beside it every mean would look better.
void ModuleTotals::tell(ProgressLine& line) const {
  double batches = 0;
  double synthetic = 0;
  double angles = 0;
  double degrees = 0;
  const auto hidden = [&](std::int32_t chunk) {
    return chunk + 1 < chunks_;
  };
  for (const auto& [chunk, module] : window_) {
    batches += hidden(chunk) ? static_cast<double>(module.mini_batches) : 0;
    synthetic += hidden(chunk) ? static_cast<double>(module.synthetic) : 0;
  }
  for (const auto& [chunk, module] : all_) {
    angles += hidden(chunk) && module.angles > 0 ? 1 : 0;
    degrees += hidden(chunk) && module.angles > 0 ? module.last : 0;
  }
  if (batches > 0) {
    line.synthetic = synthetic / batches;
  }
  if (angles > 0) {
    line.angle = degrees / angles;
  }
  line.estimate_error = mean_of_estimates(of_window_, &Summary::Predictor::relative_error);
  line.estimate_cosine = mean_of_estimates(of_window_, &Summary::Predictor::cosine);
}

void ModuleTotals::begin_window() {
  window_.clear();
  of_last_line_ = std::exchange(of_window_, {});
}

void ModuleTotals::summarize(Summary& summary) const {
  summary.modules = all_;
  summary.predictors = of_last_line_;
}

}  // namespace troupe
