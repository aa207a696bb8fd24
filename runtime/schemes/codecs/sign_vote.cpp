// sign_vote: one bit a number, of which servers take the majority. Bernstein, Wang, Azizzadenesheli &
// Anandkumar, ICML 2018, arXiv:1802.04434; Bernstein, Zhao, Azizzadenesheli & Anandkumar, ICLR 2019,
// arXiv:1810.05291 (Signum with majority vote, algorithm 1). With feedback each message has a scale, as in
// Karimireddy, Rebjock, Stich & Jaggi, ICML 2019, arXiv:1901.09847, and servers take the mean.
#include "experiment/replicas.pb.h"
#include "kernels/codes.hpp"
#include "kernels/wording.hpp"
#include "messages/sections.hpp"
#include "runtime/schemes/codecs/parts.hpp"

#include <algorithm>
#include <cmath>

namespace troupe {
namespace {

using codec_parts::parts_of;

/// Where there is a scale, the mean magnitude; then a bit a number. Numbers that belong to no tensor become 0.
class SignVoteCodec final : public Codec {
 public:
  explicit SignVoteCodec(const CodecContext& context)
      : momentum_(context.down ? 0 : context.chosen.sign_vote().momentum()),
        scaled_(context.feedback),
        elements_(context.elements) {
    for (const codec_parts::Section& s : codec_parts::sections(context)) {
      const bool tensor = context.parts.empty() ||
                          std::ranges::any_of(context.parts, [&](const RuleContext::Part& part) {
                            return part.offset == s.offset && part.shape.elements() > 0;
                          });
      (tensor ? tensors_ : gaps_).push_back(s);
      numbers_ += tensor ? s.size : 0;
    }
  }

  /// v <- beta v + (1 - beta) g
  void prepare(std::span<float> update, LinkState& state) const override {
    if (momentum_ == 0 || update.empty()) {
      return;
    }
    const std::span<float> velocity = state.tensors.at(1).span<float>();
    const auto beta = static_cast<float>(momentum_);
    for (std::size_t i = 0; i < update.size(); ++i) {
      velocity[i] = beta * velocity[i] + (1 - beta) * update[i];
      update[i] = velocity[i];
    }
  }

  void encode(std::span<const float> x,
              LinkState& /*state*/,
              const RandomStream& random,
              std::vector<std::uint32_t>& message) const override {
    const auto n = static_cast<std::int64_t>(x.size());
    if (scaled_) {
      double sum = 0;
      for (const codec_parts::Section& s : tensors_) {
        const codes::Signs signs = codes::sums_by_sign(x.data() + s.offset, s.size);
        sum += signs.positive - signs.negative;
      }
      message.push_back(codec_parts::word_of(
          static_cast<float>(sum / static_cast<double>(std::max<std::int64_t>(1, numbers_)))));
    }
    const std::size_t at = message.size();
    message.resize(at + static_cast<std::size_t>(words(n)));
    std::uint32_t* const bits = message.data() + at;
    codes::signs_of(x.data(), bits, n);
    for (std::size_t j = 0; j < x.size(); ++j) {  // nothing has no sign: a coin decides
      if (x[j] == 0) {
        const auto bit = static_cast<std::uint32_t>(random.bits(j) >> 63) << j % 32;
        bits[j / 32] = (bits[j / 32] & ~(1u << j % 32)) | bit;
      }
    }
  }

  Result<void> read(Words message, std::int64_t n, float* out) const override {
    auto right = codec_parts::of_length(message, (scaled_ ? 1 : 0) + words(n));
    if (!right || !out) {
      return right;
    }
    const float scale = scaled_ ? codec_parts::float_of_word(message[0]) : 1.0f;
    codes::from_signs(message.data() + (scaled_ ? 1 : 0), 0, scale, -scale, out, n);
    for (const codec_parts::Section& gap : gaps_) {
      std::fill_n(out + gap.offset, gap.size, 0.0f);
    }
    return {};
  }

  std::int64_t kept() const override { return momentum_ > 0 ? elements_ : 0; }

 private:
  /// Of the bits. A message is never of one word: any word may say something else.
  std::int64_t words(std::int64_t n) const {
    return std::max<std::int64_t>(parts_of(n, 32), scaled_ ? 1 : 2);
  }

  double momentum_;
  bool scaled_;
  std::int64_t elements_;
  std::vector<codec_parts::Section> tensors_;
  std::vector<codec_parts::Section> gaps_;  // between them
  std::int64_t numbers_ = 0;                // of all tensors
};

Result<void> check_sign_vote(const proto::Experiment& e) {
  const proto::Codec& down = sections::replicas(e).codec().down();
  if (!down.has_sign_vote() || down.sign_vote().momentum() == proto::SignVote().momentum()) {
    return {};
  }
  return usage_error(
      "replicas.codec.down.sign_vote.momentum: it is the replicas that keep it, and servers answer "
      "without; leave it out");
}

}  // namespace

namespace codec_schemes {

CodecScheme sign_vote() {
  return {
      .info =
          {.name = "sign_vote",
           .summary = "one bit a number, the sign of the replica's momentum; servers step by the "
                      "sign of the "
                      "sum. With feedback each message has a scale, and servers step by the mean",
           .paper =
               "Bernstein, Zhao, Azizzadenesheli & Anandkumar, ICLR 2019, arXiv:1810.05291; with "
               "feedback Karimireddy, Rebjock, Stich & Jaggi, ICML 2019, arXiv:1901.09847",
           .check = check_sign_vote},
      .equations =
          "v <- beta v + (1 - beta) g; c = sign(v), a coin where v is 0; the servers: w <- w - eta "
          "sign(sum of c), a coin at a tie. With feedback, and down: c = mean(abs(x)) sign(x)",
      .bytes = "n / 8, at least 8, and 4 where there is a scale",
      .forgets = "all but the sign; without feedback how large the gradient is, too",
      .codec = [](const CodecContext& c) { return std::make_unique<SignVoteCodec>(c); },
      .keeps = [](const proto::Codec&) { return false; },
      .remembers = [](const proto::Codec& chosen) { return chosen.sign_vote().momentum() > 0; },
      .votes = true};
}

}  // namespace codec_schemes

}  // namespace troupe
