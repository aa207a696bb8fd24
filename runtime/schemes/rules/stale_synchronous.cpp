// ssp, essp and wsp: replicas move by themselves and push how far they have come; nobody gets far
// ahead of the slowest. Ho et al. 2013 (stale synchronous parallel); Dai et al. 2015, arXiv:1410.8043
// (the eager form); Park et al. 2020, arXiv:2005.14038 (wave synchronous parallel).
#include "experiment/replicas.pb.h"
#include "messages/sections.hpp"
#include "runtime/schemes/rules/parts.hpp"

#include <utility>

namespace troupe {
namespace {

class StaleSynchronous final : public Admission {
 public:
  StaleSynchronous(std::int64_t bound, bool broadcasts) : bound_(bound), broadcasts_(broadcasts) {}

  /// A replica at clock c begins when all have finished clock c - bound - 1.
  bool answers(std::int32_t replica, const Ledger& ledger) const override {
    const Standing& asker = ledger.replicas.at(static_cast<std::size_t>(replica));
    return Admission::answers(replica, ledger) && ledger.slowest() >= asker.clock - bound_;
  }

  std::int64_t answers_by(const Ledger& ledger) const override { return ledger.slowest(); }

  bool broadcasts() const override { return broadcasts_; }

 private:
  std::int64_t bound_;
  bool broadcasts_;
};

class Waves final : public Admission {
 public:
  Waves(std::int64_t wave, std::int64_t distance) : wave_(wave), distance_(distance) {}

  /// In whole waves.
  bool answers(std::int32_t replica, const Ledger& ledger) const override {
    const Standing& asker = ledger.replicas.at(static_cast<std::size_t>(replica));
    return Admission::answers(replica, ledger) &&
           ledger.slowest() / wave_ >= asker.clock / wave_ - distance_;
  }

  std::int64_t answers_by(const Ledger& ledger) const override { return ledger.slowest(); }

 private:
  std::int64_t wave_;
  std::int64_t distance_;
};

class Subtracting final : public Step {
 public:
  Updated apply(Stream& stream, Update update) override {
    std::vector<Term> changes;
    for (const Contribution& c : update.contributions) {
      changes.push_back({-c.factor, c.values.front()});
    }
    const Term change = changes.size() == 1 ? changes.front() : Term{1, sum_of(stream, changes)};
    return moved(stream, std::move(update), {change});
  }
};

std::unique_ptr<Admission> by_slowest_clock(std::int64_t bound, bool broadcasts) {
  return std::make_unique<StaleSynchronous>(bound, broadcasts);
}

/// Replicas move by themselves and push their changes (SSP, ESSP).
void by_clocks(Link& link, const proto::Experiment& e, const proto::Ssp& options, bool eager) {
  link.travel = Travel::change;
  link.kind = LocalLink{.clocks = LocalLink::Clocks{.bound = options.bound(), .eager = eager}};
  link.rate_stride = sections::replica_count(e);
  link.run_rate = true;
}

/// What the others do in a mini-batch is met in the one after it.
double met_a_mini_batch_later(const proto::Experiment& e) {
  return 2 * static_cast<double>(sections::replica_count(e));
}

}  // namespace

std::unique_ptr<Admission> waves(std::int64_t wave, std::int64_t distance) {
  return std::make_unique<Waves>(wave, distance);
}

std::unique_ptr<Step> subtracting_step() {
  return std::make_unique<Subtracting>();
}

namespace rule_schemes {

RuleScheme ssp() {
  return {.info = {.name = "ssp",
                   .summary = "replicas move by themselves and push their changes; a replica waits "
                              "if the slowest is more than s mini-batches behind",
                   .paper = "stale synchronous parallel: Ho et al., NIPS 2013"},
          .equations = "w <- w - u, u = w_before - w_after; clock c begins when all have c - s",
          .memory = "0",
          .admission =
              [](const RuleContext& c) {
                return by_slowest_clock(sections::replicas(c.experiment).rule().ssp().bound(),
                                        false);
              },
          .step = [](const RuleContext&) { return subtracting_step(); },
          .link =
              [](Link& link, const proto::Experiment& e) {
                by_clocks(link, e, sections::replicas(e).rule().ssp(), false);
              },
          .staleness = met_a_mini_batch_later};
}

RuleScheme essp() {
  return {.info = {.name = "essp",
                   .summary = "like ssp, but the server sends new weights without being asked when "
                              "the slowest clock advances",
                   .paper = "Dai et al., AAAI 2015, arXiv:1410.8043"},
          .equations = "as ssp",
          .memory = "0",
          .admission =
              [](const RuleContext& c) {
                return by_slowest_clock(sections::replicas(c.experiment).rule().essp().bound(),
                                        true);
              },
          .step = [](const RuleContext&) { return subtracting_step(); },
          .link =
              [](Link& link, const proto::Experiment& e) {
                by_clocks(link, e, sections::replicas(e).rule().essp(), true);
              },
          .staleness = met_a_mini_batch_later};
}

}  // namespace rule_schemes

}  // namespace troupe
