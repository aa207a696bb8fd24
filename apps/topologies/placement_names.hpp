// Keys that say a number of stages and servers, by the names that the roster has: placement.on, which process plays one, and
// placement.copies, how many copies it has.
#pragma once

#include "kernels/result.hpp"
#include "messages/proto.hpp"

#include <optional>
#include <string>
#include <vector>

namespace troupe {

/// The entries of such a key, each "NAMES=NUMBER"; the first that fits counts.
class PlacementNames {
 public:
  /// Error (usage) where an entry is none.
  static Result<PlacementNames> on(const proto::Experiment& experiment);
  static Result<PlacementNames> copies(const proto::Experiment& experiment);

  bool empty() const { return entries_.empty(); }

  /// The number of the stage or server `name`; empty: no entry fits. An entry that fits counts as used.
  std::optional<int> of(const std::string& name);

  /// An entry that fits no name that was asked for; empty: there is none.
  std::optional<std::string> unused() const;

  /// Of placement.on, after all stages and servers have been asked for, `others` being all other names and where they play.
  /// Error (usage) where an entry names a process that is not there, fits nothing, or names what plays elsewhere with
  /// another.
  struct Other {
    std::string name;
    int process;
  };

  Result<void> check(int processes, const std::vector<Other>& others) const;

 private:
  struct Entry {
    std::string text;
    std::string names;  // as fnmatch has them
    int number = 0;
    bool used = false;
  };

  template <class Texts>
  static Result<PlacementNames> parse(const Texts& texts,
                                      int least,
                                      int most,
                                      Error (*wrong)(const std::string&));

  std::vector<Entry> entries_;
};

/// Without process `process`, whose number the next one has then, and so on. Error (usage) where an entry names it.
Result<void> leave_out(proto::Experiment& experiment, int process);

/// Error (usage) as PlacementNames::on.
Result<void> check_placement_names(const proto::Experiment& experiment);

}  // namespace troupe
