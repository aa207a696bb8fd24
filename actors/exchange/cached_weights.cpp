#include "actors/exchange/cached_weights.hpp"

#include "messages/archive.hpp"

#include <utility>

namespace troupe {

/// The servers'.
Exchange::Label CachedWeights::label(std::size_t slice) const {
  return {line(slice).merged.version, line(slice).merged.rate};
}

bool CachedWeights::prepare(Apply& apply, double now, Effects& fx) {
  const std::int64_t n = mini_batch_count();
  seen_rate_ = note_reads();
  note_clipping(apply.gradient_scale);
  apply.steps = false;
  apply.forward.clear();  // the gap is the servers' to measure
  apply.outbound = outbound(n, sends(0, n));
  const bool as_it_is = link().travel == Travel::gradient && !apply.outbound.accrue &&
                        apply.tied.empty() && !config().encodes;
  if (as_it_is) {
    finish_mini_batch({}, {.outgoing = std::move(apply.gradient)}, now, fx);
    return false;
  }
  apply.rate = seen_rate_;
  apply.next_rate = rate(host().step() + 1);
  return true;
}

void CachedWeights::archive(Archive& a) {
  Upstream::archive(a);
  a(seen_rate_);
}

}  // namespace troupe
