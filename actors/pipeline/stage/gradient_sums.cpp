#include "actors/pipeline/stage/gradient_sums.hpp"

#include <algorithm>

namespace troupe {

void GradientSums::open_read(const Action& a, const View& view, std::int64_t version, double now) {
  open_.insert_or_assign(  // mostly the latest
      open_.end(),
      micro_batch_of(a),
      OpenRead{view, version, a.natural, now});
}

void GradientSums::begin_backward(std::optional<View> view, std::int64_t version) {
  backward_view_ = view;
  backward_version_ = version;
}

void GradientSums::close_read(const Action& a) {
  const auto opened = find_first(open_, micro_batch_of(a));
  TROUPE_CHECK(opened != open_.end(), "the end of a read that nobody has begun: ", to_string(a));
  const OpenRead read = opened->second;
  open_.erase(opened);
  BatchGradient& sum = sums_[a.chunk];
  sum.read_time = sum.reads.empty() ? read.time : std::min(sum.read_time, read.time);
  sum.reads.push_back({.micro_batch = a.micro_batch,
                       .forward = read.view,
                       .backward = backward_view_.value_or(read.view),
                       .forward_version = read.version,
                       .backward_version = backward_version_});
}

BatchGradient GradientSums::take_batch(const Action& update) {
  BatchGradient batch = std::move(sums_.at(update.chunk));
  sums_.erase(update.chunk);
  if (auto kept = forward_weights_.extract({update.chunk, update.batch}); !kept.empty()) {
    batch.forward = std::move(kept.mapped());
  }
  return batch;
}

}  // namespace troupe
