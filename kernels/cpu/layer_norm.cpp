// Layer and RMS normalization: each row is read from the cache where it is read again. Sums over a row are
// taken lane by lane in float, some vectors at a time, and those sums are added in double.
#include "kernels/cpu/backend.hpp"
#include "kernels/cpu/vector.hpp"
#include "kernels/functors/normalization.hpp"
#include "kernels/normalization.hpp"
#include "kernels/tiles.hpp"

#include <algorithm>
#include <utility>

namespace troupe::cpu::TROUPE_ISA {

namespace {

constexpr std::int64_t kAbreast = 4;                     // sums that do not wait for each other
constexpr std::int64_t kChunk = 64 * kAbreast * kLanes;  // elements whose sums stay in float
constexpr std::int64_t kBlockRows = 64;                  // rows whose parameter gradients do

/// Will be read soon.
void prefetch(const float* x, std::int64_t size) {
  constexpr std::int64_t kLine = 16;
  for (std::int64_t i = 0; i < size; i += kLine) {
    __builtin_prefetch(x + i);
  }
}

/// The upper half of the lanes onto the lower.
template <class V, int... lane>
[[gnu::always_inline]] inline auto halved(V v, std::integer_sequence<int, lane...>) {
  constexpr int kHalf = sizeof...(lane);
  return __builtin_shufflevector(v, v, lane...) + __builtin_shufflevector(v, v, lane + kHalf...);
}

/// The sum of all lanes.
template <class V>
[[gnu::always_inline]] inline float total(V v) {
  if constexpr (kLanesOf<V> == 2) {
    return v[0] + v[1];
  } else {
    return total(halved(v, std::make_integer_sequence<int, kLanesOf<V> / 2>()));
  }
}

/// A whole vector of a row.
struct AllLanes {
  Floats load(const float* p) const { return TROUPE_ISA::load(p); }

  Floats keep(Floats v) const { return v; }

  void store(float* p, Floats v) const { TROUPE_ISA::store(p, v); }
};

/// The end of a row: the last vector of it, of which only the lanes count that no vector before
/// held; or, of a row that is shorter than a vector, all there is.
struct SomeLanes {
  Ints counts;
  std::int64_t row;  // elements, where shorter than a vector

  SomeLanes(std::int64_t first, std::int64_t last) : counts(), row(last < kLanes ? last : 0) {
    for (std::int64_t lane = 0; lane < kLanes; ++lane) {
      counts[lane] = lane >= first && lane < last ? -1 : 0;
    }
  }

  Floats load(const float* p) const { return row > 0 ? load_part(p, row) : TROUPE_ISA::load(p); }

  Floats keep(Floats v) const { return counts ? v : Floats{}; }

  void store(float* p, Floats v) const {
    row > 0 ? store_part(p, v, row) : TROUPE_ISA::store(p, v);
  }
};

struct Sums {
  double first = 0;
  double second = 0;
};

/// A pair of sums over rows of n elements, added up in an order that depends on n alone.
class RowSums {
 public:
  explicit RowSums(std::int64_t n)
      : n_(n), rest_(n < kLanes ? 0 : kLanes - n % kLanes, std::min(n, kLanes)) {}

  /// term(i, lanes, first, second) adds to the lanes of `first` and `second` what the elements from
  /// i on make.
  template <class Term>
  [[gnu::always_inline]] inline Sums operator()(Term term) const {
    Sums sums;
    const std::int64_t whole = n_ - n_ % kLanes;
    for (std::int64_t begin = 0; begin < n_; begin += kChunk) {
      const std::int64_t end = std::min(whole, begin + kChunk);
      Floats first[kAbreast] = {};
      Floats second[kAbreast] = {};
      std::int64_t i = begin;
      for (; i + kAbreast * kLanes <= end; i += kAbreast * kLanes) {
#pragma GCC unroll 4
        for (std::int64_t k = 0; k < kAbreast; ++k) {
          term(i + k * kLanes, AllLanes(), first[k], second[k]);
        }
      }
      for (; i < end; i += kLanes) {
        term(i, AllLanes(), first[0], second[0]);
      }
      if (whole < n_ && begin + kChunk >= n_) {
        term(std::max<std::int64_t>(n_ - kLanes, 0), rest_, first[0], second[0]);
      }
      sums.first += static_cast<double>(total((first[0] + first[1]) + (first[2] + first[3])));
      sums.second += static_cast<double>(total((second[0] + second[1]) + (second[2] + second[3])));
    }
    return sums;
  }

 private:
  std::int64_t n_;
  SomeLanes rest_;
};

}  // namespace

void layer_norm_forward(Stream& /*stream*/, const NormalizationForward& a) {
  const std::int64_t rows = a.x.shape()[0];
  const std::int64_t columns = a.x.shape()[1];
  const double share = 1.0 / static_cast<double>(columns);
  const RowSums sums(columns);
  const float* gain = a.gamma.data<float>();
  const float* bias = a.mean ? a.beta.data<float>() : nullptr;
  float* means = a.mean ? a.mean.data<float>() : nullptr;  // null: RMS
  float* inverses = a.inverse_deviation.data<float>();
  // Some rows together through each of the three passes: a row's own would wait for each other.
  const std::int64_t together = std::clamp<std::int64_t>(tiles().row_elements / columns, 1, 16);
  for (std::int64_t begin = 0; begin < rows; begin += together) {
    const std::int64_t end = std::min(rows, begin + together);
    const float* from = a.x.data<float>() + begin * columns;
    for (std::int64_t r = begin; means && r < end; ++r, from += columns) {
      const Sums sum = sums([from](std::int64_t i, auto lanes, Floats& s, Floats&) {
        s += lanes.keep(lanes.load(from + i));
      });
      means[r] = static_cast<float>(sum.first * share);
    }
    from = a.x.data<float>() + begin * columns;
    for (std::int64_t r = begin; r < end; ++r, from += columns) {
      const Floats near_mean = broadcast(means ? means[r] : 0.0f);
      const Sums around = sums([&](std::int64_t i, auto lanes, Floats& s, Floats& q) {
        const Floats d = lanes.keep(lanes.load(from + i) - near_mean);
        s += d;
        q += d * d;
      });
      // What rounding left in the mean is taken out again (Chan, Golub & LeVeque 1983).
      const double error = means ? around.first * share : 0;
      const double variance = around.second * share - error * error;
      if (means) {
        means[r] = static_cast<float>(static_cast<double>(means[r]) + error);
      }
      inverses[r] = static_cast<float>(inverse_of_deviation(variance, a.epsilon));
    }
    from = a.x.data<float>() + begin * columns;
    float* to = a.y.data<float>() + begin * columns;
    for (std::int64_t r = begin; r < end; ++r, from += columns, to += columns) {
      const float center = means ? means[r] : 0.0f;
      const float inverse = inverses[r];
      if (r + together < rows) {
        prefetch(from + together * columns, columns);
      }
      if (!means) {
#pragma GCC ivdep
        for (std::int64_t i = 0; i < columns; ++i) {
          to[i] = from[i] * inverse * gain[i];
        }
        continue;
      }
#pragma GCC ivdep
      for (std::int64_t i = 0; i < columns; ++i) {
        to[i] = (from[i] - center) * inverse * gain[i] + bias[i];
      }
    }
  }
}

void layer_norm_backward(Stream& stream, const NormalizationBackward& a) {
  const std::int64_t rows = a.x.shape()[0];
  const std::int64_t columns = a.x.shape()[1];
  const double share = 1.0 / static_cast<double>(columns);
  const RowSums sums(columns);
  const float* gain = a.gamma.data<float>();
  // Parameter gradients: of some rows in float, and of all in double.
  auto* gain_total = reinterpret_cast<double*>(stream.cpu().scratch(6 * columns));
  double* bias_total = gain_total + columns;
  auto* gain_sum = reinterpret_cast<float*>(bias_total + columns);
  float* bias_sum = gain_sum + columns;
  std::fill_n(gain_total, 2 * columns, 0.0);
  for (std::int64_t begin = 0; begin < rows; begin += kBlockRows) {
    const std::int64_t end = std::min(rows, begin + kBlockRows);
    std::fill_n(gain_sum, 2 * columns, 0.0f);
    for (std::int64_t r = begin; r < end; ++r) {
      const float* from = a.x.data<float>() + r * columns;
      const float* gradient = a.dy.data<float>() + r * columns;
      float* to = a.dx.data<float>() + r * columns;
      const float center = a.mean ? a.mean.data<float>()[r] : 0.0f;
      const float inverse = a.inverse_deviation.data<float>()[r];
      const Sums sum = sums([&](std::int64_t i, auto lanes, Floats& s, Floats& q) {
        const Floats g = lanes.keep(lanes.load(gradient + i));
        const Floats normal =
            lanes.keep((lanes.load(from + i) - broadcast(center)) * broadcast(inverse));
        const Floats weighted = g * lanes.load(gain + i);
        s += lanes.keep(weighted);
        q += lanes.keep(weighted * normal);
        lanes.store(gain_sum + i, lanes.load(gain_sum + i) + g * normal);
        lanes.store(bias_sum + i, lanes.load(bias_sum + i) + g);
      });
      const auto offset = a.mean ? static_cast<float>(sum.first * share) : 0.0f;
      const auto slope = static_cast<float>(sum.second * share);
#pragma GCC ivdep
      for (std::int64_t i = 0; i < columns; ++i) {
        const float normal = (from[i] - center) * inverse;
        to[i] = inverse * ((gradient[i] * gain[i] - offset) - normal * slope);
      }
    }
    for (std::int64_t i = 0; i < columns; ++i) {
      gain_total[i] += static_cast<double>(gain_sum[i]);
      bias_total[i] += static_cast<double>(bias_sum[i]);
    }
  }
  for (std::int64_t i = 0; i < columns; ++i) {
    a.dgamma.data<float>()[i] = static_cast<float>(gain_total[i]);
    if (a.mean) {
      a.dbeta.data<float>()[i] = static_cast<float>(bias_total[i]);
    }
  }
}

}  // namespace troupe::cpu::TROUPE_ISA
