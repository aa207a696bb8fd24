// random_k: numbers at places that both ends draw from one seed. Konecny, McMahan, Yu, Richtarik,
// Suresh & Bacon 2016, arXiv:1610.05492.
#include "runtime/schemes/codecs/parts.hpp"

#include <algorithm>

namespace troupe {
namespace {

/// The seed, then a number of each of k strata, which are as equal as they can be.
class RandomKCodec final : public Codec {
 public:
  explicit RandomKCodec(const CodecContext& context)
      : density_(context.chosen.random_k().density()), feedback_(context.feedback) {}

  void encode(std::span<const float> x,
              LinkState& /*state*/,
              const RandomStream& random,
              std::vector<std::uint32_t>& message) const override {
    const auto n = static_cast<std::int64_t>(x.size());
    message.push_back(static_cast<std::uint32_t>(random.key));
    message.push_back(static_cast<std::uint32_t>(random.key >> 32));
    for_each_place(random.key, n, [&](std::int64_t place, std::int64_t size) {
      // Without feedback each number stands for all that could have been in its place.
      const float factor = feedback_ ? 1.0f : static_cast<float>(size);
      message.push_back(codec_parts::word_of(factor * x[static_cast<std::size_t>(place)]));
    });
  }

  Result<void> read(Words message, std::int64_t n, float* out) const override {
    auto right = codec_parts::of_length(message, 2 + codec_parts::count_of(density_, n));
    if (!right || !out) {
      return right;
    }
    std::fill_n(out, n, 0.0f);
    std::size_t at = 2;
    const std::uint64_t key = message[0] | static_cast<std::uint64_t>(message[1]) << 32;
    for_each_place(key, n, [&](std::int64_t place, std::int64_t /*size*/) {
      out[place] = codec_parts::float_of_word(message[at++]);
    });
    return {};
  }

 private:
  /// f(a place, the size of its stratum)
  template <class F>
  void for_each_place(std::uint64_t key, std::int64_t n, F&& f) const {
    RandomStream random(0, Purpose::sample);
    random.key = key;
    const std::int64_t k = codec_parts::count_of(density_, n);
    for (std::int64_t j = 0; j < k; ++j) {
      const std::int64_t size = n / k + (j < n % k ? 1 : 0);
      const std::int64_t first = j * (n / k) + std::min(j, n % k);
      const auto at = random.below(static_cast<std::uint64_t>(j), static_cast<std::uint64_t>(size));
      f(first + static_cast<std::int64_t>(at), size);
    }
  }

  double density_;
  bool feedback_;
};

}  // namespace

namespace codec_schemes {

CodecScheme random_k() {
  return {
      .info = {.name = "random_k",
               .summary = "numbers at places that both ends draw from one seed, one place in "
                          "each of k strata of the slice; without feedback times their size",
               .paper = "Konecny, McMahan, Yu, Richtarik, Suresh & Bacon 2016, arXiv:1610.05492"},
      .equations = "c_j = x_j at k places, else 0; without feedback c_j = (n / k) x_j",
      .bytes = "8 + 4 k, k = density n",
      .forgets = "all but k numbers; without feedback the mean is right",
      .codec = [](const CodecContext& c) {
        return std::make_unique<RandomKCodec>(c);
      }};
}

}  // namespace codec_schemes

}  // namespace troupe
