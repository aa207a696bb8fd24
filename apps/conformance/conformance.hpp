// Whether a scheme keeps what the runtime promises of every one of its kind: a rule of the parameter
// server, an exchange, a schedule, a weight policy, an optimizer, a codec, a layer, a decoupled scheme, an
// extension (conformance/kits.hpp says what). Small networks on built-in data, in virtual time; some seconds.
#pragma once

#include "kernels/result.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace troupe {

struct ConformanceOptions {
  std::string rule;  // or exchange, schedule, policy, ...: built in, or as it was registered
  std::vector<std::string> values{};    // "key=value": its options
  std::optional<std::int64_t> bound{};  // no gradient is applied that is more updates late
};

struct Finding {
  std::string check;  // "crash"
  bool holds = true;
  std::string what;     // one sentence, with the figures
  bool applies = true;  // false: the promise is not one that such a scheme makes; `what` says why
};

/// In the order that conformance/kits.hpp has for its kind of scheme.
/// Error (usage) where there is no such scheme, or its options are wrong.
Result<std::vector<Finding>> check_conformance(const ConformanceOptions& options);

}  // namespace troupe
