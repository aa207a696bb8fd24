// The shares of a mini-batch's gradient that other chunks have for parameters they share with this
// one. They come from other stages, before or after the chunk's own push.
#pragma once

#include "messages/optimizer.hpp"
#include "messages/weights.hpp"

#include <cstdint>
#include <map>
#include <utility>

namespace troupe {

class TiedShares {
 public:
  /// `each`: shares that belong to a mini-batch.
  explicit TiedShares(std::size_t each) : each_(each) {}

  void keep(TiedPush m) {
    shares_[m.stamp.batch][{m.slice, m.stamp.chunk}] = std::move(m.gradient);
  }

  bool complete(std::int64_t batch) const {
    const auto found = shares_.find(batch);
    return (found == shares_.end() ? 0 : found->second.size()) >= each_;
  }

  /// In the order of slices and chunks; empty where they have been taken already.
  TiedGradients take(std::int64_t batch) {
    TiedGradients all;
    if (auto of_batch = shares_.extract(batch); !of_batch.empty()) {
      for (auto& [key, gradient] : of_batch.mapped()) {
        all.emplace_back(key.first, std::move(gradient));
      }
    }
    return all;
  }

  void archive(auto& a) { a(shares_); }

 private:
  std::size_t each_;
  // By batch, by slice and sender's chunk
  std::map<std::int64_t, std::map<std::pair<std::size_t, std::int32_t>, Tensor>> shares_;
};

}  // namespace troupe
