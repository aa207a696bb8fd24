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

namespace rule_schemes {

RuleScheme staleness_aware() {
  return {.info = {.name = "staleness_aware",
                   .summary =
                       "like asgd, but the learning rate of a gradient is divided by its staleness",
                   .paper = "Zhang, Gupta, Lian & Liu, IJCAI 2016, arXiv:1511.05950"},
          .equations =
              "w <- w - eta / max(1, tau) opt(g); of several: the rate is the mean of eta / "
              "max(1, tau), the gradient the mean weighed by it",
          .memory = "the optimizer's moments",
          .scale = [](const RuleContext&) { return std::make_unique<ByStaleness>(); },
          .bears_delay = true,
          .by_number = true};
}

}  // namespace rule_schemes

}  // namespace troupe
