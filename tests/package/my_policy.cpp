// troupe with a weight policy more: a prediction that believes less of each further update.
//
//   fading_trust  forward at W - eta (t + t^2 + ... + t^d) v, kept for the backward; t in [0, 1]
//
// t = 1 is spectrain, t = 0 is stash; with momentum, t = gamma goes where geometric goes.
#include <apps/cli/program.hpp>
#include <runtime/schemes/policies/policy.hpp>

#include <cmath>
#include <cstdint>
#include <iostream>
#include <memory>

namespace {

/// As many updates ahead as the mini-batch's own update is away.
class AsFarAsItsUpdate final : public troupe::ViewPolicy {
 public:
  troupe::View forward(const troupe::Action& action) const override {
    return {action.natural, troupe::reach_of(troupe::ReachKind::linear, action.distance())};
  }
};

/// t + t^2 + ... + t^horizon.
double believed(const troupe::OptionValues& values, std::int64_t horizon) {
  double sum = 0;
  for (std::int64_t i = horizon; i > 0; --i) {
    sum = values.number("trust") * (1 + sum);
  }
  return sum;
}

}  // namespace

int main(int argc, char** argv) {
  const auto made = troupe::register_policy(
      {.info = {.name = "fading_trust",
                .summary = "spectrain that believes less of each further update",
                .options = {{.name = "trust",
                             .doc =
                                 "of the next update; of the one after that its square, and so on",
                             .number = 0.8,
                             .at_least = 0,
                             .at_most = 1}}},
       .reads = "forward and backward W[b-d] + (t + ... + t^d) steps",
       .staleness = "what the prediction leaves out",
       .memory = "1 + (K-k) predictions",
       .view = [](const troupe::WeightContext&,
                  const troupe::Schedule&) { return std::make_shared<AsFarAsItsUpdate>(); },
       .predicts = true,
       .length = believed});
  if (!made) {
    std::cerr << made.error().message << '\n';
    return 2;
  }
  return troupe::run_command_line(argc, argv);
}
