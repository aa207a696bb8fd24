// What `plan`, `sim` and `run` say beforehand of links that nobody waits for.
#pragma once

#include "apps/topologies/blueprint.hpp"

#include <string>

namespace troupe {

/// A warning where the run's updates are counted behind a link that no replica waits for (`halos`, `diloco` with mode
/// `decoupled`), and a message on it takes as long as thousands of mini-batches; "" else. By the means of the virtual
/// clock; bytes before a codec.
std::string links_warning(const Blueprint& blueprint);

}  // namespace troupe
