// random_k: numbers at places that both ends draw from one seed. Konecny, McMahan, Yu, Richtarik,
// Suresh & Bacon 2016, arXiv:1610.05492.
#include "runtime/schemes/codecs/parts.hpp"
#include "runtime/schemes/codecs/summed_link.hpp"

#include <algorithm>

namespace troupe {
namespace {

/// k numbers of n, one of each of k strata, which are as equal as they can be.
class Strata {
 public:
  explicit Strata(const CodecContext& context)
      : density_(context.chosen.random_k().density()), feedback_(context.feedback) {}

  std::int64_t count(std::int64_t n) const { return codec_parts::count_of(density_, n); }

  /// f(a place, what its number is multiplied by): without feedback it stands for all that could have been
  /// in its place.
  template <class F>
  void for_each_place(std::uint64_t key, std::int64_t n, F&& f) const {
    RandomStream random(0, Purpose::sample);
    random.key = key;
    const std::int64_t k = count(n);
    for (std::int64_t j = 0; j < k; ++j) {
      const std::int64_t size = n / k + (j < n % k ? 1 : 0);
      const std::int64_t first = j * (n / k) + std::min(j, n % k);
      const auto at = random.below(static_cast<std::uint64_t>(j), static_cast<std::uint64_t>(size));
      f(first + static_cast<std::int64_t>(at), feedback_ ? 1.0f : static_cast<float>(size));
    }
  }

 private:
  double density_;
  bool feedback_;
};

/// The seed, then the numbers.
class RandomKCodec final : public Codec {
 public:
  explicit RandomKCodec(const CodecContext& context) : strata_(context) {}

  void encode(std::span<const float> x,
              LinkState& /*state*/,
              const RandomStream& random,
              std::vector<std::uint32_t>& message) const override {
    message.push_back(static_cast<std::uint32_t>(random.key));
    message.push_back(static_cast<std::uint32_t>(random.key >> 32));
    strata_.for_each_place(
        random.key, static_cast<std::int64_t>(x.size()), [&](std::int64_t place, float factor) {
          message.push_back(codec_parts::word_of(factor * x[static_cast<std::size_t>(place)]));
        });
  }

  Result<void> read(Words message, std::int64_t n, float* out) const override {
    auto right = codec_parts::of_length(message, 2 + strata_.count(n));
    if (!right || !out) {
      return right;
    }
    std::fill_n(out, n, 0.0f);
    std::size_t at = 2;
    const std::uint64_t key = message[0] | static_cast<std::uint64_t>(message[1]) << 32;
    strata_.for_each_place(key, n, [&](std::int64_t place, float /*factor*/) {
      out[place] = codec_parts::float_of_word(message[at++]);
    });
    return {};
  }

 private:
  Strata strata_;
};

/// The numbers alone, at places that all replicas draw.
class RandomKSum final : public SumCode {
 public:
  explicit RandomKSum(const CodecContext& context) : strata_(context) {}

  Numbers numbers(std::span<const float> x,
                  const std::vector<Numbers>& /*means*/,
                  const LinkState& /*state*/,
                  const RandomStream& random) const override {
    Numbers made;
    strata_.for_each_place(
        random.key, static_cast<std::int64_t>(x.size()), [&](std::int64_t place, float factor) {
          made.push_back(factor * x[static_cast<std::size_t>(place)]);
        });
    return made;
  }

  void decode(const std::vector<Numbers>& /*means*/,
              const Numbers& last,
              const RandomStream& random,
              std::span<float> out) const override {
    std::fill(out.begin(), out.end(), 0.0f);
    std::size_t at = 0;
    strata_.for_each_place(random.key,
                           static_cast<std::int64_t>(out.size()),
                           [&](std::int64_t place, float /*factor*/) {
                             out[static_cast<std::size_t>(place)] = last.at(at++);
                           });
  }

 private:
  Strata strata_;
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
      .bytes = "8 + 4 k, k = density n; 4 k in an all-reduce",
      .forgets = "all but k numbers; without feedback the mean is right",
      .codec = [](const CodecContext& c) { return std::make_unique<RandomKCodec>(c); },
      .linear =
          [](const CodecContext& c) {
            return std::make_unique<RandomKSum>(c);
          }};
}

}  // namespace codec_schemes

}  // namespace troupe
