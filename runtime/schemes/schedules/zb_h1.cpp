// ZB-H1 (Qi et al. 2024): 1F1B whose backward is split. The error signal leaves after the input
// gradient; stage k holds back k weight gradients and fills the drain of the pipe with them, one
// after each input gradient.
#include "runtime/schemes/schedules/built_in.hpp"

#include <algorithm>

namespace troupe::schedules {
namespace {

void write_zb_h1(SequenceBuilder& s) {
  s.begin_period();
  const std::int64_t warm_up = std::min(s.to_loss(), s.M());
  std::int64_t forwards = 0;
  std::int64_t weight_gradients = 0;
  while (forwards < warm_up) {
    s.forward(forwards++);
  }
  for (std::int64_t j = 0; j < s.M(); ++j) {
    const bool draining = forwards == s.M();
    if (!draining) {
      s.forward(forwards++);
    }
    s.input_gradient(j);
    if (draining || j + 1 - weight_gradients > s.stage()) {
      s.weight_gradient(weight_gradients++);
    }
  }
  while (weight_gradients < s.M()) {
    s.weight_gradient(weight_gradients++);
  }
  s.update(0);
}

}  // namespace

ScheduleScheme zb_h1() {
  return {
      .info = {.name = "zb_h1",
               .summary = "1F1B with a split backward: the error signal leaves after the input "
                          "gradient; weight gradients are computed while the pipeline drains",
               .paper = "Qi et al. 2024, arXiv:2401.10241"},
      .flushed = true,
      .staleness = "0",
      .bubble = "(K-1)(T_F+T_B-T_W) for M >= K, T_W <= T_B (here T_B: the input gradient alone)",
      .write = write_zb_h1};
}

}  // namespace troupe::schedules
