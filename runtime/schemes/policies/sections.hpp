// A policy where chunks are cut in width (runtime/model/width.hpp).
#pragma once

#include "runtime/schemes/policies/view.hpp"

#include <cstdint>
#include <memory>
#include <vector>

namespace troupe {

/// Each chunk reads as `policy` says of the chunk that it is a part of, so that delays and views are those of the
/// pipeline that is not cut in width. `sections`: of each chunk before.
std::shared_ptr<const ViewPolicy> cut_in_width(std::shared_ptr<const ViewPolicy> policy,
                                               const std::vector<std::int32_t>& sections,
                                               std::int32_t width);

}  // namespace troupe
