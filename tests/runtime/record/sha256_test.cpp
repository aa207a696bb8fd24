#include "runtime/record/sha256.hpp"

#include "kernels/stream.hpp"
#include "runtime/record/weights_digest.hpp"
#include "tests/support/catch.hpp"

#include <string_view>

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
  Network network;
  network.input = {3};
  network.layers = {dense_layer("dense1", 3, 5, ActivationKind::relu, Initial::uniform_fan_in),
                    dense_layer("dense2", 5, 2, ActivationKind::none, Initial::uniform_fan_in)};
  Stream stream({});
  const auto digest = [&](const std::vector<std::int64_t>& cut) {
    std::vector<std::shared_ptr<const Chunk>> chunks;
    std::vector<Weights> weights;
    for (std::size_t c = 0; c < cut.size(); ++c) {
      const std::int64_t last = c + 1 < cut.size() ? cut[c + 1] : 2;
      chunks.push_back(
          std::make_shared<const Chunk>(network, static_cast<std::int32_t>(c), cut[c], last));
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
    const Chunk whole(network, 0, 0, 2);
    const std::vector<Tensor> slices = whole.initial_slices(stream, 1);
    for (const auto& layer : whole.views(slices)) {
      for (const Tensor& parameter : layer) {
        floats.append(reinterpret_cast<const char*>(parameter.data<float>()),
                      static_cast<std::size_t>(4 * parameter.elements()));
      }
    }
  }
  CHECK(digest({0}) == sha256(floats));
  CHECK(digest({0, 1}) == sha256(floats));
}
