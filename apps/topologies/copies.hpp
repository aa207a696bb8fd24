// Of how many stages and servers there are copies (placement.copies, replicas.copies), and what they ask of an experiment.
#pragma once

#include "apps/topologies/blueprint.hpp"
#include "apps/topologies/placement_names.hpp"
#include "runtime/schemes/constraint.hpp"

#include <string>

namespace troupe {

/// Whether anything has copies, and how that is put: "2 of server-*, 3 of stage-0"; or "".
std::string copies_words(const proto::Experiment& experiment);

/// How many copies the experiment gives to whom.
class CopyNames {
 public:
  explicit CopyNames(const proto::Experiment& experiment);

  /// Of the stage or server `name`, with the first; 1: there is no other.
  int of(const std::string& name);

  std::optional<std::string> unused() const { return names_.unused(); }

 private:
  PlacementNames names_;
  int of_servers_;
};

/// The rows that an experiment has to pass.
Constraints<proto::Experiment> copy_checks();

/// The row that is asked when stages and servers are known.
Constraint<Blueprint> copies_of_somebody();

}  // namespace troupe
