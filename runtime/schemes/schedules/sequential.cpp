// Naive model parallelism: one micro-batch in the pipe at a time, so that one stage works and the
// others wait.
#include "runtime/schemes/schedules/built_in.hpp"

namespace troupe::schedules {
namespace {

void write_sequential(SequenceBuilder& s) {
  s.begin_period();
  for (std::int64_t j = 0; j < s.M(); ++j) {
    s.forward(j);
    s.backward(j);
  }
  s.update(0);
}

}  // namespace

ScheduleScheme sequential() {
  return {.info = {.name = "sequential",
                   .summary = "only one micro-batch is in the pipeline at a time: F and B through "
                              "all stages, then the next; an update after M of them",
                   .paper = "naive model parallelism"},
          .flushed = true,
          .fills = false,
          .staleness = "0",
          .bubble = "(K-1) M (T_F+T_B)",
          .write = write_sequential};
}

}  // namespace troupe::schedules
