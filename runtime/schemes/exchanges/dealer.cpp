#include "runtime/schemes/exchanges/dealer.hpp"

#include "kernels/check.hpp"
#include "kernels/wording.hpp"

#include <cstddef>

namespace troupe {

PortionDealer::PortionDealer(std::int32_t portions, std::int32_t backup)
    : portions_(static_cast<std::size_t>(portions)), backup_(backup), left_(portions) {}

std::optional<std::int32_t> PortionDealer::deal(std::int32_t worker) {
  const auto give = [&](std::size_t portion) {
    portions_[portion].workers.insert(worker);
    return static_cast<std::int32_t>(portion);
  };
  for (std::size_t p = 0; p < portions_.size(); ++p) {
    if (!portions_[p].done && portions_[p].workers.empty()) {
      return give(p);
    }
  }
  for (std::size_t p = 0; p < portions_.size(); ++p) {
    const Portion& portion = portions_[p];
    if (!portion.done && static_cast<std::int32_t>(portion.workers.size()) <= backup_ &&
        !portion.workers.contains(worker)) {
      return give(p);
    }
  }
  return std::nullopt;
}

bool PortionDealer::finish(std::int32_t worker, std::int32_t portion) {
  Portion& finished = portions_.at(static_cast<std::size_t>(portion));
  TROUPE_CHECK(finished.workers.erase(worker) == 1,
               fill_in("[PortionDealer] worker {} was not given portion {}", worker, portion));
  if (finished.done) {
    return false;
  }
  finished.done = true;
  --left_;
  return true;
}

void PortionDealer::lose(std::int32_t worker) {
  for (Portion& portion : portions_) {
    portion.workers.erase(worker);
  }
}

}  // namespace troupe
