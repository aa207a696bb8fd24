// Samples that stay in their arrays, each converted when its turn comes: for arrays larger than memory.
#pragma once

#include "runtime/data/dataset.hpp"
#include "runtime/data/number_array.hpp"
#include "runtime/data/preparation.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace troupe {

/// Rows of a pair of arrays. All numbers have been checked.
struct StreamedRows {
  std::string path;  // for sentences
  NumberArray x;     // (N, ...)
  NumberArray y;     // (N) or (N, V)
  std::vector<std::int64_t> rows{};
};

struct StreamedData {
  Shape sample{};                       // of one sample
  int classes = 0;                      // 0: targets are values
  std::int64_t values = 0;              // width of a target; 0 where targets are labels
  std::vector<ColumnScale> x_scales{};  // by column or channel
  std::vector<ColumnScale> y_scales{};
  StreamedRows train{};
  StreamedRows test{};
  std::shared_ptr<const Preparation> preparation{};
};

/// A gather throws std::runtime_error with one sentence where a file has become shorter.
std::shared_ptr<const Dataset> streamed_arrays(StreamedData data);

}  // namespace troupe
