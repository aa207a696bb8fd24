#include "actors/exchange/built_in.hpp"

#include <utility>

namespace troupe {

Result<void> register_peer_exchanges() {
  static const Result<void> made = []() -> Result<void> {
    for (ExchangeScheme& scheme : peer_exchanges::built_in()) {
      TROUPE_TRY(register_built_in_exchange(std::move(scheme)));
    }
    return {};
  }();
  return made;
}

}  // namespace troupe
