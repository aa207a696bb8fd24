// ringmaster: each on arrival, unless it is as late as the bound. Maranjyan, Tyurin & Richtarik, ICML
// 2025, arXiv:2501.16168. What becomes too late while it waits for the update before it is given up
// too, so that no gradient of the bound's staleness is ever applied.
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

 private:
  std::int64_t bound_;
};

}  // namespace

std::unique_ptr<Admission> ringmaster(std::int64_t bound) {
  return std::make_unique<Ringmaster>(bound);
}

}  // namespace troupe
