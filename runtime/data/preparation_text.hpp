// What a data set has learned from its training samples, as one line of JSON for the metadata of a file of weights:
//
//   {"classes":["aster","rose"],"x_mean":[20.1,3.9],"x_factor":[0.5,1.25],...}
#pragma once

#include "kernels/result.hpp"
#include "runtime/data/preparation.hpp"

#include <string>
#include <string_view>

namespace troupe {

/// In the metadata of a safetensors file.
inline constexpr const char* kPreparationKey = "troupe.data";

std::string preparation_text(const Preparation& preparation);

/// The same the other way, exactly. Error (data): what is wrong, to stand behind a path.
Result<Preparation> parse_preparation(std::string_view text);

}  // namespace troupe
