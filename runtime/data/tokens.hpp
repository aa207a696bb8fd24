// The next token of a file of token numbers, as other programs write them: 16 or 32 bits a token,
// little-endian,
//
//   nanoGPT    tokens and nothing else
//   llm.c      256 numbers of 32 bits: 20240520, 1, count, 0, ...; then `count` tokens of 16 bits
//              (of its Llama files: 20240801, 7, count, 0, ...; then tokens of 32 bits)
//
// A file may be larger than memory: each sample is read when it is needed, through the system's cache
// of files. It is not mapped: where somebody shortens a mapped file, the program that looks at it dies.
#pragma once

#include "kernels/result.hpp"
#include "runtime/data/dataset.hpp"

#include <cstdint>
#include <memory>

namespace troupe::proto {
class Tokens;
}  // namespace troupe::proto

namespace troupe {

/// Opens the training file, and that of `test_path`, or takes the last share of the tokens for tests.
/// Error (data) with path and reason where a file is missing, its header is wrong, it ends within a
/// token or is too short for one sample of each part, or a token among its first million is none of the
/// vocabulary. Later ones are checked as they are read: gather() then throws std::runtime_error with
/// path, position and token, as it does where the file has become shorter.
Result<std::shared_ptr<const Dataset>> open_tokens(const proto::Tokens& options,
                                                   std::uint64_t seed);

}  // namespace troupe
