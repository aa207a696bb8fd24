#include "actors/exchange/built_in.hpp"

#include <utility>

namespace troupe {

Result<void> register_peer_exchanges() {
  static const Result<void> made = []() -> Result<void> {
    for (ExchangeScheme& scheme : peer_exchanges::built_in()) {
      if (auto known = register_built_in_exchange(std::move(scheme)); !known) {
        return known;
      }
    }
    return {};
  }();
  return made;
}

}  // namespace troupe
