#include "actors/exchange/upstream.hpp"
#include "messages/fields.hpp"

namespace troupe {

void Upstream::archive(Archive& a) {
  Exchange::archive(a);
  a(pinned_,
    lines_,
    paces_,
    seen_,
    next_,
    following_,
    seen_rate_,
    factor_,
    first_,
    ahead_,
    period_,
    residuals_,
    links_,
    moments_,
    reset_moments_);
}

}  // namespace troupe
