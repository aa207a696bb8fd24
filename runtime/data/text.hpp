// The next token of a text: a sample is T tokens, and its labels are the same moved on by one.
//
//   tokens   |<---------------- training: the first nine tenths --------------->|<--- test --->|
//   epoch e     |offset(e)| T+1 |
//               |offset(e)| stride | T+1 |
//               |offset(e)| stride | stride | T+1 |  ...                         | T | T | ...
//
// Each epoch's windows begin at a place of its own, below the stride, by (seed, epoch). Test windows
// lie side by side and never move; what is left over at the end of either part is not used.
#pragma once

#include "kernels/result.hpp"
#include "messages/proto.hpp"
#include "runtime/data/dataset.hpp"

#include <cstdint>
#include <memory>

namespace troupe {

/// Reads one file, plain or gzip's, of at most 1 GiB. With an empty `path`, input.txt of the first of
/// the usual folders of `shakespeare` (folders.hpp) that has it. Error (data) where it is missing or
/// too short for one sample of each part, or where the vocabulary's files are malformed.
Result<std::shared_ptr<const Dataset>> open_text(const proto::Text& options, std::uint64_t seed);

}  // namespace troupe
