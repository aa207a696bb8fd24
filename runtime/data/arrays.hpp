// Arrays of one's own: samples and targets by name out of a folder of .npy files, a .npz archive or a
// safetensors file.
//
//   samples (N, D)            vectors of D features
//   samples (N, H, W)         grey images
//   samples (N, H, W, C)      images of C channels
//   targets (N) or (N, 1)     labels 0, 1, ...; with `values` (N) or (N, V) numbers to predict
#pragma once

#include "kernels/result.hpp"
#include "runtime/data/dataset.hpp"

#include <cstdint>
#include <memory>

namespace troupe::proto {
class Arrays;
}  // namespace troupe::proto

namespace troupe {

/// Arrays in .npy files of at least so many bytes are not read into memory.
inline constexpr std::uintmax_t kArraysMappedFrom = std::uintmax_t{1} << 30;

/// Reads all arrays into memory; samples become float32, of at most 8 GiB. Where the samples are in a .npy file of
/// `mapped_from` bytes or more, they stay there, whatever its size, and each is read when its turn comes. Test samples are arrays of
/// their own, or drawn by `seed`. There are as many classes as the largest label asks for. `prepared`: as open_dataset's. Error (data)
/// with path and array, and of a wrong number its sample, where a file is malformed, shapes do not fit
/// each other or a number is not finite; (usage) where no file is named.
Result<std::shared_ptr<const Dataset>> open_arrays(const proto::Arrays& options,
                                                   std::uint64_t seed,
                                                   const Preparation* prepared = nullptr,
                                                   std::uintmax_t mapped_from = kArraysMappedFrom);

}  // namespace troupe
