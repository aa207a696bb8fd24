#include "actors/pipeline/stage/gradient_sums.hpp"

#include <algorithm>

namespace troupe {

void GradientSums::open_read(const Action& a, const View& view, std::int64_t version, double now) {
  open_[micro_batch_of(a)] = {view, version, a.natural, now};
}

void GradientSums::begin_backward(std::optional<View> view, std::int64_t version) {
  backward_view_ = view;
  backward_version_ = version;
}

const GradientSums::OpenRead& GradientSums::opened(const Action& a) const {
  const OpenRead* const read = open_.find(micro_batch_of(a));
  TROUPE_CHECK(read, "no forward of ", to_string(a), " reads");
  return *read;
}

void GradientSums::close_read(const Action& a) {
  const OpenRead& read = opened(a);
  BatchGradient& sum = sums_[a.chunk];
  sum.read_time = sum.reads.empty() ? read.time : std::min(sum.read_time, read.time);
  sum.reads.push_back({.micro_batch = a.micro_batch,
                       .forward = read.view,
                       .backward = backward_view_.value_or(read.view),
                       .forward_version = read.version,
                       .backward_version = backward_version_});
  open_.take(micro_batch_of(a));
}

BatchGradient GradientSums::take_batch(const Action& update) {
  BatchGradient batch = std::exchange(sums_.at(update.chunk), {});
  if (auto kept = forward_weights_.extract({update.chunk, update.batch}); !kept.empty()) {
    batch.forward = std::move(kept.mapped());
  }
  return batch;
}

}  // namespace troupe
