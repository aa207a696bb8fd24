// The weights that an experiment names to begin with.
#pragma once

#include "runtime/checkpoint/weights.hpp"

#include <string>
#include <vector>

namespace troupe {

/// What the experiment's start_from (`from`) has for the parameters and buffers of `network`, in the order of weight_specs; empty
/// where nothing is named, so that they are initialised by seed. A file that the network has made on this host (Network::start)
/// stands for one of the same file name, and is removed. `skip`: start_from_skip. Errors name start_from or start_from_skip: a file
/// that is missing, does not fit the network, or has numbers that are not finite.
Result<std::vector<ParameterValues>> read_starting_weights(const std::string& from,
                                                           const std::vector<std::string>& skip,
                                                           const Network& network);

}  // namespace troupe
