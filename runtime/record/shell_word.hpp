// What a shell takes as one word.
#pragma once

#include <string>

namespace troupe {

/// `word` as it is, or in quotes where a shell would take it for something else.
std::string shell_word(const std::string& word);

}  // namespace troupe
