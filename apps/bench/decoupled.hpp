// Two modules on two cores: what it brings that they do not wait for each other.
#pragma once

#include "apps/bench/measure.hpp"

namespace troupe {

/// Rows of `troupe bench decoupled`.
Rows decoupled_stages(double seconds);

}  // namespace troupe
