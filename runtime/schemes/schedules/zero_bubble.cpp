// Zero bubble (Qi et al. 2024): 1F1B whose backward is split. The error signal leaves after the input
// gradient; weight gradients fill the drain of the pipe, one after each input gradient.
//
//   zb_h1  stage k holds back k of them; 1F1B's memory
//   zb_2p  ZB-H2: d + 1 forwards more at the start, 2k held back. Each stage is busy from its first
//          forward to its update, and goes on with the next mini-batch while later stages still have
//          the last; twice the memory
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

void write_zb_2p(SequenceBuilder& s) {
  s.begin_period();
  std::int64_t forwards = 0;
  std::int64_t weight_gradients = 0;
  while (forwards < std::min(2 * s.to_loss() + 1, s.M())) {
    s.forward(forwards++);
  }
  for (std::int64_t j = 0; j < s.M(); ++j) {
    s.input_gradient(j);
    if (j + 1 - weight_gradients > 2 * s.stage()) {
      s.weight_gradient(weight_gradients++);
    }
    if (forwards < s.M()) {
      s.forward(forwards++);
    }
  }
  while (weight_gradients < s.M()) {
    s.weight_gradient(weight_gradients++);
  }
  s.update(0);
}

}  // namespace

ScheduleScheme zb_2p() {
  return {
      .info = {.name = "zb_2p",
               .summary = "zb_h1 with as many forwards more at the start as keep every stage busy "
                          "to its update; twice the activations",
               .paper =
                   "Qi et al. 2024, arXiv:2401.10241 (ZB-H2, the order of ZB-2p for equal times)"},
      .flushed = true,
      .staleness = "0",
      .bubble =
          "(K-1) max(0, T_F+T_B-2 T_W, T_B-T_F) for M >= 2K-1 (here T_B: the input gradient "
          "alone), once the pipe is full",
      .write = write_zb_2p};
}

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
