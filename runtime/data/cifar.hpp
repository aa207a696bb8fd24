// CIFAR-10 and CIFAR-100 (Krizhevsky 2009) from their binary files, plain or .gz, records one after
// another:
//
//   CIFAR-10    data_batch_1.bin .. data_batch_5.bin, test_batch.bin
//               record: class, then 1024 bytes of red, 1024 of green, 1024 of blue, row by row
//   CIFAR-100   train.bin, test.bin
//               record: coarse class (of 20), fine class (of 100), then as above
//
// Samples are (32, 32, 3), each colour minus its mean over its deviation.
#pragma once

#include "kernels/result.hpp"
#include "messages/proto.hpp"
#include "runtime/data/dataset.hpp"

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

namespace troupe {

inline constexpr std::array<std::string_view, 6> kCifar10Files{"data_batch_1.bin",
                                                               "data_batch_2.bin",
                                                               "data_batch_3.bin",
                                                               "data_batch_4.bin",
                                                               "data_batch_5.bin",
                                                               "test_batch.bin"};
inline constexpr std::array<std::string_view, 2> kCifar100Files{"train.bin", "test.bin"};

/// Which of the two.
struct CifarFamily {
  std::string_view title;  // as people write it
  std::string_view name;   // of the choice in proto::Data, and of its folder in the usual places
  std::span<const std::string_view> files;  // the last one is the test set
  int classes;
  bool coarse;                // a coarse class stands before the fine one
  std::array<float, 3> mean;  // of the training pixels in [0, 1]: red, green, blue
  std::array<float, 3> deviation;
};

inline constexpr CifarFamily kCifar10{"CIFAR-10",
                                      "cifar10",
                                      kCifar10Files,
                                      10,
                                      false,
                                      {0.4914f, 0.4822f, 0.4465f},
                                      {0.2470f, 0.2435f, 0.2616f}};
inline constexpr CifarFamily kCifar100{"CIFAR-100",
                                       "cifar100",
                                       kCifar100Files,
                                       100,
                                       true,
                                       {0.5071f, 0.4865f, 0.4409f},
                                       {0.2673f, 0.2564f, 0.2762f}};

/// Reads all files. With an empty `path`, from the first of the usual folders (folders.hpp) that has
/// all of them. With `augment`, a training image is cropped out of itself with 4 black pixels on
/// every side, and mirrored half of the time (He et al. 2016), by (seed, epoch, index).
/// Error (data) where files are missing, end within a record, name a class that there is not, or
/// hold fewer samples than `limit`.
Result<std::shared_ptr<const Dataset>> open_cifar(const CifarFamily& family,
                                                  const proto::Cifar& options,
                                                  std::uint64_t seed);

}  // namespace troupe
