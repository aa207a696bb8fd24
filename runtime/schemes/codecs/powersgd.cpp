// powersgd: two thin factors of each matrix. Vogels, Karimireddy & Jaggi, NeurIPS 2019,
// arXiv:1905.13727. In an all-reduce it is the paper's algorithm 1: the replicas' first factors are added up
// before they are made orthonormal, then the second ones. To a server each replica's message is a power
// iteration of its own.
#include "kernels/codes.hpp"
#include "runtime/schemes/codecs/parts.hpp"
#include "runtime/schemes/codecs/summed_link.hpp"

#include <algorithm>
#include <cmath>

namespace troupe {
namespace {

using codec_parts::Section;

/// The matrices that are worth it, and the power iteration on them. Factors are column by column.
class Factors {
 public:
  explicit Factors(const CodecContext& context)
      : rank_(context.chosen.powersgd().rank()),
        warm_(context.chosen.powersgd().warm_start()),
        sections_(codec_parts::sections(context)) {
    for (const Section& s : sections_) {
      first_ += factored(s) ? rank_ * s.rows : 0;
      second_ += factored(s) ? rank_ * columns(s) : 0;
      rest_ += factored(s) ? 0 : s.size;
    }
  }

  static std::int64_t columns(const Section& s) { return s.size / s.rows; }

  bool factored(const Section& s) const { return rank_ * (s.rows + columns(s)) < s.size; }

  const std::vector<Section>& sections() const { return sections_; }

  std::int64_t rank() const { return rank_; }

  bool warm() const { return warm_; }

  std::int64_t first() const { return first_; }  // numbers of all Ps

  std::int64_t second() const { return second_; }  // ... of all Qs

  std::int64_t rest() const { return rest_; }  // ... of what is not factored

  /// Qs to begin with, one behind the other: the last ones, else at random. Columns that are nothing lead nowhere:
  /// they begin at random. Others are as large as M was, and are brought to about 1 by a power of two, which P loses
  /// when it is normalised: else P, about |M|^2, would leave float32 where M does not.
  std::vector<float> start(const LinkState& state, const RandomStream& random) const {
    std::vector<float> q(static_cast<std::size_t>(second_));
    const bool warm = warm_ && !state.numbers.empty();
    if (warm) {
      const std::span<const float> last = state.tensors.at(1).span<float>();
      std::copy(last.begin(), last.end(), q.begin());
    }
    std::int64_t at = 0;
    for (const Section& s : sections_) {
      for (std::int64_t c = 0; factored(s) && c < rank_; ++c, at += columns(s)) {
        float* const column = q.data() + at;
        const float greatest = warm ? codes::greatest(column, columns(s)) : 0.0f;
        if (greatest > 0) {
          const double by = std::ldexp(1.0, -std::ilogb(greatest));
          for (std::int64_t j = 0; j < columns(s); ++j) {
            column[j] = static_cast<float>(by * static_cast<double>(column[j]));
          }
        } else {
          for (std::int64_t j = 0; j < columns(s); ++j) {
            column[j] = static_cast<float>(random.normal(static_cast<std::uint64_t>(at + j)));
          }
        }
      }
    }
    return q;
  }

  void keep(const float* q, LinkState& state) const {
    if (warm_ && second_ > 0) {
      std::copy_n(q, second_, state.tensors.at(1).data<float>());
      state.numbers = {1};
    }
  }

  /// p = M q
  void multiply(const float* m, const Section& s, const float* q, float* p) const {
    for (std::int64_t c = 0; c < rank_; ++c) {
      for (std::int64_t i = 0; i < s.rows; ++i) {
        p[c * s.rows + i] = codes::dot(m + i * columns(s), q + c * columns(s), columns(s));
      }
    }
  }

  /// q = M' p
  void multiply_back(const float* m, const Section& s, const float* p, float* q) const {
    std::fill_n(q, rank_ * columns(s), 0.0f);
    for (std::int64_t i = 0; i < s.rows; ++i) {
      for (std::int64_t c = 0; c < rank_; ++c) {
        codes::add_scaled(p[c * s.rows + i], m + i * columns(s), q + c * columns(s), columns(s));
      }
    }
  }

  /// out = p q'
  void product(const float* p, const float* q, const Section& s, float* out) const {
    std::fill_n(out, s.size, 0.0f);
    for (std::int64_t i = 0; i < s.rows; ++i) {
      for (std::int64_t c = 0; c < rank_; ++c) {
        codes::add_scaled(p[c * s.rows + i], q + c * columns(s), out + i * columns(s), columns(s));
      }
    }
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

 private:
  std::int64_t rank_;
  bool warm_;
  std::vector<Section> sections_;
  std::int64_t first_ = 0;
  std::int64_t second_ = 0;
  std::int64_t rest_ = 0;
};

/// Of each matrix P, then Q; of the rest the numbers. The sender's tensors[1] has the Qs of its last message.
class PowerSgdCodec final : public Codec {
 public:
  explicit PowerSgdCodec(const CodecContext& context) : factors_(context) {}

  void encode(std::span<const float> x,
              LinkState& state,
              const RandomStream& random,
              std::vector<std::uint32_t>& message) const override {
    std::vector<float> q = factors_.start(state, random);
    float* at = q.data();
    for (const Section& s : factors_.sections()) {
      const float* const part = x.data() + s.offset;
      if (!factors_.factored(s)) {
        append(part, s.size, message);
        continue;
      }
      std::vector<float> p(static_cast<std::size_t>(factors_.rank() * s.rows));
      factors_.multiply(part, s, at, p.data());
      factors_.orthonormalise(p.data(), s.rows);
      factors_.multiply_back(part, s, p.data(), at);
      append(p.data(), factors_.rank() * s.rows, message);
      append(at, factors_.rank() * Factors::columns(s), message);
      at += factors_.rank() * Factors::columns(s);
    }
    factors_.keep(q.data(), state);
  }

  Result<void> read(Words message, std::int64_t /*n*/, float* out) const override {
    auto right =
        codec_parts::of_length(message, factors_.first() + factors_.second() + factors_.rest());
    if (!right || !out) {
      return right;
    }
    const float* in = reinterpret_cast<const float*>(message.data());
    for (const Section& s : factors_.sections()) {
      if (!factors_.factored(s)) {
        std::copy_n(in, s.size, out + s.offset);
        in += s.size;
        continue;
      }
      factors_.product(in, in + factors_.rank() * s.rows, s, out + s.offset);
      in += factors_.rank() * (s.rows + Factors::columns(s));
    }
    return {};
  }

  std::int64_t kept() const override { return factors_.warm() ? factors_.second() : 0; }

 private:
  static void append(const float* x, std::int64_t n, std::vector<std::uint32_t>& message) {
    for (std::int64_t i = 0; i < n; ++i) {
      message.push_back(codec_parts::word_of(x[i]));
    }
  }

  Factors factors_;
};

/// Two rounds: all Ps; then all Qs, and behind them the rest. The second is of the orthonormal mean of the first.
class PowerSgdSum final : public SumCode {
 public:
  explicit PowerSgdSum(const CodecContext& context) : factors_(context) {}

  std::size_t rounds() const override { return 2; }

  Numbers numbers(std::span<const float> x,
                  const std::vector<Numbers>& means,
                  const LinkState& state,
                  const RandomStream& random) const override {
    if (means.empty()) {
      const std::vector<float> q = factors_.start(state, random);
      Numbers p(static_cast<std::size_t>(factors_.first()));
      each_matrix(q.data(), p.data(), [&](const Section& s, const float* from, float* to) {
        factors_.multiply(x.data() + s.offset, s, from, to);
      });
      return p;
    }
    const Numbers p = orthonormal(means.front());
    Numbers made(static_cast<std::size_t>(factors_.second()));
    each_matrix(made.data(), p.data(), [&](const Section& s, float* to, const float* from) {
      factors_.multiply_back(x.data() + s.offset, s, from, to);
    });
    for (const Section& s : factors_.sections()) {
      if (!factors_.factored(s)) {
        made.insert(made.end(), x.data() + s.offset, x.data() + s.offset + s.size);
      }
    }
    return made;
  }

  void decode(const std::vector<Numbers>& means,
              const Numbers& last,
              const RandomStream& /*random*/,
              std::span<float> out) const override {
    const Numbers p = orthonormal(means.at(0));
    each_matrix(last.data(), p.data(), [&](const Section& s, const float* q, const float* first) {
      factors_.product(first, q, s, out.data() + s.offset);
    });
    const float* rest = last.data() + factors_.second();
    for (const Section& s : factors_.sections()) {
      if (!factors_.factored(s)) {
        std::copy_n(rest, s.size, out.data() + s.offset);
        rest += s.size;
      }
    }
  }

  void summed(const Numbers& last, LinkState& state) const override {
    factors_.keep(last.data(), state);
  }

  std::int64_t kept() const override { return factors_.warm() ? factors_.second() : 0; }

 private:
  /// f(matrix, its part of the Qs, its part of the Ps)
  template <class Q, class P, class F>
  void each_matrix(Q* q, P* p, F&& f) const {
    for (const Section& s : factors_.sections()) {
      if (factors_.factored(s)) {
        f(s, q, p);
        q += factors_.rank() * Factors::columns(s);
        p += factors_.rank() * s.rows;
      }
    }
  }

  Numbers orthonormal(Numbers p) const {
    float* at = p.data();
    for (const Section& s : factors_.sections()) {
      if (factors_.factored(s)) {
        factors_.orthonormalise(at, s.rows);
        at += factors_.rank() * s.rows;
      }
    }
    return p;
  }

  Factors factors_;
};

}  // namespace

namespace codec_schemes {

CodecScheme powersgd() {
  return {.info = {.name = "powersgd",
                   .summary = "two thin factors of each matrix, by one step of a power iteration; "
                              "what is no matrix, or a small one, goes as it is",
                   .paper = "Vogels, Karimireddy & Jaggi, NeurIPS 2019, arXiv:1905.13727"},
          .equations =
              "P = orthonormal(M Q); Q <- M' P; c = P Q'; in an all-reduce P is that of the mean "
              "of all M Q, and Q the mean of all M' P",
          .bytes = "4 r (rows + columns) for each matrix, 4 n for the rest",
          .forgets = "of a matrix all but the r directions that the iteration has found",
          .codec = [](const CodecContext& c) { return std::make_unique<PowerSgdCodec>(c); },
          .remembers = [](const proto::Codec& chosen) { return chosen.powersgd().warm_start(); },
          .linear =
              [](const CodecContext& c) {
                return std::make_unique<PowerSgdSum>(c);
              }};
}

}  // namespace codec_schemes

}  // namespace troupe
