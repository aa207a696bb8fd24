// The replica's own optimizer makes a step of each mini-batch. Gradients, changes or weights travel at each period,
// and what the servers answer takes the place of the replica's own weights when LocalLink says: at once, before a
// later step, or in the place of what a step starts from. Under clocks (SSP, WSP) most pushes wait for no answer.
#pragma once

#include "actors/exchange/upstream.hpp"

#include <vector>

namespace troupe {

class LocalSteps final : public Upstream {
 public:
  explicit LocalSteps(Config config);

  bool prepare(Apply& apply, double now, Effects& fx) override;
  void archive(Archive& a) override;

 private:
  bool sends(std::size_t slice, std::int64_t n) const override;
  bool waits(std::int64_t n) const override;
  bool fetches(std::int64_t n) const override;
  std::vector<Tensor> outgoing_values(std::size_t slice,
                                      const StepWeights& made,
                                      Applied& parts,
                                      bool waits) override;
  void complete_upload(Upload& m, std::int64_t n, double now) override;
  void took_over(std::size_t slice, Answer& answer) override;
  Weights fetched(std::int64_t n);

  LocalLink how_;
  std::int64_t period_;                       // of the Link, or what the server said last
  std::vector<std::vector<Tensor>> moments_;  // merged ones, for the next Apply
  bool reset_moments_ = false;                // in the next Apply
};

}  // namespace troupe
