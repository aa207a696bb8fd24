// What a program of one's own has registered: for `explain` and `--help`.
#pragma once

#include "runtime/schemes/registry.hpp"

#include <string>
#include <utility>
#include <vector>

namespace troupe {

struct RegisteredScheme {
  std::string key;  // "optimizer": chosen by optimizer.custom.name, with optimizer.custom.values
  const SchemeInfo* info;  // lives as long as the program
};

/// Kind by kind, in the order of registration.
std::vector<RegisteredScheme> registered_schemes();

/// Each option with what it is: {"beta", "decay of the velocity (0.9; from 0 to 1)"}.
std::vector<std::pair<std::string, std::string>> option_texts(const SchemeInfo& scheme);

/// For --help: what is registered, with its options; "" where nothing is.
std::string registered_help();

}  // namespace troupe
