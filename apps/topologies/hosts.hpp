// Which host of a run with faults plays which machine (clock.faults.hosts).
#pragma once

#include "apps/topologies/blueprint.hpp"
#include "runtime/schemes/constraint.hpp"
#include "runtime/system/faults.hpp"
#include "runtime/system/machine.hpp"

#include <cstdint>
#include <string>

namespace troupe {

/// The rows that an experiment has to pass.
Constraints<proto::Experiment> fault_checks();

/// Why a replica that has died cannot come back, behind those words; empty: it can.
std::string stays_dead(const proto::Experiment& experiment);

/// How many hosts there are.
std::int64_t hosts_of(const proto::Experiment& experiment);

/// Error (usage) where the machines do not fit on so many.
Result<void> check_hosts(const Blueprint& blueprint);

/// Of a blueprint that check_hosts() accepts.
Faults make_faults(const Blueprint& blueprint, const Cast& cast);

}  // namespace troupe
