#include "actors/exchange/upstream.hpp"
#include "messages/archive.hpp"
#include "messages/archive_sized.hpp"

namespace troupe {

void Upstream::archive(Archive& a) {
  Exchange::archive(a);
  archive_sized(a, lines_, paces_);
  a(pinned_,
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
  const auto fits = [this](const auto& by_slice) {
    return by_slice.empty() || by_slice.size() == lines_.size();
  };
  for (const auto& [step, merged] : seen_) {
    expect_archived(merged.size() == lines_.size(), "the state has other slices than this run");
  }
  expect_archived(!seen_.empty() && fits(residuals_) && fits(links_) && fits(moments_) &&
                      (!next_ || fits(next_->base)) && (!following_ || fits(following_->base)),
                  "the state has other slices than this run");
}

}  // namespace troupe
