#include "kernels/loss.hpp"

#include "kernels/cpu/backend.hpp"
#include "kernels/cpu/ids.hpp"
#include "kernels/cpu/vector.hpp"

#include <array>
#include <cmath>
#include <limits>

namespace troupe::cpu::TROUPE_ISA {

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
    Floats partial{};
    std::int64_t i = 0;
    for (; i + kLanes <= size; i += kLanes) {
      const Floats v = exponential(load(x + begin + i) - shift);
      store(e + begin + i, v);
      partial += v;
    }
    if (i < size) {
      // What stands for the lanes beyond, 1e-38, is lost in a sum that holds exp(0).
      constexpr float kLowest = -std::numeric_limits<float>::infinity();
      const Floats v = exponential(load_part(x + begin + i, size - i, kLowest) - shift);
      store_part(e + begin + i, v, size - i);
      partial += v;
    }
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

/// Whether `label` is the first of the largest, which is `most`. A row with a NaN predicts nothing.
bool predicts(const float* x, std::int64_t n, std::int64_t label, float most) {
  const float value = x[label];
  if (!(value >= most)) {
    return false;
  }
  int agreeing = 0;
  for (std::int64_t i = 0; i < label; ++i) {
    agreeing += x[i] < value ? 1 : 0;
  }
  for (std::int64_t i = label; i < n; ++i) {
    agreeing += x[i] <= value ? 1 : 0;
  }
  return agreeing == n;
}

/// sum_c target[c] x[c]: the label's logit, smoothed towards the mean of all.
double target_logit(const float* x, std::int64_t n, std::int64_t label, float smoothing) {
  const auto at_label = static_cast<double>(x[label]);
  if (smoothing == 0.0f) {
    return at_label;
  }
  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    sum += static_cast<double>(x[i]);
  }
  const auto s = static_cast<double>(smoothing);
  return (1 - s) * at_label + s * (sum / static_cast<double>(n));
}

}  // namespace

void softmax_cross_entropy(Stream& stream,
                           const Tensor& logits,
                           const Tensor& labels,
                           const Tensor& dlogits,
                           const Tensor& result,
                           float smoothing) {
  const std::int64_t rows = logits.shape()[0];
  const std::int64_t classes = logits.shape()[1];
  const std::int32_t* label_of = labels.data<std::int32_t>();
  float* scratch = dlogits ? nullptr : stream.cpu().scratch(classes);
  const float share = 1.0f / static_cast<float>(rows);
  const float label_share = share * (1.0f - smoothing);
  const float class_share = share * (smoothing / static_cast<float>(classes));
  double loss = 0;
  std::int64_t right = 0;
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::int64_t label = label_of[r];
    check_id("softmax_cross_entropy", "label", label, r, classes);
    const float* x = logits.data<float>() + r * classes;
    float* e = dlogits ? dlogits.data<float>() + r * classes : scratch;
    const float shift = largest(x, classes);
    const double wanted_logit = target_logit(x, classes, label, smoothing);
    right += predicts(x, classes, label, shift) ? 1 : 0;
    const double sum = exponentials(x, shift, classes, e);
    loss += std::log(sum) - (wanted_logit - static_cast<double>(shift));
    if (dlogits) {
      const float factor = static_cast<float>(static_cast<double>(share) / sum);
      for (std::int64_t c = 0; c < classes; ++c) {
        e[c] = e[c] * factor - class_share;
      }
      e[label] -= label_share;
    }
  }
  result.data<double>()[0] = loss;
  result.data<double>()[1] = static_cast<double>(right);
}

void softmax_statistics(Stream& stream, const Tensor& logits, const Tensor& statistics) {
  const std::int64_t classes = logits.shape()[1];
  float* scratch = stream.cpu().scratch(classes);
  for (std::int64_t r = 0; r < logits.shape()[0]; ++r) {
    const float* x = logits.data<float>() + r * classes;
    float* of_row = statistics.data<float>() + 2 * r;
    of_row[0] = largest(x, classes);
    of_row[1] = static_cast<float>(exponentials(x, of_row[0], classes, scratch));
  }
}

namespace {

/// Of all classes of a row, from what each part has of it.
struct WholeSoftmax {
  double shift;  // the greatest logit
  double sum;    // of exp(logit - shift)
  bool first;    // no part before has as great a logit as this one, and none behind a greater one
};

WholeSoftmax whole_softmax(const float* statistics, std::int64_t parts, std::int64_t part) {
  const float own = statistics[2 * part];
  WholeSoftmax all{.shift = static_cast<double>(own), .sum = 0, .first = true};
  for (std::int64_t t = 0; t < parts; ++t) {
    const float greatest = statistics[2 * t];
    all.shift =
        static_cast<double>(greatest) > all.shift ? static_cast<double>(greatest) : all.shift;
    all.first = all.first && (t < part ? greatest < own : greatest <= own);
  }
  for (std::int64_t t = 0; t < parts; ++t) {
    all.sum += static_cast<double>(statistics[2 * t + 1]) *
               std::exp(static_cast<double>(statistics[2 * t]) - all.shift);
  }
  return all;
}

}  // namespace

void parted_cross_entropy(Stream& /*stream*/, const PartedCrossEntropy& of) {
  const std::int64_t rows = of.logits.shape()[0];
  const std::int64_t n = of.logits.shape()[1];
  const std::int64_t parts = of.statistics.shape()[1] / 2;
  const float share = 1.0f / static_cast<float>(rows);
  const float label_share = share * (1.0f - of.smoothing);
  const auto smoothing = static_cast<double>(of.smoothing);
  const double of_class = smoothing / static_cast<double>(of.classes);
  const float class_share = share * (of.smoothing / static_cast<float>(of.classes));
  double loss = 0;
  std::int64_t right = 0;
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::int64_t label = of.labels.data<std::int32_t>()[r];
    check_id("parted_cross_entropy", "label", label, r, of.classes);
    const std::int64_t own = label - of.first;
    const bool is_own = own >= 0 && own < n;
    const float* x = of.logits.data<float>() + r * n;
    const float* statistics = of.statistics.data<float>() + r * 2 * parts;
    const WholeSoftmax all = whole_softmax(statistics, parts, of.part);
    const double log_sum = std::log(all.sum) + all.shift;
    if (is_own) {
      loss += (1 - smoothing) * (log_sum - static_cast<double>(x[own]));
      right += all.first && predicts(x, n, own, statistics[2 * of.part]) ? 1 : 0;
    }
    for (std::int64_t c = 0; smoothing > 0 && c < n; ++c) {
      loss += of_class * (log_sum - static_cast<double>(x[c]));
    }
    if (of.dlogits) {
      float* e = of.dlogits.data<float>() + r * n;
      exponentials(x, static_cast<float>(all.shift), n, e);
      const float factor = static_cast<float>(static_cast<double>(share) / all.sum);
      for (std::int64_t c = 0; c < n; ++c) {
        e[c] = e[c] * factor - class_share;
      }
      if (is_own) {
        e[own] -= label_share;
      }
    }
  }
  of.result.data<double>()[0] = loss;
  of.result.data<double>()[1] = static_cast<double>(right);
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

}  // namespace troupe::cpu::TROUPE_ISA
