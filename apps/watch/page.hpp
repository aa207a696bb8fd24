// The page that `troupe watch` serves and `troupe report` writes: one HTML file with its own style and program. Its program asks
// for /runs and /run, unless the lines are in the page already.
#pragma once

#include "apps/watch/watched.hpp"

#include <string>
#include <vector>

namespace troupe {

/// As it is served.
std::string live_page();

/// With all that is told of `runs` in it. Of each kind of line, and of each shard's, module's and replica's, at most 300 stay, evenly
/// spread, with the last one among them. Error as Watched::read.
Result<std::string> page_of(const std::vector<Watched>& runs);

}  // namespace troupe
