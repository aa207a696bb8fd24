// 1F1B with a flush (PipeDream-Flush, DAPPLE): min(d, M) forwards, then one forward and one
// backward in turn, then the rest of the backwards. GPipe's bubble with at most K - k stashes.
#include "runtime/schemes/schedules/builder.hpp"

namespace troupe {

void flushed_one_f_one_b(SequenceBuilder& s, std::int64_t batch) {
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

void one_f_one_b(SequenceBuilder& s) {
  s.begin_period();
  flushed_one_f_one_b(s, 0);
}

}  // namespace troupe
