// Small runs in virtual time, as the conformance kit makes them.
#pragma once

#include "apps/run/run.hpp"
#include "kernels/result.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::conformance {

using Assignments = std::vector<std::string>;

/// What `task` (textproto) and the assignments come to. Error as make_blueprint.
Result<Blueprint> blueprint_of(std::string_view task, const Assignments& assignments);

/// A run of a pipeline that nobody shares.
struct PipelineTrial {
  std::string trouble;  // why it did not end as it should; "" where it did
  RunResult result;
  std::vector<AppliedRecord> applied;  // in the order of updates
};

/// A network of 20 layers on built-in data, 24 updates of 24 samples; times vary.
PipelineTrial run_pipeline(const Assignments& assignments);

/// The same, as far as it can be known before it is run.
Result<Blueprint> pipeline_blueprint(const Assignments& assignments);

/// The assignments that choose a scheme, and its options from "key=value" (ConformanceOptions).
/// `choice`: "pipeline.schedule=gpipe", or "pipeline.schedule.custom.name=...".
Assignments choose(const std::string& choice, const std::vector<std::string>& values);

/// Normal numbers, by name.
std::vector<float> drawn(std::int64_t n, std::uint64_t name);

}  // namespace troupe::conformance
