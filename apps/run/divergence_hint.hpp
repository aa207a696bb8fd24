// What to try when training has diverged.
#pragma once

#include "messages/proto.hpp"

#include <string>

namespace troupe {

/// "hint: try ...": only keys and values that the resolved experiment could have in place of its own.
/// `staleness`: what was measured, as the run's summary tells it.
std::string divergence_hint(const proto::Experiment& experiment, const std::string& staleness);

}  // namespace troupe
