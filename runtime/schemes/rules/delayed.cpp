// delayed: the replicas in cyclic order, so that every gradient but the first R - 1 is R - 1 updates late.
// Agarwal & Duchi 2011, arXiv:1104.5525.
#include "runtime/schemes/rules/parts.hpp"

#include <algorithm>

namespace troupe {
namespace {

class Cyclic final : public Admission {
 public:
  /// Next is whoever has had the fewest of its pushes decided, the first of them; who is gone and has
  /// left nothing is passed over.
  Choice choose(const std::vector<Arrival>& waiting,
                const Ledger& ledger,
                double /*now*/) const override {
    std::int64_t least = std::numeric_limits<std::int64_t>::max();
    std::int32_t next = -1;
    for (std::size_t r = 0; r < ledger.replicas.size(); ++r) {
      const Standing& standing = ledger.replicas[r];
      if ((standing.alive || standing.waiting > 0) && standing.clock < least) {
        least = standing.clock;
        next = static_cast<std::int32_t>(r);
      }
    }
    const auto found = std::find_if(
        waiting.begin(), waiting.end(), [next](const Arrival& a) { return a.replica == next; });
    Choice choice;
    if (found != waiting.end()) {
      choice.take = {static_cast<std::size_t>(found - waiting.begin())};
    }
    return choice;
  }
};

}  // namespace

std::unique_ptr<Admission> cyclic() {
  return std::make_unique<Cyclic>();
}

namespace rule_schemes {

RuleScheme delayed() {
  return {
      .info =
          {.name = "delayed",
           .summary =
               "the replicas push in cyclic order, so that the staleness is R - 1 after the first "
               "R - 1 pushes",
           .paper = "Agarwal & Duchi, NIPS 2011, arXiv:1104.5525"},
      .equations = "w <- w - eta opt(g(w of R - 1 updates ago))",
      .memory = "the optimizer's moments",
      .admission = [](const RuleContext&) { return cyclic(); },
      .applies_each = true,
      .counts_each = true};
}

}  // namespace rule_schemes

}  // namespace troupe
