// What `plan` says of the replicas and the servers that they share.
#pragma once

#include "apps/topologies/blueprint.hpp"

#include <string>

namespace troupe {

/// Who shares what, and what the servers keep.
std::string replicas_text(const Blueprint& blueprint);

/// The line of who has copies; "" where nobody has.
std::string copies_text(const proto::Experiment& experiment);

}  // namespace troupe
