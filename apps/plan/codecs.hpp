// What `plan` says of the codecs of replicas and servers (replicas.codec).
#pragma once

#include "apps/topologies/blueprint.hpp"

#include <string>

namespace troupe {

/// What messages to servers and back are made of, and what is kept for them; "" where they are the numbers.
std::string codecs_text(const Blueprint& blueprint);

/// What replicas without servers send one another for each mini-batch; "" where that is not known.
std::string told_text(const Blueprint& b);

}  // namespace troupe
