// none, fp16, bf16: what travels as it is, and in half as many bytes.
#include "kernels/codes.hpp"
#include "runtime/schemes/codecs/parts.hpp"

namespace troupe {
namespace {

/// 16 bits a number, two numbers a word.
class Halves final : public Codec {
 public:
  using To = void (*)(const float*, std::uint16_t*, std::int64_t);
  using From = void (*)(const std::uint16_t*, float*, std::int64_t);

  Halves(To to, From from, CodeKind kind) : to_(to), from_(from), kind_(kind) {}

  void encode(std::span<const float> x,
              LinkState& /*state*/,
              const RandomStream& /*random*/,
              std::vector<std::uint32_t>& message) const override {
    const auto n = static_cast<std::int64_t>(x.size());
    const std::size_t at = message.size();
    message.resize(at + static_cast<std::size_t>(codec_parts::parts_of(n, 2)));
    to_(x.data(), reinterpret_cast<std::uint16_t*>(message.data() + at), n);
  }

  Result<void> read(Words message, std::int64_t n, float* out) const override {
    auto right = codec_parts::of_length(message, codec_parts::parts_of(n, 2));
    if (right && out) {
      from_(reinterpret_cast<const std::uint16_t*>(message.data()), out, n);
    }
    return right;
  }

  std::optional<MessageCode> code(const RandomStream& /*random*/) const override {
    return MessageCode{.kind = kind_};
  }

 private:
  To to_;
  From from_;
  CodeKind kind_;
};

}  // namespace

namespace codec_schemes {

CodecScheme none() {
  return {.info = {.name = "none", .summary = "fp32, as they are"},
          .equations = "c = x",
          .bytes = "4 n",
          .forgets = "nothing",
          .whole = true};
}

CodecScheme fp16() {
  return {
      .info = {.name = "fp16",
               .summary = "half precision, to the nearest; magnitudes above 65504 become 65504"},
      .equations = "c = fp16(x)",
      .bytes = "2 n",
      .forgets = "what is behind 11 bits of a number, and below 2^-25",
      .codec =
          [](const CodecContext&) {
            return std::make_unique<Halves>(codes::to_halves, codes::from_halves, CodeKind::halves);
          },
      .whole = true,
      .recoded = true};
}

CodecScheme bf16() {
  return {.info = {.name = "bf16", .summary = "bfloat16, to the nearest: the range of fp32"},
          .equations = "c = bf16(x)",
          .bytes = "2 n",
          .forgets = "what is behind 8 bits of a number",
          .codec =
              [](const CodecContext&) {
                return std::make_unique<Halves>(
                    codes::to_bfloats, codes::from_bfloats, CodeKind::bfloats);
              },
          .whole = true,
          .recoded = true};
}

}  // namespace codec_schemes

}  // namespace troupe
