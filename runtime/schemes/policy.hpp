// The names that users know for what is done about stale weights: each is a preset of a View and an
// optimizer step.
#pragma once

#include "experiment.pb.h"
#include "kernels/result.hpp"
#include "runtime/schemes/schedule.hpp"
#include "runtime/schemes/view.hpp"

#include <string_view>
#include <vector>

namespace troupe {

struct WeightScheme {
  std::string_view name;  // as in pipeline.weights
  ViewKind view;
  std::string_view summary;  // what it does
  std::string_view
      reads;  // which weights forward and backward read, as formulas in b, d = K-1-k, k
  std::string_view staleness;  // what remains
  std::string_view memory;     // copies of a chunk's weights
  std::string_view paper;
};

const std::vector<WeightScheme>& weight_schemes();
const WeightScheme& weight_scheme(std::string_view name);  // ContractError where there is none

/// The View of a chosen policy: its scheme's, but for PipeMare without T2, which reads as latest does.
ViewKind view_of(const proto::WeightPolicy& weights);

/// Error (usage) with the reason where the policy makes no sense with this schedule or optimizer.
Result<void> check_policy(const proto::Experiment& experiment, const Schedule& schedule);

}  // namespace troupe
