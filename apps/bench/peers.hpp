// Training steps here and in PyTorch, in turn: the same network, batch and one thread each.
#pragma once

#include "apps/bench/measure.hpp"
#include "kernels/result.hpp"

#include <string>

namespace troupe {

/// A row a network. `python`: the interpreter, found as a shell would. `seconds`: of each row,
/// about. Error (usage) where it cannot be started, has no torch, or goes wrong later.
Result<Rows> against_peers(const std::string& python, double seconds);

}  // namespace troupe
