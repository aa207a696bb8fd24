// softsync: an update of the first c = max(1, floor(living / n)) gradients, from whomever. Gupta
// et al. 2015, arXiv:1509.04210.
#include "runtime/schemes/rules/parts.hpp"

#include <algorithm>
#include <numeric>

namespace troupe {
namespace {

class Softsync final : public Admission {
 public:
  explicit Softsync(const proto::Softsync& options) : n_(options.n()), wait_(options.wait()) {}

  Choice choose(const std::vector<Arrival>& waiting,
                const Ledger& ledger,
                double /*now*/) const override {
    const auto count = static_cast<std::size_t>(std::max<std::int64_t>(1, ledger.living() / n_));
    Choice choice;
    if (waiting.size() >= count) {
      choice.take.resize(count);
      std::iota(choice.take.begin(), choice.take.end(), std::size_t{0});
    }
    return choice;
  }

  bool answers(std::int32_t replica, const Ledger& ledger) const override {
    return !wait_ || Admission::answers(replica, ledger);
  }

 private:
  std::int64_t n_;
  bool wait_;
};

}  // namespace

std::unique_ptr<Admission> softsync(const proto::Softsync& options) {
  return std::make_unique<Softsync>(options);
}

}  // namespace troupe
