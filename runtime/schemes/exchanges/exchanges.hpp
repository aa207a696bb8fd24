// The exchanges that come with Troupe. Private to runtime/schemes.
#pragma once

#include "runtime/schemes/exchanges/exchange.hpp"

#include <vector>

namespace troupe::exchange_schemes {

/// As runtime/CMakeLists.txt lists them: each has a function of its name in this namespace.
std::vector<ExchangeScheme> built_in();

}  // namespace troupe::exchange_schemes
