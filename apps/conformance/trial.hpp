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

/// `all`, and behind them `more`.
Assignments with(Assignments all, const Assignments& more);

/// How a run of the kit ended.
struct Trial {
  std::string trouble;  // why it did not end as it should; "" where it did
  RunResult result;
};

/// What `task` (textproto) and the assignments come to. Error as make_blueprint.
Result<Blueprint> blueprint_of(std::string_view task, const Assignments& assignments);

/// A run of a pipeline that nobody shares.
struct PipelineTrial : Trial {
  std::vector<AppliedRecord> applied;  // in the order of updates
};

/// A network of 20 layers on built-in data, 24 updates of 24 samples; times vary.
PipelineTrial run_pipeline(const Assignments& assignments);

/// The same, as far as it can be known before it is run.
Result<Blueprint> pipeline_blueprint(const Assignments& assignments);

/// The assignments that choose a scheme, and its options from "key=value" (ConformanceOptions).
/// `choice`: "pipeline.schedule=gpipe", or "pipeline.schedule.custom.name=...".
Assignments choose(const std::string& choice, const std::vector<std::string>& values);

/// The same of a scheme of `registry`, which the key `key` chooses from.
template <class Registry, class Scheme>
Assignments choose(const char* key,
                   const Registry& registry,
                   const Scheme& scheme,
                   const std::vector<std::string>& values = {}) {
  const char* const by = registry.built_in(scheme) ? "=" : ".custom.name=";
  return choose(concat(key, by, scheme.info.name), values);
}

/// Normal numbers, by name.
std::vector<float> drawn(std::int64_t n, std::uint64_t name);

}  // namespace troupe::conformance
