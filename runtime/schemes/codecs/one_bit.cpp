// one_bit: each number becomes one of two values. Seide, Fu, Droppo, Li & Yu, Interspeech 2014.
#include "kernels/codes.hpp"
#include "runtime/schemes/codecs/parts.hpp"

namespace troupe {
namespace {

using codec_parts::parts_of;

/// The two values of each row, then a bit a number.
class OneBitCodec final : public Codec {
 public:
  explicit OneBitCodec(const CodecContext& context) {
    const bool columns = context.chosen.one_bit().per() == proto::OneBit::column;
    for (const codec_parts::Section& section : codec_parts::sections(context)) {
      const std::int64_t count = columns ? section.rows : 1;
      sections_.push_back({section.offset, section.size / count, count});
      rows_ += count;
    }
  }

  void encode(std::span<const float> x,
              LinkState& /*state*/,
              const RandomStream& /*random*/,
              std::vector<std::uint32_t>& message) const override {
    const auto n = static_cast<std::int64_t>(x.size());
    const std::size_t at = message.size();
    message.resize(at + static_cast<std::size_t>(words(n)));
    std::uint32_t* values = message.data() + at;
    codes::signs_of(x.data(), values + 2 * rows_, n);
    for_each_row([&](std::int64_t first, std::int64_t size) {
      const codes::Signs sums = codes::sums_by_sign(x.data() + first, size);
      const auto mean = [](double sum, std::int64_t count) {
        return codec_parts::word_of(count > 0 ? static_cast<float>(sum / static_cast<double>(count))
                                              : 0.0f);
      };
      *values++ = mean(sums.positive, size - sums.negatives);
      *values++ = mean(sums.negative, sums.negatives);
    });
  }

  Result<void> read(Words message, std::int64_t n, float* out) const override {
    auto right = codec_parts::of_length(message, words(n));
    if (!right || !out) {
      return right;
    }
    const std::uint32_t* values = message.data();
    const std::uint32_t* const bits = values + 2 * rows_;
    for_each_row([&](std::int64_t first, std::int64_t size) {
      const float positive = codec_parts::float_of_word(*values++);
      const float negative = codec_parts::float_of_word(*values++);
      codes::from_signs(bits, first, positive, negative, out + first, size);
    });
    return {};
  }

  std::optional<MessageCode> code(const RandomStream& /*random*/) const override {
    return MessageCode{.kind = CodeKind::signs, .rows = sections_};
  }

 private:
  std::int64_t words(std::int64_t n) const { return 2 * rows_ + parts_of(n, 32); }

  template <class F>
  void for_each_row(F&& f) const {
    for (const MessageRows& section : sections_) {
      for (std::int64_t row = 0; row < section.count; ++row) {
        f(section.offset + row * section.size, section.size);
      }
    }
  }

  std::vector<MessageRows> sections_;
  std::int64_t rows_ = 0;
};

}  // namespace

namespace codec_schemes {

CodecScheme one_bit() {
  return {.info = {.name = "one_bit",
                   .summary = "one bit a number: its sign, which becomes the mean of the numbers "
                              "of that sign in its row",
                   .paper = "Seide, Fu, Droppo, Li & Yu, Interspeech 2014"},
          .equations = "c_j = mean of x >= 0 in the row, or of x < 0, by the sign of x_j",
          .bytes = "n / 8 + 8 for each row (column) or tensor",
          .forgets = "all but the sign and the two means of a row",
          .codec = [](const CodecContext& c) {
            return std::make_unique<OneBitCodec>(c);
          }};
}

}  // namespace codec_schemes

}  // namespace troupe
