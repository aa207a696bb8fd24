// powersgd: two thin factors of each matrix. Vogels, Karimireddy & Jaggi, NeurIPS 2019,
// arXiv:1905.13727. Each replica's message is its own power iteration: without an all-reduce there is no
// sum of the replicas' first factors between its two halves.
#include "kernels/codes.hpp"
#include "runtime/schemes/codecs/parts.hpp"

#include <algorithm>
#include <cmath>

namespace troupe {
namespace {

using codec_parts::Section;

/// Matrices that are worth it: P, then Q, column by column; else the numbers as they are. The sender's
/// tensors[1] has the Qs of its last message.
class PowerSgdCodec final : public Codec {
 public:
  explicit PowerSgdCodec(const CodecContext& context)
      : rank_(context.chosen.powersgd().rank()),
        warm_(context.chosen.powersgd().warm_start()),
        sections_(codec_parts::sections(context)) {
    for (const Section& s : sections_) {
      words_ += factored(s) ? rank_ * (s.rows + columns(s)) : s.size;
      kept_ += factored(s) ? rank_ * columns(s) : 0;
    }
  }

  void encode(std::span<const float> x,
              LinkState& state,
              const RandomStream& random,
              std::vector<std::uint32_t>& message) const override {
    std::vector<float> q(static_cast<std::size_t>(kept_));
    const bool warm = warm_ && !state.numbers.empty();
    if (warm) {
      const std::span<const float> last = state.tensors.at(1).span<float>();
      std::copy(last.begin(), last.end(), q.begin());
    }
    std::int64_t at = 0;
    for (const Section& s : sections_) {
      const float* const part = x.data() + s.offset;
      if (!factored(s)) {
        append(part, s.size, message);
        continue;
      }
      float* const factor = q.data() + at;
      renew(factor, columns(s), warm, random, at);
      const std::vector<float> p = iterate(part, s, factor);
      append(p.data(), rank_ * s.rows, message);
      append(factor, rank_ * columns(s), message);
      at += rank_ * columns(s);
    }
    if (warm_ && kept_ > 0) {
      std::copy(q.begin(), q.end(), state.tensors.at(1).span<float>().begin());
      state.numbers = {1};
    }
  }

  Result<void> read(Words message, std::int64_t n, float* out) const override {
    auto right = codec_parts::of_length(message, words_);
    if (!right || !out) {
      return right;
    }
    std::fill_n(out, n, 0.0f);
    const float* in = reinterpret_cast<const float*>(message.data());
    for (const Section& s : sections_) {
      float* const to = out + s.offset;
      if (!factored(s)) {
        std::copy_n(in, s.size, to);
        in += s.size;
        continue;
      }
      const float* const q = in + rank_ * s.rows;
      for (std::int64_t i = 0; i < s.rows; ++i) {
        for (std::int64_t c = 0; c < rank_; ++c) {
          codes::add_scaled(
              in[c * s.rows + i], q + c * columns(s), to + i * columns(s), columns(s));
        }
      }
      in += rank_ * (s.rows + columns(s));
    }
    return {};
  }

  std::int64_t kept() const override { return warm_ ? kept_ : 0; }

 private:
  static std::int64_t columns(const Section& s) { return s.size / s.rows; }

  bool factored(const Section& s) const { return rank_ * (s.rows + columns(s)) < s.size; }

  static void append(const float* x, std::int64_t n, std::vector<std::uint32_t>& message) {
    for (std::int64_t i = 0; i < n; ++i) {
      message.push_back(codec_parts::word_of(x[i]));
    }
  }

  /// Columns that are nothing lead nowhere: they begin at random.
  void renew(
      float* q, std::int64_t size, bool warm, const RandomStream& random, std::int64_t at) const {
    for (std::int64_t c = 0; c < rank_; ++c) {
      float* const column = q + c * size;
      if (!warm || codes::greatest(column, size) == 0) {
        for (std::int64_t j = 0; j < size; ++j) {
          const auto index = static_cast<std::uint64_t>(at + c * size + j);
          column[j] = static_cast<float>(random.normal(index));
        }
      }
    }
  }

  /// P = M Q with orthonormal columns, then Q = M' P.
  std::vector<float> iterate(const float* m, const Section& s, float* q) const {
    const std::int64_t size = columns(s);
    std::vector<float> p(static_cast<std::size_t>(rank_ * s.rows));
    for (std::int64_t c = 0; c < rank_; ++c) {
      float* const column = p.data() + c * s.rows;
      for (std::int64_t i = 0; i < s.rows; ++i) {
        column[i] = codes::dot(m + i * size, q + c * size, size);
      }
    }
    orthonormalise(p.data(), s.rows);
    std::fill_n(q, rank_ * size, 0.0f);
    for (std::int64_t i = 0; i < s.rows; ++i) {
      for (std::int64_t c = 0; c < rank_; ++c) {
        codes::add_scaled(
            p[static_cast<std::size_t>(c * s.rows + i)], m + i * size, q + c * size, size);
      }
    }
    return p;
  }

  /// Gram-Schmidt, twice, as once is not enough of columns that are nearly the same. What is nothing
  /// beside what it was before stays nothing.
  void orthonormalise(float* p, std::int64_t rows) const {
    for (std::int64_t c = 0; c < rank_; ++c) {
      float* const column = p + c * rows;
      const double before = std::sqrt(codes::sum_of_squares(column, rows));
      for (int pass = 0; pass < 2; ++pass) {
        for (std::int64_t other = 0; other < c; ++other) {
          const float along = codes::dot(p + other * rows, column, rows);
          codes::add_scaled(-along, p + other * rows, column, rows);
        }
      }
      const double norm = std::sqrt(codes::sum_of_squares(column, rows));
      const bool some = norm > 1e-6 * before && norm > 0;
      for (std::int64_t i = 0; i < rows; ++i) {
        column[i] = some ? static_cast<float>(column[i] / norm) : 0.0f;
      }
    }
  }

  std::int64_t rank_;
  bool warm_;
  std::vector<Section> sections_;
  std::int64_t words_ = 0;  // of a message
  std::int64_t kept_ = 0;   // numbers of all Qs
};

}  // namespace

namespace codec_schemes {

CodecScheme powersgd() {
  return {.info = {.name = "powersgd",
                   .summary = "two thin factors of each matrix, by one step of a power iteration; "
                              "what is no matrix, or a small one, goes as it is",
                   .paper = "Vogels, Karimireddy & Jaggi, NeurIPS 2019, arXiv:1905.13727"},
          .equations = "P = orthonormal(M Q); Q <- M' P; c = P Q'",
          .bytes = "4 r (rows + columns) for each matrix, 4 n for the rest",
          .forgets = "of a matrix all but the r directions that the iteration has found",
          .codec = [](const CodecContext& c) { return std::make_unique<PowerSgdCodec>(c); },
          .remembers =
              [](const proto::Codec& chosen) {
                return chosen.powersgd().warm_start();
              }};
}

}  // namespace codec_schemes

}  // namespace troupe
