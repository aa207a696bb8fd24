// placement.on: which process plays a stage or a server, by the names that the roster has.
#pragma once

#include "kernels/result.hpp"
#include "messages/proto.hpp"

#include <optional>
#include <string>
#include <vector>

namespace troupe {

/// The entries of placement.on, each "NAMES=PROCESS"; the first that fits counts.
class PlacementNames {
 public:
  /// Error (usage) where an entry is none.
  static Result<PlacementNames> parse(const proto::Experiment& experiment);

  bool empty() const { return entries_.empty(); }

  /// The process of the stage or server `name`; empty: no entry fits. An entry that fits counts as used.
  std::optional<int> of(const std::string& name);

  /// After all stages and servers have been asked for, `others` being all other names and where they play. Error
  /// (usage) where an entry names a process that is not there, fits nothing, or names what plays elsewhere with another.
  struct Other {
    std::string name;
    int process;
  };

  Result<void> check(int processes, const std::vector<Other>& others) const;

 private:
  struct Entry {
    std::string text;
    std::string names;  // as fnmatch has them
    int process = 0;
    bool used = false;
  };

  std::vector<Entry> entries_;
};

/// Without process `process`, whose number the next one has then, and so on. Error (usage) where an entry names it.
Result<void> leave_out(proto::Experiment& experiment, int process);

/// Error (usage) as PlacementNames::parse.
Result<void> check_placement_names(const proto::Experiment& experiment);

}  // namespace troupe
