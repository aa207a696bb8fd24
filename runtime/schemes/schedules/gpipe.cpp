// GPipe (Huang et al. 2019): all forwards, then all backwards, then the update. The backwards run
// in micro-batch order (the paper's own is reversed), which makes the sums those of every other
// flushed schedule.
#include "runtime/schemes/schedules/built_in.hpp"

namespace troupe::schedules {
namespace {

void write_gpipe(SequenceBuilder& s) {
  s.begin_period();
  for (std::int64_t j = 0; j < s.M(); ++j) {
    s.forward(j);
  }
  for (std::int64_t j = 0; j < s.M(); ++j) {
    s.backward(j);
  }
  s.update(0);
}

}  // namespace

ScheduleScheme gpipe() {
  return {.info = {.name = "gpipe",
                   .summary = "M forwards, M backwards in the same order, one update",
                   .paper = "Huang et al. 2019, arXiv:1811.06965"},
          .flushed = true,
          .staleness = "0",
          .bubble = "(K-1)(T_F+T_B)",
          .write = write_gpipe};
}

}  // namespace troupe::schedules
