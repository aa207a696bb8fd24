// What can stand behind --set, for a shell that completes it.
#pragma once

#include <string>
#include <vector>

namespace troupe {

/// "pipeline.stages=" of a value of which there are many, "pipeline.weights=stash" and the others of one that has a name.
std::vector<std::string> experiment_settings();

}  // namespace troupe
