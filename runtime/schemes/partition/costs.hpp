// What a cut costs in seconds and bytes: what both algorithms ask of every candidate. Private to this
// folder.
#pragma once

#include "runtime/schemes/partition/partition.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace troupe::partition {

/// "partition: ..." (usage).
Error usage(std::string message);

/// Error (usage) where the problem makes no sense.
Result<void> check(const PartitionProblem& problem);

/// Sums over layers [first, last) from sums over [0, i).
template <class T>
class RangeSums {
 public:
  template <class Of>
  RangeSums(const std::vector<LayerProfile>& layers, Of of) : sums_{T{}} {
    for (const LayerProfile& layer : layers) {
      sums_.push_back(sums_.back() + of(layer));
    }
  }

  T operator()(std::size_t first, std::size_t last) const { return sums_[last] - sums_[first]; }

 private:
  std::vector<T> sums_;  // (layers + 1)
};

/// A problem with the sums that every candidate asks for.
class Costs {
 public:
  explicit Costs(const PartitionProblem& p)
      : p_(p),
        seconds_(p.layers, [](const LayerProfile& l) { return l.seconds(); }),
        parameters_(p.layers, [](const LayerProfile& l) { return l.parameter_bytes; }),
        saved_(p.layers, [](const LayerProfile& l) { return l.saved_bytes; }) {
    for (const LayerProfile& layer : p.layers) {
      crossing_.push_back(layer.output_bytes);
    }
    for (const SkipProfile& skip : p.skips) {
      for (std::int64_t cut = skip.from; cut < skip.to; ++cut) {
        crossing_[static_cast<std::size_t>(cut)] += skip.bytes;
      }
    }
  }

  double compute(std::size_t first, std::size_t last) const { return seconds_(first, last); }

  /// Of a micro-batch on a stage of `replicas` devices.
  double stage(std::size_t first, std::size_t last, std::size_t replicas) const {
    const auto m = static_cast<double>(replicas);
    const auto weights = static_cast<double>(parameters_(first, last));
    const double all_reduce = 4 * (m - 1) * weights / (m * p_.bandwidth);
    return std::max(compute(first, last), all_reduce) / m;
  }

  /// Of the cut behind layer `last` - 1, there and back; nothing leaves the last layer.
  double link(std::size_t last) const {
    return last == p_.layers.size()
               ? 0
               : 2 * (static_cast<double>(crossing_[last - 1]) / p_.bandwidth + p_.latency);
  }

  /// With `following` stages or chunks from this one to the last.
  std::int64_t memory(std::size_t first, std::size_t last, std::size_t following) const {
    const auto stashes =
        std::min<std::int64_t>(p_.micro_batches, static_cast<std::int64_t>(following));
    return p_.parameter_copies * parameters_(first, last) + stashes * saved_(first, last);
  }

  bool fits(std::int64_t memory) const { return p_.memory_max == 0 || memory <= p_.memory_max; }

 private:
  const PartitionProblem& p_;
  RangeSums<double> seconds_;
  RangeSums<std::int64_t> parameters_;
  RangeSums<std::int64_t> saved_;
  std::vector<std::int64_t> crossing_;  // by layer: bytes that cross a cut behind it
};

}  // namespace troupe::partition
