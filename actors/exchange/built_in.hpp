// The exchanges between peers that come with Troupe. The runtime knows no actor, so their classes cannot
// stand in its table from the start.
#pragma once

#include "kernels/result.hpp"
#include "runtime/schemes/exchanges/exchange.hpp"

#include <vector>

namespace troupe {

namespace peer_exchanges {

/// As actors/CMakeLists.txt lists them: each has a function of its name in this namespace.
std::vector<ExchangeScheme> built_in();

}  // namespace peer_exchanges

/// Makes them known to the runtime: before an experiment is checked, or what there is is listed. The
/// second time does nothing. Error (usage) where a program of one's own has taken a name.
Result<void> register_peer_exchanges();

}  // namespace troupe
