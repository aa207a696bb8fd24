// What is asked of an experiment before it runs, row by row, and told in a sentence where it is wrong.
// The rows of an experiment alone come before anything is opened; the others wait for what they
// compare with. What one scheme asks is its own to say (SchemeInfo::check).
#pragma once

#include "apps/topologies/blueprint.hpp"
#include "runtime/schemes/constraint.hpp"

#include <cstdint>

namespace troupe {

/// What make_blueprint knows when it asks once more.
enum class Known : std::uint8_t {
  data,
  length,    // of the run
  network,   // its layers
  schedule,  // and nothing of who has which layer
  chunks,    // the layers of each
};

/// An experiment, on the clock that it is to run on.
struct OnClock {
  const proto::Experiment& experiment;
  bool virtual_clock = false;
};

const Constraints<proto::Experiment>& experiment_checks();
const Constraints<OnClock>& clock_checks();
const Constraints<Blueprint>& blueprint_checks(Known known);

/// Whether its network has a mixture of experts.
bool has_mixture(const proto::Experiment& experiment);

/// All that shows before data and model are there. Error (usage) with key, value and what would be
/// right. `resolved` has values that are legal each by itself.
Result<void> check_experiment(const proto::Experiment& resolved);

/// Error (usage) where the experiment asks for what the run's clock cannot give. Of an experiment that
/// check_experiment accepts.
Result<void> check_clock(const proto::Experiment& resolved, bool virtual_clock);

/// The same, and whether there is an end.
Result<void> check_clock(const Blueprint& blueprint, bool virtual_clock);

/// `blueprint` has what `known` and those before it say.
Result<void> check_blueprint(const Blueprint& blueprint, Known known);

}  // namespace troupe
