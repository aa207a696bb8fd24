// What `troupe data` writes of files of one's own, so that runs can read them piece by piece.
#pragma once

#include "kernels/result.hpp"

#include <string>
#include <vector>

namespace troupe {

/// tokenize TEXT OUT.bin. What was done, in a sentence.
Result<std::string> write_tokens(const std::vector<std::string>& words,
                                 const std::string& vocabulary,
                                 const std::vector<std::string>& assignments);

/// convert TABLE.csv DIR. What was done, in a sentence.
Result<std::string> write_arrays(const std::vector<std::string>& words,
                                 const std::vector<std::string>& assignments);

}  // namespace troupe
