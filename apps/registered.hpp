// What this program has registered beside what is built in, for `--help`.
#pragma once

#include <string>

namespace troupe {

/// How each is chosen, what it does, and its options; "" where nothing has been registered.
std::string registered_help();

}  // namespace troupe
