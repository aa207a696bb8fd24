// halos: two levels of servers. Kim et al., ICML 2025, arXiv:2506.04531, in the form of the authors' published
// program. Of each weight:
//
//   replica   D = (weights read) - (weights after H inner steps), to the server of its group, which answers at once
//   group     w <- w - eps D at each arrival, and with every d-th of them, A the sum of the d D's,
//             m <- mu m + A;  w <- w - eps mu m
//   after K arrivals   U = (w after the last merge) - w goes to the global server
//   global    the same with U, and rate, momentum and delay of its own; answers with its weights W
//   group     when these come: w <- (1 - alpha) w + alpha W. What it has moved since U was sent stays in its own
//             (1 - alpha) share, and in no U.
#include "experiment/replicas.pb.h"
#include "messages/archive.hpp"
#include "messages/sections.hpp"
#include "runtime/schemes/exchanges/exchange_checks.hpp"
#include "runtime/schemes/exchanges/exchanges.hpp"
#include "runtime/schemes/rules/parts.hpp"

#include <utility>

namespace troupe {
namespace {

class DelayedNesterov final : public Step {
 public:
  DelayedNesterov(double rate, double momentum, std::int64_t delay)
      : rate_(rate), momentum_(momentum), delay_(delay) {}

  Updated apply(Stream& stream, Update update) override {
    const Contribution& push = only(update);
    const Term change{push.factor, push.values.front()};
    std::vector<Term> by{{-rate_ * change.factor, change.x}};
    if (momentum_ > 0) {
      accumulate(stream, change, update.base.elements());
      if (arrivals_ % delay_ == 0) {
        by.push_back({-rate_ * momentum_, m_});
      }
    }
    return moved(stream, std::move(update), std::move(by));
  }

  std::int64_t state_tensors() const override { return momentum_ == 0 ? 0 : delay_ == 1 ? 1 : 2; }

  void archive(Archive& a) override { a(m_, sum_, arrivals_); }

 private:
  /// The momentum as it is after this arrival.
  void accumulate(Stream& stream, const Term& change, std::int64_t elements) {
    if (!m_) {
      m_ = zeros(stream, elements);
    }
    ++arrivals_;
    if (delay_ == 1) {
      combine(stream, {{momentum_, m_}, change}, m_);
      return;
    }
    if (!sum_) {
      sum_ = zeros(stream, elements);
    }
    combine(stream, {{1, sum_}, change}, sum_);
    if (arrivals_ % delay_ == 0) {
      combine(stream, {{momentum_, m_}, {1, sum_}}, m_);
      fill(stream, sum_, 0);
    }
  }

  double rate_;
  double momentum_;
  std::int64_t delay_;
  std::int64_t arrivals_ = 0;
  Tensor m_;
  Tensor sum_;  // A so far
};

const proto::Halos& halos_of(const proto::Experiment& e) {
  return sections::replicas(e).exchange().halos();
}

/// Each on arrival.
Rule on_arrival(std::unique_ptr<Step> step) {
  return {as_they_come(), std::make_unique<Scale>(), std::move(step)};
}

Link halos_link(const LinkContext& c) {
  Link link;
  link.travel = Travel::change;
  link.kind = LocalLink{};
  link.push_every = halos_of(c.experiment).period();
  link.run_rate = true;  // a fast replica makes more steps than the run has, a slow one fewer
  return link;
}

GroupServer group_server(const RuleContext& c) {
  const proto::Halos& o = halos_of(c.experiment);
  const proto::HalosLocal& local = o.local();
  return {.rule = on_arrival(delayed_nesterov_step(local.rate(), local.momentum(), local.delay())),
          .accumulate = o.accumulate(),
          .merge = o.merge()};
}

}  // namespace

std::unique_ptr<Step> delayed_nesterov_step(double rate, double momentum, std::int64_t delay) {
  return std::make_unique<DelayedNesterov>(rate, momentum, delay);
}

namespace exchange_schemes {

ExchangeScheme halos() {
  return {
      .info = {.name = "halos",
               .summary = "two levels of servers: a group's server applies its replicas' movements "
                          "and answers at once; after K of them it exchanges with the global one, "
                          "and nobody waits for that",
               .paper = "Kim et al., ICML 2025, arXiv:2506.04531",
               .check = exchange_checks::halos},
      .equations =
          "group: w <- w - eps D at each push, m <- mu m + sum D and w <- w - eps mu m with every "
          "d-th; after K U = w(last merge) - w goes up. Global: the same with U. When W comes "
          "back: w <- (1 - alpha) w + alpha W",
      .memory = "2 at each server",
      .link = halos_link,
      .rule =
          [](const RuleContext& c) {
            const proto::HalosGlobal& o = halos_of(c.experiment).global();
            return on_arrival(delayed_nesterov_step(o.rate(), o.momentum(), o.delay()));
          },
      .groups = [](const proto::Experiment& e) { return halos_of(e).groups(); },
      .group_server = group_server,
      .remedy =
          [](const proto::Experiment&) {
            return std::string(
                "a smaller replicas.exchange.halos.local.rate, or a shorter "
                "replicas.exchange.halos.period");
          }};
}

}  // namespace exchange_schemes

}  // namespace troupe
