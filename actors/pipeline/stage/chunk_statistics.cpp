#include "actors/pipeline/stage/chunk_statistics.hpp"

#include <algorithm>
#include <iterator>

namespace troupe {

ChunkStatistics::ChunkStatistics(Config config)
    : c_(std::move(config)), newest_(std::move(c_.initial)) {
  for (const auto& [chunk, buffers] : newest_) {
    done_[chunk] = 0;
  }
}

void ChunkStatistics::finish_batch(std::int32_t chunk, std::int64_t batch, Effects& fx) {
  const std::int64_t step = done_.at(chunk) = batch + 1;
  if (c_.evaluation.due(step)) {
    keep(chunk, step);
  }
  conclude_when_due(fx);
}

void ChunkStatistics::keep(std::int32_t chunk, std::int64_t step) {
  kept_[{chunk, step}] = newest_.at(chunk);
  // Replicas that meet now and then pass steps that were due, and nobody releases those.
  const auto first = kept_.lower_bound({chunk, 0});
  const auto last = kept_.lower_bound({chunk + 1, 0});
  if (std::distance(first, last) > kKeptMax) {
    kept_.erase(first);
  }
}

std::vector<Buffers> ChunkStatistics::all() const {
  std::vector<Buffers> all;
  for (const auto& [chunk, buffers] : newest_) {
    all.push_back({c_.replica, chunk, buffers});
  }
  return all;
}

/// Where none were kept, no later forward has run, and the newest are those of the step; or the run's steps are not this
/// replica's own.
const std::vector<Tensor>& ChunkStatistics::at(std::int32_t chunk, std::int64_t step) const {
  const auto kept = kept_.find({chunk, step});
  return kept != kept_.end() ? kept->second : newest_.at(chunk);
}

void ChunkStatistics::release(std::int64_t step) {
  std::erase_if(kept_, [&](const auto& kept) { return kept.first.second == step; });
}

void ChunkStatistics::conclude(std::int64_t step, Effects& fx) {
  conclude_at_ = step;
  conclude_when_due(fx);
}

void ChunkStatistics::conclude_when_due(Effects& fx) {
  const bool due = conclude_at_ && std::all_of(done_.begin(), done_.end(), [&](const auto& done) {
                     return c_.served || done.second >= *conclude_at_;
                   });
  if (!due) {
    return;
  }
  for (const auto& [chunk, buffers] : newest_) {
    fx.send(c_.director, Buffers{c_.replica, chunk, at(chunk, *conclude_at_)});
  }
  conclude_at_.reset();
}

}  // namespace troupe
