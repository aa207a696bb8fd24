// The pipelines that never flush. A stage runs `ahead` forwards, then one forward and one backward
// in turn for ever, with an update after each mini-batch's last backward.
//
//   async_one_f_one_b   ahead = d      PipeDream's clock: each forward and backward has a slot of
//   its own async_full_duplex   ahead = 2 d    every tick one forward and one backward, of
//   different mini-batches (Kosson et al. 2020)
#include "runtime/schemes/schedules/builder.hpp"

namespace troupe {
namespace {

void never_flush(SequenceBuilder& s, std::int64_t ahead) {
  const std::int64_t flushed = s.synchronous_batches();
  for (std::int64_t b = 0; b < flushed; ++b) {
    flushed_one_f_one_b(s, b);
  }
  const std::int64_t first = flushed * s.M();
  for (std::int64_t n = 0; n < ahead; ++n) {
    s.forward(first + n);
  }
  s.begin_period();
  for (std::int64_t j = 0; j < s.M(); ++j) {
    s.forward(first + ahead + j);
    s.backward(first + j);
  }
  s.update(flushed);
}

}  // namespace

void async_one_f_one_b(SequenceBuilder& s) {
  never_flush(s, s.to_loss());
}

void async_full_duplex(SequenceBuilder& s) {
  never_flush(s, 2 * s.to_loss());
}

}  // namespace troupe
