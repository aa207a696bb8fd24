#include "runtime/record/sha256.hpp"

#include "kernels/stream.hpp"
#include "runtime/model/layers.hpp"
#include "runtime/record/weights_digest.hpp"
#include "tests/support/catch.hpp"

#include <string_view>

namespace sha256_test {

using namespace troupe;

namespace {

std::string sha256(std::string_view text) {
  Sha256 sha;
  sha.update(text.data(), text.size());
  return sha.finish();
}

}  // namespace

TEST_CASE("digests are those of FIPS 180-4", "[record]") {
  CHECK(sha256("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(sha256("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST_CASE("pieces digest like the whole", "[record]") {
  Sha256 sha;
  sha.update("a", 1);
  sha.update("", 0);
  sha.update("bc", 2);
  CHECK(sha.finish() == sha256("abc"));
}

TEST_CASE("the digest of weights depends on neither the cut nor the padding", "[record]") {
  Network network({3});
  network.add(
      dense_layer("dense1", {.inputs = 3, .outputs = 5, .activation = ActivationKind::relu}));
  network.add(dense_layer("dense2", {.inputs = 5, .outputs = 2}));
  Stream stream({});
  const auto digest = [&](const std::vector<std::int64_t>& cut) {
    std::vector<std::shared_ptr<const Chunk>> chunks;
    std::vector<Weights> weights;
    for (std::size_t c = 0; c < cut.size(); ++c) {
      chunks.push_back(std::make_shared<const Chunk>(network, cut, static_cast<std::int32_t>(c)));
      Weights of_chunk;
      for (Tensor& slice : chunks.back()->initial_slices(stream, 1)) {
        of_chunk.push_back({.values = std::move(slice)});
      }
      weights.push_back(std::move(of_chunk));
    }
    return weights_sha256(chunks, weights);
  };
  std::string floats;  // the definition, written out
  {
    const Chunk whole(network, {0}, 0);
    const std::vector<Tensor> slices = whole.initial_slices(stream, 1);
    for (const ParameterLayout::Entry& entry : whole.layout().entries) {
      const Tensor parameter = slices[entry.slice].view(entry.offset, entry.spec.shape);
      floats.append(reinterpret_cast<const char*>(parameter.data<float>()),
                    static_cast<std::size_t>(4 * parameter.elements()));
    }
  }
  CHECK(digest({0}) == sha256(floats));
  CHECK(digest({0, 1}) == sha256(floats));
}

}  // namespace sha256_test
