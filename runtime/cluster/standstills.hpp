// What machines say of themselves in a run that has stalled, between processes.
#pragma once

#include "messages/archive.hpp"
#include "runtime/system/driver.hpp"

#include <utility>
#include <vector>

namespace troupe {

using Told = std::vector<std::pair<ActorId, Standstill>>;

void archive(Archive& a, Told& told);

}  // namespace troupe
