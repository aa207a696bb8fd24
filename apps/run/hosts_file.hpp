// The file that `troupe run --hosts` names: where the other processes of a run play.
#pragma once

#include "kernels/result.hpp"
#include "runtime/cluster/lead.hpp"

#include <string>
#include <vector>

namespace troupe {

/// A line a process: "beta:7000" is a node that listens there; "beta" or "me@beta", and behind it where the program
/// lies on that host if it is not on the PATH there, is one that ssh starts. What follows a # does not count.
/// Error (usage): FILE:LINE and a sentence.
Result<std::vector<HostPlace>> read_hosts_file(const std::string& path);

}  // namespace troupe
