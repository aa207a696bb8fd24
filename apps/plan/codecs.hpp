// What `plan` says of the codecs of replicas and servers (replicas.codec).
#pragma once

#include "apps/topologies/blueprint.hpp"

#include <string>

namespace troupe {

/// What messages to servers and back are made of, and what is kept for them; "" where they are the numbers.
std::string codecs_text(const Blueprint& blueprint);

}  // namespace troupe
