// softsync: an update of the first c = max(1, floor(living / n)) gradients, from whomever. Gupta
// et al. 2015, arXiv:1509.04210. Nobody waits for his own gradient's update (unless by `wait`), but
// everybody where updates are slower than pushes, or their number would have no bound.
#include "experiment/replicas.pb.h"
#include "kernels/wording.hpp"
#include "messages/sections.hpp"
#include "runtime/schemes/policies/horizon.hpp"
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
    // Alone, it would only ever get older weights sooner: where the server keeps an update back for an evaluation.
    if (wait_ || ledger.living() == 1) {
      return Admission::answers(replica, ledger);
    }
    return few_wait(ledger);
  }

  std::int64_t answers_by(const Ledger& ledger) const override {
    return wait_ ? 0 : 2 * std::int64_t{ledger.living() == 1} + std::int64_t{few_wait(ledger)};
  }

 private:
  /// What an update lacks and one more of each replica: where updates take no time, so many never wait. In the update
  /// under way, too.
  bool few_wait(const Ledger& ledger) const {
    return ledger.replicas.waiting() < pushes_an_update(ledger) + ledger.living();
  }

  std::int64_t pushes_an_update(const Ledger& ledger) const {
    return std::max<std::int64_t>(1, ledger.living() / n_);
  }

  std::int64_t n_;
  bool wait_;
};

std::unique_ptr<Admission> softsync_admission(const proto::Softsync& options) {
  return std::make_unique<Softsync>(options);
}

// Where replicas.admit has taken a part of another rule, the part's options are there.
const proto::Softsync& softsync_options(const proto::Replicas& r) {
  return r.admit().has_softsync() ? r.admit().softsync() : r.rule().softsync();
}

/// An update is made of c pushes; who waits for its update does not meet the others of that one.
double softsync_lag(const proto::Experiment& e, double delay) {
  const proto::Softsync& options = softsync_options(sections::replicas(e));
  const double c =
      std::max<double>(1, static_cast<double>(sections::replica_count(e) / options.n()));
  return (pushes_between(e, delay) - (options.wait() ? c - 1 : 0)) / c;
}

/// No more parts than there are replicas.
Result<void> check_softsync(const proto::Experiment& e) {
  const proto::Replicas& r = sections::replicas(e);
  const bool admits =
      r.admit().has_softsync() || (r.admit().has_by_rule() && r.rule().has_softsync());
  const std::int64_t n = softsync_options(r).n();
  if (admits && n > r.count()) {
    return usage_error(
        "replicas.{}.softsync.n: {} is more than replicas.count {}, where it is plain asgd already",
        r.admit().has_softsync() ? "admit" : "rule",
        n,
        r.count());
  }
  return {};
}

}  // namespace

namespace rule_schemes {

RuleScheme softsync() {
  return {.info = {.name = "softsync",
                   .summary = "an update is the mean of the first c gradients that arrive, from "
                              "any replica; the staleness is about n",
                   .paper = "n-softsync: Gupta et al. 2015, arXiv:1509.04210",
                   .check = check_softsync},
          .equations = "c = max(1, floor(living / n)); w <- w - eta opt(1/c sum g)",
          .memory = "the optimizer's moments",
          .admission =
              [](const RuleContext& c) {
                return softsync_admission(softsync_options(sections::replicas(c.experiment)));
              },
          .pushes =
              [](const proto::Experiment& e) {
                return std::max<std::int64_t>(
                    1, sections::replica_count(e) / softsync_options(sections::replicas(e)).n());
              },
          .staleness =
              [](const proto::Experiment& e) {
                return static_cast<double>(std::min(sections::replica_count(e),
                                                    softsync_options(sections::replicas(e)).n()));
              },
          .lag = softsync_lag};
}

}  // namespace rule_schemes

}  // namespace troupe
