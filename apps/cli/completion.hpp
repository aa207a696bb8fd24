// What shells and `man` know of the command line, made from the verbs' own declarations.
#pragma once

#include "apps/cli/options.hpp"

#include <string>
#include <vector>

namespace troupe {

/// A script that `shell` ("bash", "zsh" or "fish") reads: verbs, options and their values, presets, and the keys and schemes
/// behind --set and --vary.
std::string completion_script(const std::string& shell, const std::vector<Syntax>& verbs);

/// The manual's page, as troff's man macros have it.
std::string man_page(const ProgramText& program, const std::vector<Syntax>& verbs);

}  // namespace troupe
