// The exchanges that come with Troupe. Private to runtime/schemes.
#pragma once

#include "runtime/schemes/exchange.hpp"

#include <vector>

namespace troupe {

std::vector<ExchangeScheme> built_in_exchanges();

}  // namespace troupe
