#include "runtime/checkpoint/weights.hpp"

#include "kernels/wording.hpp"
#include "runtime/data/number_array.hpp"
#include "runtime/data/preparation_text.hpp"
#include "runtime/record/json.hpp"

#include <fnmatch.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace troupe {
namespace {

constexpr std::size_t kDifferencesMax = 20;  // named in one sentence

/// Blocks of channels-last images among the elements: (count, pixels, channels) here and (count,
/// channels, pixels) in the file.
struct Images {
  std::int64_t count = 0;
  std::int64_t pixels = 0;
  std::int64_t channels = 0;
};

std::optional<Images> images_of(const WeightSpec& spec) {
  if (spec.order == FileOrder::filters) {
    return Images{spec.shape[0], spec.shape[1] * spec.shape[2], spec.shape[3]};
  }
  if (spec.flattened.dimensions() == 3) {
    return Images{spec.shape[0], spec.flattened[0] * spec.flattened[1], spec.flattened[2]};
  }
  return std::nullopt;
}

/// (count, rows, columns) -> (count, columns, rows)
ParameterValues transposed(const ParameterValues& from,
                           std::int64_t count,
                           std::int64_t rows,
                           std::int64_t columns) {
  ParameterValues to(from.size());
  auto out = to.begin();
  for (std::int64_t i = 0; i < count; ++i) {
    const auto block = from.begin() + i * rows * columns;
    for (std::int64_t column = 0; column < columns; ++column) {
      for (std::int64_t row = 0; row < rows; ++row) {
        *out++ = block[row * columns + column];
      }
    }
  }
  return to;
}

ParameterValues to_file(const WeightSpec& spec, const ParameterValues& values) {
  const auto images = images_of(spec);
  return images ? transposed(values, images->count, images->pixels, images->channels) : values;
}

ParameterValues from_file(const WeightSpec& spec, const ParameterValues& values) {
  const auto images = images_of(spec);
  return images ? transposed(values, images->count, images->channels, images->pixels) : values;
}

std::vector<std::int64_t> extents_of(const Shape& shape) {
  std::vector<std::int64_t> extents;
  for (int i = 0; i < shape.dimensions(); ++i) {
    extents.push_back(shape[i]);
  }
  return extents;
}

bool is_like(const std::string& name, const std::string& pattern) {
  return ::fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
}

bool is_skipped(const std::string& name, const std::vector<std::string>& skip) {
  return std::any_of(
      skip.begin(), skip.end(), [&](const std::string& pattern) { return is_like(name, pattern); });
}

/// What keeps `file` from being exactly `specs` but for those that are skipped.
std::vector<std::string> differences(const SafetensorsFile& file,
                                     const std::vector<WeightSpec>& specs,
                                     const std::vector<std::string>& skip) {
  std::vector<std::string> all;
  std::map<std::string_view, const WeightSpec*> wanted;
  for (const WeightSpec& spec : specs) {
    wanted.emplace(spec.name, &spec);
    if (is_skipped(spec.name, skip)) {
      continue;
    }
    const SafetensorsEntry* const entry = file.find(spec.name);
    const std::vector<std::int64_t> shape = extents_of(spec.file_shape());
    if (!entry) {
      all.push_back(concat(spec.name, " ", extents_text(shape), " is missing"));
    } else if (entry->shape != shape) {
      all.push_back(
          concat(spec.name, " is ", extents_text(entry->shape), ", not ", extents_text(shape)));
    } else if (!readable_as_floats(entry->dtype)) {
      all.push_back(concat(spec.name, " is ", entry->dtype, ", not F32, F16 or BF16"));
    }
  }
  for (const SafetensorsEntry& entry : file.entries()) {
    // PyTorch's batch norms count their batches beside their statistics; nothing here reads that.
    if (!wanted.contains(entry.name) && !is_skipped(entry.name, skip) &&
        !entry.name.ends_with(".num_batches_tracked")) {
      all.push_back(concat(
          json_string(entry.name), " ", extents_text(entry.shape), " has no place in the network"));
    }
  }
  return all;
}

std::string joined(const std::vector<std::string>& sentences) {
  std::string text;
  for (std::size_t i = 0; i < std::min(sentences.size(), kDifferencesMax); ++i) {
    text += (i > 0 ? "; " : "") + sentences[i];
  }
  if (sentences.size() > kDifferencesMax) {
    text += concat("; and ", sentences.size() - kDifferencesMax, " more");
  }
  return text;
}

}  // namespace

Shape WeightSpec::file_shape() const {
  return order == FileOrder::filters ? Shape{shape[0], shape[3], shape[1], shape[2]} : shape;
}

std::vector<WeightSpec> weight_specs(const Network& network) {
  std::vector<WeightSpec> specs;
  std::set<std::string> tied;
  Shape input = network.input;
  for (std::size_t i = 0; i < network.layers.size(); ++i) {
    for (const ParameterSpec& parameter : network.layers[i]->parameters()) {
      if (parameter.tied && !tied.insert(parameter.name).second) {
        continue;
      }
      const bool flattens = parameter.order == FileOrder::flattens && input.dimensions() == 3;
      specs.push_back(
          {parameter.name, parameter.shape, flattens ? input : Shape{}, parameter.order});
    }
    input = network.after[i].front().shape;
  }
  for (const auto& layer : network.layers) {
    for (const ParameterSpec& buffer : layer->buffers()) {
      specs.push_back({buffer.name, buffer.shape, {}, buffer.order});
    }
  }
  return specs;
}

Result<void> write_weights(const std::filesystem::path& path,
                           const std::vector<WeightSpec>& specs,
                           const std::vector<ParameterValues>& values,
                           std::string_view version,
                           const Preparation* preparation) {
  TROUPE_CHECK(specs.size() == values.size(),
               fill_in("[write_weights] {} parameters, values of {}", specs.size(), values.size()));
  std::vector<ParameterValues> ordered;
  std::vector<SafetensorsEntry> entries;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    TROUPE_CHECK(static_cast<std::int64_t>(values[i].size()) == specs[i].shape.elements(),
                 fill_in("[write_weights] {} has {} values", specs[i].name, values[i].size()));
    ordered.push_back(to_file(specs[i], values[i]));
    entries.push_back({specs[i].name,
                       "F32",
                       extents_of(specs[i].file_shape()),
                       std::as_bytes(std::span(ordered.back()))});
  }
  std::map<std::string, std::string> metadata{{"format", "pt"}, {"troupe", std::string(version)}};
  if (preparation) {
    metadata.emplace(kPreparationKey, preparation_text(*preparation));
  }
  return write_safetensors(path, entries, metadata);
}

Result<std::vector<ParameterValues>> read_weights(const std::filesystem::path& path,
                                                  const std::vector<WeightSpec>& specs,
                                                  const std::vector<std::string>& skip) {
  const auto file = SafetensorsFile::open(weights_path(path));
  return file ? read_weights(*file, specs, skip) : file.error();
}

Result<std::vector<ParameterValues>> read_weights(const SafetensorsFile& file,
                                                  const std::vector<WeightSpec>& specs,
                                                  const std::vector<std::string>& skip) {
  for (const std::string& pattern : skip) {
    if (std::ranges::none_of(specs,
                             [&](const WeightSpec& spec) { return is_like(spec.name, pattern); })) {
      return usage_error("no parameter of the network is called like {}", json_string(pattern));
    }
  }
  if (const auto different = differences(file, specs, skip); !different.empty()) {
    return data_error("{} does not fit the network: {}", file.path().string(), joined(different));
  }
  std::vector<ParameterValues> values;
  for (const WeightSpec& spec : specs) {
    values.push_back(is_skipped(spec.name, skip)
                         ? ParameterValues{}
                         : from_file(spec, floats_of(*file.find(spec.name))));
  }
  return values;
}

Result<std::optional<Preparation>> read_preparation(const std::filesystem::path& path) {
  const auto file = SafetensorsFile::open(weights_path(path));
  TROUPE_TRY(file);
  const auto told = file->metadata().find(kPreparationKey);
  if (told == file->metadata().end()) {
    return std::optional<Preparation>();
  }
  auto preparation = parse_preparation(told->second);
  if (!preparation) {
    return data_error("{} is not usable: {}", file->path().string(), preparation.error().message);
  }
  return std::optional(*std::move(preparation));
}

std::filesystem::path weights_path(const std::filesystem::path& path) {
  std::error_code code;
  return std::filesystem::is_directory(path, code) ? path / kWeightsFile : path;
}

namespace {

/// The values of whole parameters, in the order in which they are met; those that are cut in width are put together.
class WholeValues {
 public:
  void add(const ParameterSpec& spec, ParameterValues values) {
    if (!spec.piece) {
      all_.push_back(std::move(values));
      return;
    }
    const ParameterSpec& whole = spec.piece->of;
    const auto [place, is_new] = places_.try_emplace(whole.name, all_.size());
    if (is_new) {
      all_.emplace_back(static_cast<std::size_t>(whole.shape.elements()));
    }
    put_piece(spec, values, all_[place->second]);
  }

  std::vector<ParameterValues> take() && { return std::move(all_); }

 private:
  std::vector<ParameterValues> all_;
  std::map<std::string, std::size_t> places_;  // of those that are cut
};

}  // namespace

std::vector<ParameterValues> values_of(const std::vector<std::shared_ptr<const Chunk>>& chunks,
                                       const std::vector<Weights>& weights,
                                       const std::vector<std::vector<Tensor>>& buffers) {
  TROUPE_CHECK(chunks.size() == weights.size(),
               fill_in("[values_of] {} chunks, {} weights", chunks.size(), weights.size()));
  WholeValues values;
  for (std::size_t c = 0; c < chunks.size(); ++c) {
    std::vector<std::vector<double>> slices;
    for (const Slice& slice : weights[c]) {
      slices.push_back(to_host(slice.values));
    }
    for (const ParameterLayout::Entry& entry : chunks[c]->layout().entries) {
      const auto first = slices.at(entry.slice).begin() + entry.offset;
      values.add(entry.spec, {first, first + entry.spec.shape.elements()});
    }
  }
  for (std::size_t c = 0; c < buffers.size(); ++c) {
    const std::vector<ParameterSpec> specs = chunks[c]->buffers();
    for (std::size_t i = 0; i < buffers[c].size(); ++i) {
      const std::vector<double> elements = to_host(buffers[c][i]);
      values.add(specs.at(i), {elements.begin(), elements.end()});
    }
  }
  return std::move(values).take();
}

std::vector<Tensor> slices_of(Stream& stream,
                              const ParameterLayout& layout,
                              std::span<const ParameterValues> values) {
  TROUPE_CHECK(
      values.size() == layout.entries.size(),
      fill_in("[slices_of] {} parameters, values of {}", layout.entries.size(), values.size()));
  std::vector<std::vector<float>> slices;
  for (const std::int64_t size : layout.slice_sizes) {
    slices.emplace_back(static_cast<std::size_t>(size));
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    const ParameterLayout::Entry& entry = layout.entries[i];
    TROUPE_CHECK(static_cast<std::int64_t>(values[i].size()) == entry.spec.shape.elements(),
                 fill_in("[slices_of] {} has {} values", entry.spec.name, values[i].size()));
    std::copy(values[i].begin(), values[i].end(), slices[entry.slice].begin() + entry.offset);
  }
  std::vector<Tensor> tensors;
  for (const std::vector<float>& slice : slices) {
    tensors.push_back(from_host(stream, slice, {static_cast<std::int64_t>(slice.size())}));
  }
  stream.synchronize();
  return tensors;
}

}  // namespace troupe
