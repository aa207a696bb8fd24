// ringmaster: each on arrival, unless it is as late as the bound. Maranjyan, Tyurin & Richtarik, ICML
// 2025, arXiv:2501.16168. What becomes too late while it waits for the update before it is given up
// too, so that no gradient of the bound's staleness is ever applied.
#include "experiment/replicas.pb.h"
#include "messages/sections.hpp"
#include "runtime/schemes/rules/parts.hpp"

namespace troupe {
namespace {

class Ringmaster final : public Admission {
 public:
  explicit Ringmaster(std::int64_t bound) : bound_(bound) {}

  bool accepts(const Arrival& push, const Ledger& ledger) const override {
    return ledger.version - push.read_version < bound_;
  }

  bool servers_may_differ() const override { return true; }

  Choice choose(const std::vector<Arrival>& waiting,
                const Ledger& ledger,
                double /*now*/) const override {
    Choice choice;
    for (std::size_t i = 0; i < waiting.size(); ++i) {
      if (!accepts(waiting[i], ledger)) {
        choice.drop.push_back(i);
      } else if (choice.take.empty()) {
        choice.take = {i};
      }
    }
    return choice;
  }

  std::int64_t answers_by(const Ledger& /*ledger*/) const override { return 0; }

 private:
  std::int64_t bound_;
};

// Where replicas.admit has taken a part of another rule, the part's options are there.
const proto::Ringmaster& ringmaster_options(const RuleContext& c) {
  const auto& r = sections::replicas(c.experiment);
  return r.admit().has_ringmaster() ? r.admit().ringmaster() : r.rule().ringmaster();
}

std::unique_ptr<Admission> make_ringmaster(const RuleContext& c) {
  const std::int64_t bound = ringmaster_options(c).bound();
  // Twice the lag of equal replicas, R (d + 1) - 1, and one: a pipeline adds its own delay.
  return std::make_unique<Ringmaster>(bound > 0 ? bound : 2 * c.replicas * (c.delay + 1));
}

}  // namespace

namespace rule_schemes {

RuleScheme ringmaster() {
  return {.info = {.name = "ringmaster",
                   .summary = "like asgd, but a gradient whose staleness reaches the bound is "
                              "dropped, and its replica gets the newest weights",
                   .paper = "Maranjyan, Tyurin & Richtarik, ICML 2025, arXiv:2501.16168"},
          .equations = "tau < bound: w <- w - eta opt(g)",
          .memory = "the optimizer's moments",
          .admission = make_ringmaster,
          .gives_up = true};
}

}  // namespace rule_schemes

}  // namespace troupe
