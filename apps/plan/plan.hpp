// What can be told of an experiment before it runs, as text: stages, memory, idle time, staleness, a
// picture. The figures are those of plan/.
#pragma once

#include "apps/topologies/blueprint.hpp"

#include <string>

namespace troupe {

/// Everything: some thirty lines, and those of the layers.
std::string describe(const Blueprint& blueprint);
/// The parameters that start_from_skip leaves out of the file, as a line; "" where there are none.
std::string skipped_text(const Blueprint& blueprint);
/// What `run` begins with: the scheme, and each stage's layers.
std::string describe_briefly(const Blueprint& blueprint);

/// What looks wrong; and before it what was understood of data of one's own. `all`: not the first line alone.
std::string warnings(const Blueprint& blueprint);
std::string data_told(const Blueprint& blueprint, bool all);

}  // namespace troupe
