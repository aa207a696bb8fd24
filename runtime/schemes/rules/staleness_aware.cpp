// staleness_aware: each gradient's learning rate divided by its own lag. Zhang, Gupta, Lian & Liu,
// IJCAI 2016, arXiv:1511.05950.
#include "runtime/schemes/rules/parts.hpp"

#include <algorithm>

namespace troupe {
namespace {

class ByStaleness final : public Scale {
 public:
  double rate_share(const Contribution& of, const Update& /*update*/) override {
    return 1.0 / static_cast<double>(std::max<std::int64_t>(1, of.lag));
  }
};

}  // namespace

std::unique_ptr<Scale> staleness_division() {
  return std::make_unique<ByStaleness>();
}

}  // namespace troupe
