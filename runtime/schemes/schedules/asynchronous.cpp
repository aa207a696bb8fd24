// The pipelines that never flush. A stage runs `ahead` forwards, then one forward and one backward
// in turn for ever, with an update after each mini-batch's last backward.
//
//   async_one_f_one_b  ahead = d    PipeDream's clock: each forward and backward has a slot of its own
//   async_full_duplex  ahead = 2 d  every tick one forward and one backward, of different mini-batches
//                                   (Kosson et al. 2020)
#include "runtime/schemes/schedules/built_in.hpp"

namespace troupe::schedules {
namespace {

void never_flush(SequenceBuilder& s, std::int64_t ahead) {
  for (std::int64_t n = 0; n < ahead; ++n) {
    s.forward(n);
  }
  s.begin_period();
  for (std::int64_t j = 0; j < s.M(); ++j) {
    s.forward(ahead + j);
    s.backward(j);
  }
  s.update(0);
}

}  // namespace

ScheduleScheme async_one_f_one_b() {
  return {.info = {.name = "async_one_f_one_b",
                   .summary = "d forwards, then one forward and one backward in turn until the "
                              "end, with an update after each mini-batch",
                   .paper = "PipeDream (Narayanan et al. 2019)"},
          .staleness = "d = K-1-k updates at M=1; ceil(max(0, d-j)/M) for micro-batch j",
          .bubble = "0 once the pipe is full; (K-1)(T_F+T_B) once a run",
          .write = [](SequenceBuilder& s) {
            never_flush(s, s.to_loss());
          }};
}

ScheduleScheme async_full_duplex() {
  return {
      .info = {.name = "async_full_duplex",
               .summary = "2d forwards, then a forward and a backward in every tick until the end",
               .paper = "Petrowski et al. 1993; Kosson et al. 2020, arXiv:2003.11666"},
      .staleness = "2d = 2(K-1-k) updates at M=1",
      .bubble = "0 once the pipe is full",
      .write = [](SequenceBuilder& s) {
        never_flush(s, 2 * s.to_loss());
      }};
}

}  // namespace troupe::schedules
