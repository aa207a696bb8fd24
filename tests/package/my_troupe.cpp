// troupe with two rules more: a gradient's weight halves every `half_life` updates that it is late.
//
//   half_life          each on arrival
//   half_life_limited  what is `limit` half-lives late is dropped, and its replica gets new weights
#include <apps/cli/program.hpp>
#include <runtime/schemes/rules/rule.hpp>

#include <cmath>
#include <cstdint>
#include <iostream>
#include <memory>
#include <utility>
#include <vector>

namespace {

/// In updates; 0: as many as there are replicas.
double half_life(const troupe::RuleContext& c) {
  const double given = c.custom("half_life", 0);
  return given > 0 ? given : c.replicas;
}

class HalfLife final : public troupe::Scale {
 public:
  explicit HalfLife(double half_life) : half_life_(half_life) {}

  double weight(const troupe::Contribution& of, const troupe::Update& /*update*/) override {
    return std::exp2(-static_cast<double>(of.lag) / half_life_);
  }

 private:
  double half_life_;
};

class Limited final : public troupe::Admission {
 public:
  explicit Limited(double updates) : updates_(updates) {}

  bool accepts(const troupe::Arrival& push, const troupe::Ledger& ledger) const override {
    return static_cast<double>(ledger.version - push.read_version) < updates_;
  }

  bool servers_may_differ() const override { return true; }

  /// The first that is not too late; what has become so while it waited is given up.
  Choice choose(const std::vector<troupe::Arrival>& waiting,
                const troupe::Ledger& ledger,
                double /*now*/) const override {
    Choice choice;
    for (std::size_t i = 0; i < waiting.size(); ++i) {
      if (!accepts(waiting[i], ledger)) {
        choice.drop.push_back(i);
      } else if (choice.take.empty()) {
        choice.take.push_back(i);
      }
    }
    return choice;
  }

 private:
  double updates_;
};

std::unique_ptr<troupe::Scale> make_scale(const troupe::RuleContext& c) {
  return std::make_unique<HalfLife>(half_life(c));
}

std::unique_ptr<troupe::Admission> make_admission(const troupe::RuleContext& c) {
  return std::make_unique<Limited>(half_life(c) * c.custom("limit", 3));
}

bool registered(const troupe::RuleScheme& rule) {
  const auto made = troupe::register_rule(rule);
  std::cerr << (made ? "" : made.error().message + '\n');
  return static_cast<bool>(made);
}

}  // namespace

int main(int argc, char** argv) {
  const troupe::Option half_life{.name = "half_life", .doc = "updates; 0: R", .at_least = 0};
  const troupe::Option limit{.name = "limit", .doc = "half-lives", .number = 3, .at_least = 0};
  const bool known =
      registered({.info = {.name = "half_life",
                           .summary = "a gradient's weight halves with each half-life it is late",
                           .options = {half_life}},
                  .equations = "w <- w - eta opt(2^(-tau / half_life) g)",
                  .memory = "the optimizer's moments",
                  .scale = make_scale,
                  .bears_delay = true}) &&
      registered({.info = {.name = "half_life_limited",
                           .summary = "half_life; what is `limit` half-lives late is dropped",
                           .options = {half_life, limit}},
                  .equations = "tau < limit half_life: w <- w - eta opt(2^(-tau / half_life) g)",
                  .memory = "the optimizer's moments",
                  .admission = make_admission,
                  .scale = make_scale,
                  .bears_delay = true});
  return known ? troupe::run_command_line(argc, argv) : 2;
}
