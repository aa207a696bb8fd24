// What `plan`, `sim` and `run` say beforehand of links that nobody waits for.
#pragma once

#include "apps/topologies/blueprint.hpp"

#include <string>

namespace troupe {

/// A warning where the run's updates are counted behind a link that no replica waits for (`halos`, `diloco` with mode
/// `decoupled`), and a message on it takes longer than a thousand mini-batches of the fastest replica; "" else. By the
/// mean times of the virtual clock, in seconds; a message is 4 bytes a number of the largest slice, before a codec.
std::string links_warning(const Blueprint& blueprint);

}  // namespace troupe
