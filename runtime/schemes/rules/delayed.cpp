// delayed: the replicas in cyclic order, so that every gradient but the first R - 1 is R - 1 updates late.
// Agarwal & Duchi 2011, arXiv:1104.5525.
#include "runtime/schemes/rules/parts.hpp"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <vector>

namespace troupe {
namespace {

class Cyclic final : public Admission {
 public:
  /// Next is whoever has had the fewest of its pushes decided, the first of them; who is gone and has
  /// left nothing is passed over.
  Choice choose(const std::vector<Arrival>& waiting,
                const Ledger& ledger,
                double /*now*/) const override {
    if (const auto left = left_by_an_earlier_life(waiting, ledger)) {
      return {.take = {*left}};
    }
    const std::int32_t next = ledger.replicas.slowest_to_come();
    if (next < 0 || ledger.replicas[static_cast<std::size_t>(next)].waiting == 0) {
      return {};
    }
    const auto found = std::ranges::find(waiting, next, &Arrival::replica);
    Choice choice;
    if (found != waiting.end()) {
      choice.take = {static_cast<std::size_t>(found - waiting.begin())};
    }
    return choice;
  }

  std::int64_t answers_by(const Ledger& /*ledger*/) const override { return 0; }

 private:
  /// The turns of a replica that has come back are those of its new pushes, so that one from before has none: it is next at once.
  static std::optional<std::size_t> left_by_an_earlier_life(const std::vector<Arrival>& waiting,
                                                            const Ledger& ledger) {
    if (static_cast<std::int64_t>(waiting.size()) <= ledger.replicas.waiting()) {
      return {};
    }
    std::vector<std::int64_t> come(ledger.replicas.size());
    for (const Arrival& arrival : waiting) {
      ++come.at(static_cast<std::size_t>(arrival.replica));
    }
    for (std::size_t i = 0; i < waiting.size(); ++i) {
      const auto who = static_cast<std::size_t>(waiting[i].replica);
      if (come[who] > ledger.replicas[who].waiting) {
        return i;
      }
    }
    return {};
  }
};

}  // namespace

std::unique_ptr<Admission> cyclic() {
  return std::make_unique<Cyclic>();
}

namespace rule_schemes {

RuleScheme delayed() {
  return {.info = {.name = "delayed",
                   .summary = "the replicas push in cyclic order, so that the staleness is R - 1 "
                              "after the first R - 1 pushes",
                   .paper = "Agarwal & Duchi, NIPS 2011, arXiv:1104.5525"},
          .equations = "w <- w - eta opt(g(w of R - 1 updates ago))",
          .memory = "the optimizer's moments",
          .admission = [](const RuleContext&) { return cyclic(); },
          .applies_each = true,
          .counts_each = true};
}

}  // namespace rule_schemes

}  // namespace troupe
