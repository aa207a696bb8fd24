// A data set that a program has in memory already: made here, handed in by register_dataset().
#pragma once

#include "kernels/result.hpp"
#include "kernels/shape.hpp"
#include "runtime/data/dataset.hpp"

#include <cstdint>
#include <memory>
#include <vector>

namespace troupe {

/// N samples, one after another.
struct MemorySamples {
  std::vector<float> x{};              // (N, sample shape)
  std::vector<std::int32_t> labels{};  // (N), each in [0, classes), where there are classes
  std::vector<float> values{};         // (N, values), where there are none
  std::vector<std::int64_t> lines{};   // (N), of the file that they are from; empty: from none
};

struct MemoryData {
  Shape sample{};           // of one sample: (F) for vectors, (H, W, C) for images
  int classes = 0;          // 0: targets are values
  std::int64_t values = 0;  // width of a target; 0 where targets are labels
  MemorySamples train{};
  MemorySamples test{};
  std::shared_ptr<const Preparation> preparation{};  // Dataset::preparation(); may be empty
};

/// Error (data) where the numbers do not make samples of that shape with a target each, a split has no
/// sample, a label is no class, or a number is not finite.
Result<std::shared_ptr<const Dataset>> memory_dataset(MemoryData data);

}  // namespace troupe
