// The newest weights of a server's slice, with their predictions, and what is sent in answer to
// uploads: the weights themselves, or what the rule makes of them for everybody or for one replica.
#pragma once

#include "messages/archive_sized.hpp"
#include "messages/update.hpp"

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace troupe {

class ServedWeights {
 public:
  /// Before the first update nothing has moved: every prediction is the slice itself.
  ServedWeights(Tensor initial, double rate, const std::vector<Reach>& reaches) {
    newest_.push_back({.values = std::move(initial), .rate = rate});
    for (const Reach& reach : reaches) {
      newest_.push_back(newest_.front());
      newest_.back().reach = reach;
    }
  }

  /// The slice, then its predictions.
  const Weights& newest() const { return newest_; }

  const Tensor& slice() const { return newest_.front().values; }

  /// Merged over the replicas, where they travel.
  const std::vector<Tensor>& moments() const { return moments_; }

  /// An update has been made. `rate`: of the one that follows.
  void set(Updated made, std::int64_t version, double rate) {
    place(0, std::move(made.next), version, rate);
    for (std::size_t p = 0; p < made.predictions.size(); ++p) {
      place(1 + p, std::move(made.predictions[p]), version, rate);
    }
    sent_ = std::move(made.sent);
    moments_ = std::move(made.moments);
  }

  /// A version that has the weights of the last one.
  void keep(std::int64_t version, double rate) {
    for (Slice& slice : newest_) {
      slice.version = version;
      slice.rate = rate;
    }
  }

  /// What a replica is answered with. `own`: made for it alone; may be empty.
  Weights answer(Tensor own) const {
    Weights weights = newest_;
    if (own) {
      weights.front().values = std::move(own);
    } else if (sent_) {
      weights.front().values = sent_;
    }
    return weights;
  }

  void archive(auto& a) {
    const std::int64_t numbers = slice().elements();
    archive_sized(a, newest_);
    a(sent_, moments_);
    expect_archived(slice().elements() == numbers, "the state has a slice of another size");
  }

 private:
  void place(std::size_t at, Tensor values, std::int64_t version, double rate) {
    Slice& slice = newest_.at(at);
    slice.values = std::move(values);
    slice.version = version;
    slice.rate = rate;
  }

  Weights newest_;
  Tensor sent_;  // in the slice's place in answers; empty: the slice
  std::vector<Tensor> moments_;
};

}  // namespace troupe
