// A fingerprint of weights that does not depend on how the network was cut.
#pragma once

#include "runtime/model/chunk.hpp"

#include <memory>
#include <string>
#include <vector>

namespace troupe {

/// SHA-256 over all parameters in layer order: float32, little endian, without padding. `weights`:
/// by chunk, each of one View. Blocks until the weights are ready.
std::string weights_sha256(const std::vector<std::shared_ptr<const Chunk>>& chunks,
                           const std::vector<Weights>& weights);

/// Whether no parameter is infinite or not a number. The same arguments; blocks too.
bool all_finite(const std::vector<std::shared_ptr<const Chunk>>& chunks,
                const std::vector<Weights>& weights);

}  // namespace troupe
