// What a chunk's weights and buffers begin with.
#include "kernels/random.hpp"
#include "kernels/sequences.hpp"
#include "runtime/model/chunk.hpp"

#include <cmath>
#include <numbers>
#include <utility>

namespace troupe {
namespace {

std::vector<float> initial_values(const ParameterSpec& spec, std::uint64_t seed) {
  if (spec.piece) {
    return piece_values(spec, initial_values(spec.piece->of, seed));
  }
  std::vector<float> values(static_cast<std::size_t>(spec.shape.elements()));
  const RandomStream random(seed, Purpose::weights, name_key(spec.name.data(), spec.name.size()));
  const double scale = 1 / std::sqrt(static_cast<double>(spec.fan_in));
  for (std::size_t i = 0; i < values.size(); ++i) {
    double value = 0;
    switch (spec.initial) {
      case Initial::uniform_fan_in:
        value = scale * (2 * random.uniform(i) - 1);
        break;
      case Initial::lecun_normal:
        value = scale * random.normal(i);
        break;
      case Initial::he_normal:
        value = std::numbers::sqrt2 * scale * random.normal(i);
        break;
      case Initial::normal:
        value = spec.deviation * random.normal(i);
        break;
      case Initial::zero:
        break;
      case Initial::one:
        value = 1;
        break;
    }
    values[i] = static_cast<float>(value);
  }
  return values;
}

Tensor initial_tensor(const ParameterSpec& spec, std::uint64_t seed, Stream& stream) {
  return from_host(stream, initial_values(spec, seed), spec.shape);
}

}  // namespace

std::vector<Tensor> Chunk::initial_slices(Stream& stream, std::uint64_t seed) const {
  std::vector<Tensor> slices;
  for (const std::int64_t size : layout_.slice_sizes) {
    slices.push_back(stream.allocate({size}));
    fill(stream, slices.back(), 0);
  }
  for (const ParameterLayout::Entry& e : layout_.entries) {
    copy(
        stream, initial_tensor(e.spec, seed, stream), slices[e.slice].view(e.offset, e.spec.shape));
  }
  stream.synchronize();
  return slices;
}

std::vector<ParameterSpec> Chunk::buffers() const {
  std::vector<ParameterSpec> all;
  for (const auto& layer : layers_) {
    for (ParameterSpec& spec : layer->buffers()) {
      all.push_back(std::move(spec));
    }
  }
  return all;
}

std::vector<Tensor> Chunk::initial_buffers(Stream& stream) const {
  return mapped<Tensor>(buffers(),
                        [&](const ParameterSpec& spec) { return initial_tensor(spec, 0, stream); });
}

}  // namespace troupe
