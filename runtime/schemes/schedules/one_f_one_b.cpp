// 1F1B with a flush (PipeDream-Flush, DAPPLE): min(d, M) forwards, then one forward and one
// backward in turn, then the rest of the backwards. GPipe's bubble with at most K - k stashes.
#include "runtime/schemes/schedules/built_in.hpp"

#include <algorithm>

namespace troupe::schedules {
void flushed_batch(SequenceBuilder& s, std::int64_t batch) {
  const std::int64_t first = batch * s.M();
  const std::int64_t warm_up = std::min(s.to_loss(), s.M());
  for (std::int64_t j = 0; j < warm_up; ++j) {
    s.forward(first + j);
  }
  for (std::int64_t j = 0; j < s.M(); ++j) {
    if (warm_up + j < s.M()) {
      s.forward(first + warm_up + j);
    }
    s.backward(first + j);
  }
  s.update(batch);
}

ScheduleScheme one_f_one_b() {
  return {.info = {.name = "one_f_one_b",
                   .summary = "min(d,M) forwards, then one forward and one backward in turn, then "
                              "the rest; one update",
                   .paper = "PipeDream-Flush (Narayanan et al. 2021, arXiv:2006.09503), DAPPLE"},
          .flushed = true,
          .staleness = "0",
          .bubble = "(K-1)(T_F+T_B)",
          .write = [](SequenceBuilder& s) {
            s.begin_period();
            flushed_batch(s, 0);
          }};
}

}  // namespace troupe::schedules
