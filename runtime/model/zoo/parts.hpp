// What the families of networks share. Private to runtime/model.
#pragma once

#include "kernels/check.hpp"
#include "runtime/model/layers.hpp"
#include "runtime/model/zoo.hpp"

#include <string>
#include <string_view>

namespace troupe::zoo {

/// "model: what".
Error refused(const std::string& what);

/// Error (usage) where samples are not images (H, W, C) of at least `side` squared.
Result<void> needs_images(const Network& network, std::string_view model, std::int64_t side);

/// Error (usage) where samples are not tokens.
Result<void> needs_tokens(const Network& network, std::string_view model);

/// Of the dense layer that ends a network, on all of what comes before.
DenseOptions head(const Network& network, std::int64_t outputs);

}  // namespace troupe::zoo
