// Blueprint -> cast: replicas of K stages, each stage with its shard and optimizer, and the servers
// that replicas share.
#pragma once

#include "apps/topologies/blueprint.hpp"
#include "runtime/system/machine.hpp"

namespace troupe {

/// The machines. Initial weights are made here. Where replicas share servers one can come back
/// (Cast::make_replacements), as long as the blueprint lives.
Cast build_cast(const Blueprint& blueprint);

}  // namespace troupe
