// The built-in regression and classification of any size: what a random network with two hidden
// tanh layers answers to standard normal inputs.
//
// A sample is a function of (seed, split, index). The teacher has no biases, so it is odd, and its
// inputs are symmetric: each output has mean 0. Its last layer is scaled so that each has deviation
// 1, and no class is much likelier than another.
#pragma once

#include "kernels/result.hpp"
#include "messages/proto.hpp"
#include "runtime/data/dataset.hpp"

#include <cstdint>
#include <memory>

namespace troupe {

/// Returns soon: a sample is made when it is first gathered, in double, and kept in float.
/// Error (usage) where the weights or the samples would not fit into some GiB.
Result<std::shared_ptr<const Dataset>> make_teacher(const proto::Teacher& options,
                                                    std::uint64_t seed);

}  // namespace troupe
