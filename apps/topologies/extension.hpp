// The extension of an experiment: machines of a program of one's own that join the cast.
#pragma once

#include "apps/topologies/roster.hpp"
#include "runtime/schemes/constraint.hpp"
#include "runtime/system/extension.hpp"

namespace troupe {

/// The registered extension that a sound experiment has chosen; null: none.
const ExtensionScheme* extension_of(const proto::Experiment& experiment);

/// Error (usage) where the extension is not registered, its options are wrong, or the experiment is not
/// one that it goes with.
Result<void> check_extension(const proto::Experiment& experiment);

/// Lets the chosen extension's machines join `cast`, which is otherwise complete.
void join_extension(Cast& cast, const Blueprint& blueprint, const Roster& who);

}  // namespace troupe
