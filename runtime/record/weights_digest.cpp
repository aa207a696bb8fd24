#include "runtime/record/weights_digest.hpp"

#include "kernels/stream.hpp"
#include "runtime/record/sha256.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <span>

namespace troupe {

static_assert(std::endian::native == std::endian::little);

namespace {

/// Shows `see` the values of every parameter, in layer order.
template <class See>
void each_parameter(const std::vector<std::shared_ptr<const Chunk>>& chunks,
                    const std::vector<Weights>& weights,
                    const See& see) {
  TROUPE_CHECK(chunks.size() == weights.size(),
               "[weights] ",
               chunks.size(),
               " chunks, ",
               weights.size(),
               " weights");
  for (std::size_t c = 0; c < chunks.size(); ++c) {
    std::vector<std::vector<float>> slices;
    for (const Slice& slice : weights[c]) {
      const std::vector<double> values =
          to_host(slice.values);  // a float survives the way through a double
      slices.emplace_back(values.begin(), values.end());
    }
    for (const ParameterLayout::Entry& entry : chunks[c]->layout().entries) {
      const float* first = slices.at(entry.slice).data() + entry.offset;
      see(std::span(first, static_cast<std::size_t>(entry.spec.shape.elements())));
    }
  }
}

}  // namespace

std::string weights_sha256(const std::vector<std::shared_ptr<const Chunk>>& chunks,
                           const std::vector<Weights>& weights) {
  Sha256 sha;
  each_parameter(chunks, weights, [&](std::span<const float> values) {
    sha.update(values.data(), values.size_bytes());
  });
  return sha.finish();
}

bool all_finite(const std::vector<std::shared_ptr<const Chunk>>& chunks,
                const std::vector<Weights>& weights) {
  bool finite = true;
  each_parameter(chunks, weights, [&](std::span<const float> values) {
    finite &= std::all_of(values.begin(), values.end(), [](float x) { return std::isfinite(x); });
  });
  return finite;
}

}  // namespace troupe
