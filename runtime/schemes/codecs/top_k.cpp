// top_k, dgc: the greatest numbers with their places. Aji & Heafield, EMNLP 2017, arXiv:1704.05021;
// Lin, Han, Mao, Wang & Dally, ICLR 2018, arXiv:1712.01887.
#include "kernels/codes.hpp"
#include "runtime/schemes/codecs/parts.hpp"

#include <algorithm>
#include <cmath>

namespace troupe {
namespace {

using codec_parts::Places;
using codec_parts::Section;

/// Their number, the numbers, their places.
void write_sparse(std::span<const float> x,
                  const Places& places,
                  proto::PlaceCoding coding,
                  std::vector<std::uint32_t>& message) {
  message.push_back(static_cast<std::uint32_t>(places.size()));
  for (const std::uint32_t place : places) {
    message.push_back(codec_parts::word_of(x[place]));
  }
  codec_parts::write_places(places, false, coding, static_cast<std::int64_t>(x.size()), message);
}

Result<void> read_sparse(Words message, proto::PlaceCoding coding, std::int64_t n, float* out) {
  if (message.empty() || message[0] > message.size() - 1) {
    return codec_parts::malformed("it announces more numbers than it has");
  }
  const std::uint32_t count = message[0];
  const auto places = codec_parts::read_places(message.subspan(1 + count), count, false, coding, n);
  TROUPE_TRY(places);
  if (out) {
    std::fill_n(out, n, 0.0f);
    for (std::uint32_t i = 0; i < count; ++i) {
      out[(*places)[i]] = codec_parts::float_of_word(message[1 + i]);
    }
  }
  return {};
}

Places greatest_of(std::span<const float> x, const std::vector<Section>& sections, double density) {
  Places places;
  for (const Section& section : sections) {
    codec_parts::greatest_places(
        x.subspan(static_cast<std::size_t>(section.offset), static_cast<std::size_t>(section.size)),
        codec_parts::count_of(density, section.size),
        section.offset,
        places);
  }
  return places;
}

class TopKCodec final : public Codec {
 public:
  explicit TopKCodec(const CodecContext& context)
      : options_(context.chosen.top_k()),
        sections_(codec_parts::sections(context, options_.per())) {}

  void encode(std::span<const float> x,
              LinkState& /*state*/,
              const RandomStream& /*random*/,
              std::vector<std::uint32_t>& message) const override {
    write_sparse(x, greatest_of(x, sections_, options_.density()), options_.coding(), message);
  }

  Result<void> read(Words message, std::int64_t n, float* out) const override {
    return read_sparse(message, options_.coding(), n, out);
  }

 private:
  proto::TopK options_;
  std::vector<Section> sections_;
};

/// What accumulates is the velocity, or Nesterov's form of it, so that the residual is a sum of velocities;
/// tensors[1] is the velocity itself. Clipping and weight decay are in the gradient when it comes here.
class DgcCodec final : public Codec {
 public:
  explicit DgcCodec(const CodecContext& context)
      : options_(context.chosen.dgc()),
        sections_(codec_parts::sections(context)),
        elements_(context.elements) {}

  void prepare(std::span<float> update, LinkState& state) const override {
    if (update.empty()) {
      return;
    }
    const std::span<float> velocity = state.tensors.at(1).span<float>();
    const auto momentum = static_cast<float>(options_.momentum());
    for (std::size_t i = 0; i < update.size(); ++i) {
      velocity[i] = momentum * velocity[i] + update[i];
      update[i] = options_.nesterov() ? update[i] + momentum * velocity[i] : velocity[i];
    }
  }

  void encode(std::span<const float> x,
              LinkState& state,
              const RandomStream& /*random*/,
              std::vector<std::uint32_t>& message) const override {
    write_sparse(
        x, greatest_of(x, sections_, density_of(state.messages)), options_.coding(), message);
  }

  void sent(std::span<const float> decoded, LinkState& state) const override {
    if (options_.masking() && !decoded.empty()) {
      const std::span<float> velocity = state.tensors.at(1).span<float>();
      for (std::size_t i = 0; i < decoded.size(); ++i) {
        velocity[i] = decoded[i] != 0 ? 0 : velocity[i];
      }
    }
  }

  Result<void> read(Words message, std::int64_t n, float* out) const override {
    return read_sparse(message, options_.coding(), n, out);
  }

  std::int64_t kept() const override { return elements_; }

 private:
  /// From 1/4 by four equal factors.
  double density_of(std::int64_t message) const {
    constexpr double kFirst = 0.25;
    constexpr std::int64_t kStages = 4;
    if (message >= options_.warm_up() || options_.density() >= kFirst) {
      return options_.density();
    }
    const auto stage = static_cast<double>(message * kStages / options_.warm_up());
    return kFirst * std::pow(options_.density() / kFirst, stage / kStages);
  }

  proto::Dgc options_;
  std::vector<Section> sections_;
  std::int64_t elements_;
};

}  // namespace

namespace codec_schemes {

CodecScheme top_k() {
  return {.info = {.name = "top_k",
                   .summary = "the greatest numbers with their places",
                   .paper = "Aji & Heafield, EMNLP 2017, arXiv:1704.05021"},
          .equations = "c_j = x_j where |x_j| is among the k greatest, else 0; k = density n",
          .bytes = "4 + 8 k; golomb: 8 + k (4 + (log2(n / k) + 2) / 8), about",
          .forgets = "all but the k greatest; without feedback it is lost",
          .codec = [](const CodecContext& c) {
            return std::make_unique<TopKCodec>(c);
          }};
}

CodecScheme dgc() {
  return {
      .info = {.name = "dgc",
               .summary = "top_k of each tensor of a sum of velocities that the replica keeps "
                          "in the servers' place; weight decay goes through the velocity; "
                          "clip_norm is of the whole replica's gradient, but where chunks do not "
                          "wait for each other of each chunk's",
               .paper = "Lin, Han, Mao, Wang & Dally, ICLR 2018, arXiv:1712.01887; Nesterov's "
                        "form as in the authors' program, weight decay as in Paddle's"},
      .equations =
          "g <- g min(1, sqrt(R) clip_norm / |g|) + lambda w; u <- m u + g; v <- v + u, or with "
          "nesterov v + g + m u; c = top_k(v); v <- v - c; u_j <- 0 where sent. g is R times the "
          "paper's, which carries 1 / R and is clipped to clip_norm / sqrt(R)",
      .bytes = "4 + 8 k; golomb as top_k",
      .forgets = "nothing but, by masking, the velocity of what was sent",
      .codec = [](const CodecContext& c) { return std::make_unique<DgcCodec>(c); },
      .remembers = [](const proto::Codec&) { return true; },
      .velocity = true,
      .clip_norm =
          [](const proto::Codec& chosen, std::int64_t replicas) {
            return chosen.dgc().clip_norm() * std::sqrt(static_cast<double>(replicas));
          }};
}

}  // namespace codec_schemes

}  // namespace troupe
