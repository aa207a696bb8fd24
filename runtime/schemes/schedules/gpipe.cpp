// GPipe (Huang et al. 2019): all forwards, then all backwards, then the update. The backwards run
// in micro-batch order (the paper's own is reversed; any is legal), which makes the sums those of
// every other flushed schedule.
#include "runtime/schemes/schedules/builder.hpp"

namespace troupe {

void gpipe(SequenceBuilder& s) {
  s.begin_period();
  for (std::int64_t j = 0; j < s.M(); ++j) {
    s.forward(j);
  }
  for (std::int64_t j = 0; j < s.M(); ++j) {
    s.backward(j);
  }
  s.update(0);
}

}  // namespace troupe
