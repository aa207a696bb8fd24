#include "runtime/system/control_groups.hpp"

#include <fstream>
#include <string>

namespace troupe {

void for_each_group(std::string_view controller,
                    const std::function<void(const std::filesystem::path&, bool unified)>& visit) {
  const std::string wanted = "," + std::string(controller) + ",";
  std::ifstream groups("/proc/self/cgroup");  // "0::/a/b" (version 2), "N:memory:/a/b" (version 1)
  for (std::string line; std::getline(groups, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == line.npos || second == line.npos) {
      continue;
    }
    const std::string kind = line.substr(first + 1, second - first - 1);
    const bool unified = kind.empty();
    if (!unified && ("," + kind + ",").find(wanted) == line.npos) {
      continue;
    }
    std::filesystem::path top = "/sys/fs/cgroup";
    if (!unified) {
      top /= controller;
    }
    // In a container its own group can be at the top, whatever its name is outside.
    visit(top, unified);
    for (std::filesystem::path at = line.substr(second + 1); at.has_relative_path();
         at = at.parent_path()) {
      visit(top / at.relative_path(), unified);
    }
  }
}

}  // namespace troupe
