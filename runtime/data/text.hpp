// The next token of a text: a sample is T tokens, and its labels are the same moved on by one. The
// last tenth of the tokens is for tests; token_windows.hpp says where samples begin.
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
