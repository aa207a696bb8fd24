// What kernels/group_mean.hpp does between GPUs, by loops in host memory.
#pragma once

#include "kernels/group_mean.hpp"

#include <vector>

namespace troupe::test {

/// By replica and slice; every replica gets a copy of its own.
inline std::vector<std::vector<Tensor>> plain_mean(Stream& stream,
                                                   const GroupRanks& /*here*/,
                                                   const std::vector<std::vector<Tensor>>& parts) {
  std::vector<std::vector<Tensor>> means(parts.size());
  for (std::size_t s = 0; s < parts.front().size(); ++s) {
    const std::int64_t n = parts.front()[s].elements();
    std::vector<double> sums(static_cast<std::size_t>(n));
    for (const std::vector<Tensor>& of_replica : parts) {
      const auto values = of_replica.at(s).span<float>();
      for (std::size_t i = 0; i < sums.size(); ++i) {
        sums[i] += values[i];
      }
    }
    for (std::vector<Tensor>& mean : means) {
      mean.push_back(stream.allocate({n}));
      for (std::size_t i = 0; i < sums.size(); ++i) {
        mean.back().span<float>()[i] =
            static_cast<float>(sums[i] / static_cast<double>(parts.size()));
      }
    }
  }
  return means;
}

}  // namespace troupe::test
