#include "runtime/record/weights_digest.hpp"

#include "kernels/stream.hpp"
#include "runtime/record/sha256.hpp"

#include <bit>

namespace troupe {

static_assert(std::endian::native == std::endian::little);

std::string weights_sha256(const std::vector<std::shared_ptr<const Chunk>>& chunks,
                           const std::vector<Weights>& weights) {
  TROUPE_CHECK(chunks.size() == weights.size(),
               "[weights_sha256] ",
               chunks.size(),
               " chunks, ",
               weights.size(),
               " weights");
  Sha256 sha;
  for (std::size_t c = 0; c < chunks.size(); ++c) {
    std::vector<std::vector<float>> slices;
    for (const Slice& slice : weights[c]) {
      const std::vector<double> values =
          to_host(slice.values);  // a float survives the way through a double
      slices.emplace_back(values.begin(), values.end());
    }
    for (const ParameterLayout::Entry& entry : chunks[c]->layout().entries) {
      const float* first = slices.at(entry.slice).data() + entry.offset;
      sha.update(first, static_cast<std::size_t>(entry.spec.shape.elements()) * sizeof(float));
    }
  }
  return sha.finish();
}

}  // namespace troupe
