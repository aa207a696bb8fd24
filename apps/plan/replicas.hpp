// What `plan` says of the replicas and the servers that they share.
#pragma once

#include "apps/topologies/blueprint.hpp"

#include <string>

namespace troupe {

/// Who shares what, and what the servers keep.
std::string replicas_text(const Blueprint& blueprint);

}  // namespace troupe
