// softsync: an update of the first c = max(1, floor(living / n)) gradients, from whomever. Gupta
// et al. 2015, arXiv:1509.04210. Nobody waits for his own gradient's update (unless by `wait`), but
// everybody where updates are slower than pushes, or their number would have no bound.
#include "experiment.pb.h"
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
    const std::int64_t count = pushes_an_update(ledger);
    Choice choice;
    if (static_cast<std::int64_t>(waiting.size()) >= count) {
      choice.take.resize(static_cast<std::size_t>(count));
      std::iota(choice.take.begin(), choice.take.end(), std::size_t{0});
    }
    return choice;
  }

  bool answers(std::int32_t replica, const Ledger& ledger) const override {
    if (wait_) {
      return Admission::answers(replica, ledger);
    }
    std::int64_t waiting = 0;  // in the update under way, too
    for (const Standing& standing : ledger.replicas) {
      waiting += standing.waiting;
    }
    // What an update lacks and one more of each replica: where updates take no time, so many never wait.
    return waiting < pushes_an_update(ledger) + ledger.living();
  }

 private:
  std::int64_t pushes_an_update(const Ledger& ledger) const {
    return std::max<std::int64_t>(1, ledger.living() / n_);
  }

  std::int64_t n_;
  bool wait_;
};

}  // namespace

std::unique_ptr<Admission> softsync(const proto::Softsync& options) {
  return std::make_unique<Softsync>(options);
}

}  // namespace troupe
