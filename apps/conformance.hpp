// Whether a scheme keeps what the runtime promises of every one of its kind: a rule of the parameter
// server, an exchange, a schedule, a weight policy (conformance/pipeline.hpp says what of the last
// three). Small networks on built-in data, in virtual time; some seconds.
#pragma once

#include "kernels/result.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace troupe {

struct ConformanceOptions {
  std::string rule;  // or exchange, schedule or policy: built in, or as it was registered
  std::vector<std::string> values{};    // "key=value": its options
  std::optional<std::int64_t> bound{};  // no gradient is applied that is more updates late
};

struct Finding {
  std::string check;  // "crash"
  bool holds = true;
  std::string what;     // one sentence, with the figures
  bool applies = true;  // false: the promise is not one that such a scheme makes; `what` says why
};

/// Of a rule, in this order:
///   identity  one replica trains; whether that is one of the plain optimizers, or how far from the
///             nearest
///   accounts  of replicas of different speeds: every gradient applied, dropped or in flight, none
///             applied twice, the version one more at each update; whether the law of lags holds
///             (lags and ages in flight are updates x (R - 1) where nobody waits and nothing is
///             dropped)
///   bound     the largest staleness applied, one replica ten times slower; held to `bound`, if any
///   crash     one or two replicas die at different moments: the run ends as it should all the same
///   replay    two equal runs: equal orders of messages, equal weights
/// Error (usage) where there is no such scheme, or its options are wrong.
Result<std::vector<Finding>> check_conformance(const ConformanceOptions& options);

}  // namespace troupe
