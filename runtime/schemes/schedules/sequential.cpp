// Naive model parallelism: one micro-batch in the pipe at a time, so that one stage works and the
// others wait.
#include "runtime/schemes/schedules/builder.hpp"

namespace troupe {

void sequential(SequenceBuilder& s) {
  s.begin_period();
  for (std::int64_t j = 0; j < s.M(); ++j) {
    s.forward(j);
    s.backward(j);
  }
  s.update(0);
}

}  // namespace troupe
