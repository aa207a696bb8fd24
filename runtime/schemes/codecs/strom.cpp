// strom: where what has accumulated exceeds a threshold, its sign and place. Strom, Interspeech 2015.
#include "kernels/codes.hpp"
#include "runtime/schemes/codecs/parts.hpp"

#include <algorithm>
#include <cmath>

namespace troupe {
namespace {

using codec_parts::Places;

constexpr std::int64_t kAtOnce = 64;  // numbers that are passed over together
constexpr double kStep = 1.1;         // the threshold moves by at most this factor a message
constexpr double kLeast = 1e-30;      // and stays in these bounds
constexpr double kGreatest = 1e30;

/// The threshold, the number of places, the places. The sender's numbers[0] is a threshold that adapts.
class Strom final : public Codec {
 public:
  explicit Strom(const proto::StromCodec& options) : options_(options) {}

  void encode(std::span<const float> x,
              LinkState& state,
              const RandomStream& /*random*/,
              std::vector<std::uint32_t>& message) const override {
    const auto n = static_cast<std::int64_t>(x.size());
    const float tau = static_cast<float>(adapts() && !state.numbers.empty() ? state.numbers.front()
                                                                            : options_.threshold());
    Places places;
    for (std::int64_t first = 0; first < n; first += kAtOnce) {
      const std::int64_t size = std::min(kAtOnce, n - first);
      if (!codes::any_above(x.data() + first, tau, size)) {
        continue;
      }
      for (std::int64_t i = first; i < first + size; ++i) {
        const float v = x[static_cast<std::size_t>(i)];
        if (std::abs(v) > tau) {
          places.push_back(static_cast<std::uint32_t>(i) | (v < 0 ? ~codec_parts::kPlace : 0u));
        }
      }
    }
    message.push_back(codec_parts::word_of(tau));
    message.push_back(static_cast<std::uint32_t>(places.size()));
    codec_parts::write_places(places, true, options_.coding(), n, message);
    if (adapts()) {
      state.numbers = {adapted(tau, places.size(), n)};
    }
  }

  Result<void> read(Words message, std::int64_t n, float* out) const override {
    if (message.size() < 2) {
      return codec_parts::malformed("it has no threshold");
    }
    const auto places =
        codec_parts::read_places(message.subspan(2), message[1], true, options_.coding(), n);
    TROUPE_TRY(places);
    if (out) {
      const float tau = codec_parts::float_of_word(message[0]);
      std::fill_n(out, n, 0.0f);
      for (const std::uint32_t item : *places) {
        out[item & codec_parts::kPlace] = item > codec_parts::kPlace ? -tau : tau;
      }
    }
    return {};
  }

 private:
  bool adapts() const { return options_.density() > 0; }

  /// By the root of what was sent over what was to be sent, so that it does not swing.
  double adapted(double tau, std::size_t sent, std::int64_t n) const {
    const double wanted = std::max(1.0, options_.density() * static_cast<double>(n));
    const double ratio = std::sqrt((static_cast<double>(sent) + 0.5) / (wanted + 0.5));
    return std::clamp(tau * std::clamp(ratio, 1 / kStep, kStep), kLeast, kGreatest);
  }

  proto::StromCodec options_;
};

}  // namespace

namespace codec_schemes {

CodecScheme strom() {
  return {
      .info = {.name = "strom",
               .summary = "where what has accumulated exceeds the threshold, its place and its "
                          "sign, which stand for the threshold",
               .paper = "Strom, Interspeech 2015"},
      .equations = "c_j = tau sign(x_j) where |x_j| > tau, else 0",
      .bytes =
          "8 + 4 m, m the numbers above the threshold; golomb: 12 + m (log2(n / m) + 3) / 8, about",
      .forgets = "what is below the threshold, and above it; without feedback it is lost",
      .codec = [](const CodecContext& c) { return std::make_unique<Strom>(c.chosen.strom()); },
      .remembers =
          [](const proto::Codec& chosen) {
            return chosen.strom().density() > 0;
          }};
}

}  // namespace codec_schemes

}  // namespace troupe
