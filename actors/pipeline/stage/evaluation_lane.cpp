#include "actors/pipeline/stage/evaluation_lane.hpp"

#include "runtime/model/width.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace troupe {

bool EvaluationLane::accept(PullReply& m) {
  if (!open_ || m.request != open_->request) {
    return false;
  }
  Weights& weights = weights_[open_->chunk].weights;
  open_.reset();
  std::move(m.weights.begin(), m.weights.end(), std::back_inserter(weights));
  return true;
}

void EvaluationLane::add(MarkBatch m) {
  const auto same = std::find_if(waiting_.begin(), waiting_.end(), [&](const MarkBatch& one) {
    return one.step == m.step && one.index == m.index && one.chunk == m.chunk && one.own == m.own;
  });
  if (same == waiting_.end()) {
    Bundle first = std::exchange(m.bundle, {});
    add_pieces(m.bundle, std::move(first));  // each entry once, as of those that follow
    waiting_.push_back(std::move(m));
    return;
  }
  add_pieces(same->bundle, std::move(m.bundle));
  if (m.labels) {
    same->labels = std::move(m.labels);
  }
}

bool EvaluationLane::ready(Effects& fx) {
  const auto whole = std::find_if(waiting_.begin(), waiting_.end(), [&](const MarkBatch& one) {
    const Chunk& chunk = *chunks_.at(static_cast<std::size_t>(one.chunk));
    return one.bundle.size() >= chunk.inputs() && (!chunk.last() || one.labels);
  });
  if (running_ || open_ || whole == waiting_.end()) {
    return false;
  }
  std::rotate(waiting_.begin(), whole, whole + 1);
  const MarkBatch& batch = waiting_.front();
  const Chunk& chunk = *chunks_.at(static_cast<std::size_t>(batch.chunk));
  Pinned& pinned = weights_[batch.chunk];
  if (pinned.step != batch.step || pinned.own != batch.own) {
    pinned = {.step = batch.step, .own = batch.own};
  }
  const std::size_t own = chunk.layout().slice_sizes.size();
  const std::size_t came = pinned.weights.size();
  if (came >= own + chunk.borrowed().size()) {
    return true;
  }
  const WeightsPart next{batch.chunk, came == 0 ? 0 : came - own + 1};
  open_ = {batch.chunk, shards_.pull_pinned(next, batch.step, batch.own, fx)};
  return false;
}

MarkBatch EvaluationLane::finish() {
  running_ = false;
  MarkBatch batch = std::move(waiting_.front());
  waiting_.pop_front();
  return batch;
}

void EvaluationLane::release(std::int64_t step) {
  std::erase_if(weights_, [&](const auto& pinned) { return pinned.second.step == step; });
}

}  // namespace troupe
