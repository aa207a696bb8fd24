// MNIST and Fashion-MNIST from their four IDX files, plain or .gz:
//
//   train-images-idx3-ubyte   magic 0x00000803, count, rows, columns (big-endian), a byte a pixel
//   train-labels-idx1-ubyte   magic 0x00000801, count, a byte a label
//   t10k-images-idx3-ubyte, t10k-labels-idx1-ubyte
//
// Nothing that a header says is believed: memory grows with what has really been read, and a file
// must end where its header says.
#pragma once

#include "kernels/result.hpp"
#include "messages/proto.hpp"
#include "runtime/data/dataset.hpp"

#include <memory>
#include <string_view>

namespace troupe {

/// Which of the two; they differ in where they are looked for and in their statistics.
struct IdxFamily {
  std::string_view title;  // as people write it
  std::string_view name;   // of the choice in proto::Data, and of its folder in the usual places
  float mean;              // of the training pixels, in [0, 1]
  float deviation;
};

inline constexpr IdxFamily kMnist{"MNIST", "mnist", 0.1307f, 0.3081f};
inline constexpr IdxFamily kFashionMnist{"Fashion-MNIST", "fashion_mnist", 0.2860f, 0.3530f};

/// Reads all four files. With an empty `path`, from the first of the usual folders (folders.hpp)
/// that has all four. Error (data) where files are missing or malformed or
/// hold fewer samples than `limit`; Error (usage) where `pool` does not divide the images' side.
Result<std::shared_ptr<const Dataset>> open_idx(const IdxFamily& family, const proto::Idx& options);

}  // namespace troupe
