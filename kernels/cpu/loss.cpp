#include "kernels/loss.hpp"

#include "kernels/cpu/backend.hpp"
#include "kernels/cpu/vector.hpp"
#include "kernels/functors/math.hpp"

#include <array>
#include <cmath>
#include <limits>

namespace troupe::cpu {

namespace {

float largest(const float* x, std::int64_t n) {
  constexpr float kLowest = -std::numeric_limits<float>::infinity();
  Floats best = broadcast(kLowest);
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const Floats v = load(x + i);
    best = v > best ? v : best;
  }
  float result = kLowest;
  for (; i < n; ++i) {
    result = x[i] > result ? x[i] : result;
  }
  for (int lane = 0; lane < kLanes; ++lane) {
    result = best[lane] > result ? best[lane] : result;
  }
  return result;
}

/// e[i] = exp(x[i] - shift), and their sum, added up lane by lane. `e` may be `x`.
double exponentials(const float* x, float shift, std::int64_t n, float* e) {
  std::array<double, kLanes> sum{};
  constexpr std::int64_t kChunk = 64 * kLanes;
  for (std::int64_t begin = 0; begin < n; begin += kChunk) {
    const std::int64_t size = n - begin < kChunk ? n - begin : kChunk;
#pragma GCC ivdep
    for (std::int64_t i = 0; i < size; ++i) {
      e[begin + i] = exp_float(x[begin + i] - shift);
    }
    Floats partial{};
    std::int64_t i = 0;
    for (; i + kLanes <= size; i += kLanes) {
      partial += load(e + begin + i);
    }
    partial += load_part(e + begin + i, size - i);
    for (std::size_t lane = 0; lane < sum.size(); ++lane) {
      sum[lane] += static_cast<double>(partial[static_cast<int>(lane)]);
    }
  }
  double total = 0;
  for (const double lane : sum) {
    total += lane;
  }
  return total;
}

/// Whether `label` is the first of the largest. A row with a NaN predicts nothing.
bool predicts(const float* x, std::int64_t n, std::int64_t label) {
  const float value = x[label];
  int disagreeing = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const bool below = i < label ? x[i] < value : x[i] <= value;
    disagreeing += below ? 0 : 1;
  }
  // The label itself, at i == label, is counted as agreeing unless it is NaN.
  return disagreeing == 0;
}

}  // namespace

void softmax_cross_entropy(Stream& stream,
                           const Tensor& logits,
                           const Tensor& labels,
                           const Tensor& dlogits,
                           const Tensor& result) {
  const std::int64_t rows = logits.shape()[0];
  const std::int64_t classes = logits.shape()[1];
  const std::int32_t* label_of = labels.data<std::int32_t>();
  float* scratch = dlogits ? nullptr : stream.cpu().scratch(classes);
  const float share = 1.0f / static_cast<float>(rows);
  double loss = 0;
  std::int64_t right = 0;
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::int64_t label = label_of[r];
    TROUPE_CHECK(label >= 0 && label < classes,
                 "[softmax_cross_entropy] label ",
                 label,
                 " of row ",
                 r,
                 " is not in [0, ",
                 classes,
                 ")");
    const float* x = logits.data<float>() + r * classes;
    float* e = dlogits ? dlogits.data<float>() + r * classes : scratch;
    const float shift = largest(x, classes);
    const float label_logit = x[label];
    right += predicts(x, classes, label) ? 1 : 0;
    const double sum = exponentials(x, shift, classes, e);
    loss += std::log(sum) - (static_cast<double>(label_logit) - static_cast<double>(shift));
    if (dlogits) {
      const float factor = static_cast<float>(static_cast<double>(share) / sum);
      for (std::int64_t c = 0; c < classes; ++c) {
        e[c] *= factor;
      }
      e[label] -= share;
    }
  }
  result.data<double>()[0] = loss;
  result.data<double>()[1] = static_cast<double>(right);
}

void squared_error(Stream& /*stream*/,
                   const Tensor& y,
                   const Tensor& target,
                   const Tensor& dy,
                   const Tensor& result) {
  const std::int64_t n = y.elements();
  const float* from = y.data<float>();
  const float* wanted = target.data<float>();
  const float share = 1.0f / static_cast<float>(y.shape()[0]);
  std::array<double, kLanes> sum{};
  for (std::int64_t begin = 0; begin < n; begin += kLanes) {
    const std::int64_t size = n - begin < kLanes ? n - begin : kLanes;
    for (std::int64_t i = 0; i < size; ++i) {
      const double d =
          static_cast<double>(from[begin + i]) - static_cast<double>(wanted[begin + i]);
      sum[static_cast<std::size_t>(i)] += d * d;
    }
  }
  if (dy) {
    float* to = dy.data<float>();
#pragma GCC ivdep
    for (std::int64_t i = 0; i < n; ++i) {
      to[i] = (from[i] - wanted[i]) * share;
    }
  }
  double total = 0;
  for (const double lane : sum) {
    total += lane;
  }
  result.data<double>()[0] = 0.5 * total;
  result.data<double>()[1] = 0;
}

}  // namespace troupe::cpu
