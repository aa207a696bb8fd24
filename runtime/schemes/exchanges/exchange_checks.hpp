// What the exchanges that come with Troupe have each against an experiment. Private to
// runtime/schemes.
#pragma once

#include "kernels/result.hpp"
#include "runtime/schemes/registry.hpp"

#include <string>
#include <string_view>

namespace troupe::exchange_checks {

Result<void> synchronous(const proto::Experiment& experiment);
Result<void> averaging(const proto::Experiment& experiment);
Result<void> bmuf(const proto::Experiment& experiment);
Result<void> diloco(const proto::Experiment& experiment);
Result<void> halos(const proto::Experiment& experiment);
Result<void> gossip(const proto::Experiment& experiment);
Result<void> sandblaster(const proto::Experiment& experiment);

/// The pipeline's weights are made by steps of each chunk's own, which `server` cannot make.
Error server_makes_the_step(const proto::Experiment& experiment, std::string_view server);

/// The key of modelled time between replicas that is set; "" where none is.
std::string exchange_time_key(const proto::Experiment& experiment);

}  // namespace troupe::exchange_checks
