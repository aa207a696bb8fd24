// The weights of a network as a file that PyTorch users can load: our names ("conv1.weight",
// "dense1.bias"), PyTorch's order of elements.
//
//   parameter                          here              in the file
//   dense weight                       (out, in)         (out, in)
//   convolution filters                (O, kh, kw, C)    (O, C, kh, kw)
//   dense weight on an image (H, W, C) (out, H * W * C)  (out, C * H * W)
//
// The last is a matter of order alone: here images are NHWC and are flattened so, in PyTorch they
// are NCHW when x.flatten(1) meets them. A layer says so of its parameters (ParameterSpec::order); all
// others stand in the file as they are here.
#pragma once

#include "kernels/stream.hpp"
#include "runtime/checkpoint/safetensors.hpp"
#include "runtime/data/preparation.hpp"
#include "runtime/model/chunk.hpp"

#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// What a run leaves in its folder.
inline constexpr std::string_view kWeightsFile = "weights.safetensors";

/// One parameter as it stands in a file.
struct WeightSpec {
  std::string name;
  Shape shape;      // here: of at most 5 dimensions, the order of elements as above
  Shape flattened;  // (H, W, C) where a dense layer flattens images; else no dimensions
  FileOrder order = FileOrder::as_in_memory;

  /// In the file.
  Shape file_shape() const;
};

/// The elements of one parameter, in the order that they have here.
using ParameterValues = std::vector<float>;

/// All parameters in layer order, tied ones where they come first; then all buffers.
std::vector<WeightSpec> weight_specs(const Network& network);

/// Writes the parameters as F32, with the metadata {"format": "pt", "troupe": version}, and with what the
/// data of their training has gone through where that is not null; values[i] belongs to specs[i]. The file
/// is there whole or not at all. Error (lost) with path and reason.
Result<void> write_weights(const std::filesystem::path& path,
                           const std::vector<WeightSpec>& specs,
                           const std::vector<ParameterValues>& values,
                           std::string_view version,
                           const Preparation* preparation = nullptr);

/// The parameters by name, in the order of `specs`, from F32, F16 or BF16; without values those whose
/// names are like one of `skip` (fnmatch's patterns), whatever the file has of them. A folder stands for its
/// weights.safetensors. Error (data) where the file is not usable, or not exactly these parameters
/// are in it: each that is missing, has another shape or dtype, or has no place in the network is
/// named. Error (usage) where nothing is like one of `skip`.
Result<std::vector<ParameterValues>> read_weights(const std::filesystem::path& path,
                                                  const std::vector<WeightSpec>& specs,
                                                  const std::vector<std::string>& skip = {});

/// The same of a file that has been opened.
Result<std::vector<ParameterValues>> read_weights(const SafetensorsFile& file,
                                                  const std::vector<WeightSpec>& specs,
                                                  const std::vector<std::string>& skip);

/// What the data of their training has gone through, where the file tells. Error (data) where the file is not
/// usable or what it tells is not.
Result<std::optional<Preparation>> read_preparation(const std::filesystem::path& path);

/// `path`, or the weights.safetensors in it where it is a folder.
std::filesystem::path weights_path(const std::filesystem::path& path);

/// The parameters and buffers of a run's end, in the order of weight_specs. `weights`, `buffers`:
/// by chunk, each of one View. Blocks until they are ready.
std::vector<ParameterValues> values_of(const std::vector<std::shared_ptr<const Chunk>>& chunks,
                                       const std::vector<Weights>& weights,
                                       const std::vector<std::vector<Tensor>>& buffers);

/// A chunk's slices with these values, one an entry of the layout, on the stream's device; the
/// padding is zero. Ready when it returns.
std::vector<Tensor> slices_of(Stream& stream,
                              const ParameterLayout& layout,
                              std::span<const ParameterValues> values);

}  // namespace troupe
