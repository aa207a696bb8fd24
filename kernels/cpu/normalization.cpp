// Batch and group normalization: sums over columns, then one pass that applies them.
//
// The forward's sums are taken in double of each element by itself: its square is exact there, so
// that a mean far from zero costs nothing, and one pass over x gives mean and variance. The
// backward's terms are rounded anyway: they are float.
#include "kernels/normalization.hpp"

#include "kernels/cpu/backend.hpp"
#include "kernels/functors/activation.hpp"
#include "kernels/functors/normalization.hpp"

#include <algorithm>
#include <initializer_list>

namespace troupe::cpu::TROUPE_ISA {

namespace {

/// A matrix (R, C) whose neighbouring rows make long rows, so that loops over columns are long
/// where columns are few.
struct LongRows {
  static constexpr std::int64_t kLength = 256;

  std::int64_t columns;
  std::int64_t length;  // of a long row; a multiple of columns
  std::int64_t count;
  std::int64_t rest;  // elements after the last long row; a multiple of columns

  LongRows(std::int64_t R, std::int64_t C)
      : columns(C),
        length(std::clamp<std::int64_t>(kLength / C, 1, std::max<std::int64_t>(R, 1)) * C),
        count(R * C / length),
        rest(R * C % length) {}
};

/// What a call keeps in the stream's scratch memory, for each element of a long row.
struct Scratch {
  double* first;  // two sums
  double* second;
  double* dgamma;
  double* dbeta;
  float* mean;  // what the pass over all elements needs to know of a column
  float* factor;
  float* slope;
  float* offset;

  Scratch(Stream& stream, const LongRows& rows) {
    float* memory = stream.cpu().scratch(12 * rows.length);
    first = reinterpret_cast<double*>(memory);
    second = first + rows.length;
    dgamma = second + rows.length;
    dbeta = dgamma + rows.length;
    mean = memory + 8 * rows.length;
    factor = mean + rows.length;
    slope = factor + rows.length;
    offset = slope + rows.length;
  }
};

/// What stands at the first `columns` elements of each goes on to the end of the long row.
void repeat(const LongRows& rows, std::initializer_list<float*> of_column) {
  for (float* values : of_column) {
    for (std::int64_t i = rows.columns; i < rows.length; ++i) {
      values[i] = values[i - rows.columns];
    }
  }
}

template <class T>
struct Terms {
  T first;
  T second;

  friend Terms operator+(const Terms& a, const Terms& b) {
    return {a.first + b.first, a.second + b.second};
  }
};

// Passes over a matrix go over several of its parts at once, each from front to back: the
// processor's own prefetching follows sequences that are pages apart and fetches from several of
// them faster than from one, but loses the thread where neighbouring rows are read in turn.

/// s.first[c], s.second[c] = the sums over column c of the terms of its elements. term(at, i) gets
/// an element's place in the matrix and in its long row. Four terms, from four parts of the matrix,
/// are added in the terms' type, all else in double.
template <class Term>
void sum_columns(const LongRows& rows, const Scratch& s, Term term) {
  constexpr std::int64_t kParts = 4;
  const std::int64_t length = rows.length;
  const std::int64_t part = rows.count / kParts * length;
  double* const first = s.first;
  double* const second = s.second;
  std::fill_n(first, length, 0.0);
  std::fill_n(second, length, 0.0);
  for (std::int64_t at = 0; at < part; at += length) {
#pragma GCC ivdep
    for (std::int64_t i = 0; i < length; ++i) {
      const auto sum = (term(at + i, i) + term(at + part + i, i)) +
                       (term(at + 2 * part + i, i) + term(at + 3 * part + i, i));
      first[i] += static_cast<double>(sum.first);
      second[i] += static_cast<double>(sum.second);
    }
  }
  for (std::int64_t r = rows.count / kParts * kParts; r <= rows.count; ++r) {
    const std::int64_t at = r * length;
    const std::int64_t size = r < rows.count ? length : rows.rest;
#pragma GCC ivdep
    for (std::int64_t i = 0; i < size; ++i) {
      const auto terms = term(at + i, i);
      first[i] += static_cast<double>(terms.first);
      second[i] += static_cast<double>(terms.second);
    }
  }
  for (std::int64_t i = rows.columns; i < length; ++i) {
    first[i % rows.columns] += first[i];
    second[i % rows.columns] += second[i];
  }
}

/// to[at] = value(at, i) for every element.
template <class F>
void map(const LongRows& rows, float* to, F value) {
  constexpr std::int64_t kParts = 2;
  const std::int64_t part = rows.count / kParts * rows.length;
  for (std::int64_t at = 0; at < part; at += rows.length) {
#pragma GCC ivdep  // `to` may be what `value` reads, but never a shifted one
    for (std::int64_t i = 0; i < rows.length; ++i) {
      to[at + i] = value(at + i, i);
      to[at + part + i] = value(at + part + i, i);
    }
  }
  for (std::int64_t r = rows.count / kParts * kParts; r <= rows.count; ++r) {
    const std::int64_t at = r * rows.length;
    const std::int64_t size = r < rows.count ? rows.length : rows.rest;
#pragma GCC ivdep
    for (std::int64_t i = 0; i < size; ++i) {
      to[at + i] = value(at + i, i);
    }
  }
}

struct Moments {
  const float* x;

  Terms<double> operator()(std::int64_t at, std::int64_t /*i*/) const {
    const double value = x[at];
    return {value, value * value};
  }
};

/// y = act((x - s.mean) s.factor + s.offset).
void normalize(const LongRows& rows,
               const Scratch& scratch,
               ActivationKind activation,
               const float* x,
               float* y) {
  const auto with = [&](auto op) {
    map(rows, y, [x, op, s = scratch](std::int64_t at, std::int64_t i) {
      return op.forward((x[at] - s.mean[i]) * s.factor[i] + s.offset[i]);
    });
  };
  activation == ActivationKind::relu ? with(Relu{}) : with(Identity{});
}

/// The gradient that came through the activation, at one place.
struct Unmasked {
  const float* dy;

  float operator()(std::int64_t at) const { return dy[at]; }
};

struct Masked {
  const float* dy;
  const float* y;

  float operator()(std::int64_t at) const { return Relu{}.backward(y[at], dy[at]); }
};

/// g and g (x - mean).
template <class Gradient>
struct GradientTerms {
  Gradient g;
  const float* x;
  const float* mean;  // of a long row

  Terms<float> operator()(std::int64_t at, std::int64_t i) const {
    const float gradient = g(at);
    return {gradient, gradient * (x[at] - mean[i])};
  }
};

/// dx = g s.factor + (x - s.mean) s.slope + s.offset.
template <class Gradient>
void input_gradient(
    const LongRows& rows, const Scratch& scratch, const float* x, Gradient g, float* dx) {
  map(rows, dx, [x, g, s = scratch](std::int64_t at, std::int64_t i) {
    return g(at) * s.factor[i] + ((x[at] - s.mean[i]) * s.slope[i] + s.offset[i]);
  });
}

void set_column(const Scratch& s, std::int64_t c, const NormalizationGradient& gradient) {
  s.factor[c] = gradient.factor;
  s.slope[c] = gradient.slope;
  s.offset[c] = gradient.offset;
}

template <class Gradient>
void batch_norm_backward_by(Gradient g, Stream& stream, const NormalizationBackward& a) {
  const LongRows rows(a.x.shape()[0], a.x.shape()[1]);
  const Scratch s(stream, rows);
  const double n = static_cast<double>(a.x.shape()[0]);
  const float* gain = a.gamma.data<float>();
  const float* inverse = a.inverse_deviation.data<float>();
  float* gain_gradient = a.dgamma.data<float>();
  float* bias_gradient = a.dbeta.data<float>();
  std::copy_n(a.mean.data<float>(), rows.columns, s.mean);
  repeat(rows, {s.mean});
  sum_columns(rows, s, GradientTerms<Gradient>{g, a.x.data<float>(), s.mean});
  for (std::int64_t c = 0; c < rows.columns; ++c) {
    const double weight = gain[c];
    set_column(s, c, {gain[c], inverse[c], weight * s.first[c], weight * s.second[c], n});
    gain_gradient[c] = static_cast<float>(s.second[c] * static_cast<double>(inverse[c]));
    bias_gradient[c] = static_cast<float>(s.first[c]);
  }
  repeat(rows, {s.factor, s.slope, s.offset});
  input_gradient(rows, s, a.x.data<float>(), g, a.dx.data<float>());
}

}  // namespace

// -- batch normalization ----------------------------------------------------------------

void batch_norm_forward(Stream& stream, ActivationKind activation, const NormalizationForward& a) {
  const LongRows rows(a.x.shape()[0], a.x.shape()[1]);
  const Scratch s(stream, rows);
  const double n = static_cast<double>(a.x.shape()[0]);
  const float* gain = a.gamma.data<float>();
  float* means = a.mean.data<float>();
  float* inverse = a.inverse_deviation.data<float>();
  sum_columns(rows, s, Moments{a.x.data<float>()});
  for (std::int64_t c = 0; c < rows.columns; ++c) {
    const NormalizationStatistics of_column(s.first[c], s.second[c], n, a.epsilon);
    means[c] = of_column.mean;
    inverse[c] = of_column.inverse_deviation;
    s.factor[c] = gain[c] * inverse[c];
  }
  std::copy_n(means, rows.columns, s.mean);
  std::copy_n(a.beta.data<float>(), rows.columns, s.offset);
  repeat(rows, {s.mean, s.factor, s.offset});
  normalize(rows, s, activation, a.x.data<float>(), a.y.data<float>());
}

void batch_norm_infer(Stream& stream, const BatchNormInference& a) {
  const LongRows rows(a.x.shape()[0], a.x.shape()[1]);
  const Scratch s(stream, rows);
  const float* gain = a.gamma.data<float>();
  const float* variance = a.running_variance.data<float>();
  for (std::int64_t c = 0; c < rows.columns; ++c) {
    const double of_column = variance[c];
    s.factor[c] = gain[c] * static_cast<float>(inverse_of_deviation(of_column, a.epsilon));
  }
  std::copy_n(a.running_mean.data<float>(), rows.columns, s.mean);
  std::copy_n(a.beta.data<float>(), rows.columns, s.offset);
  repeat(rows, {s.mean, s.factor, s.offset});
  normalize(rows, s, a.activation, a.x.data<float>(), a.y.data<float>());
}

void batch_norm_running(Stream& /*stream*/, const BatchNormRunning& a) {
  const RunningStatistics running(a.rows, a.epsilon, a.momentum);
  for (std::int64_t c = 0; c < a.mean.elements(); ++c) {
    float mean = a.running_mean.data<float>()[c];
    float variance = a.running_variance.data<float>()[c];
    running.take_in(a.mean.data<float>()[c], a.inverse_deviation.data<float>()[c], mean, variance);
    a.next_mean.data<float>()[c] = mean;
    a.next_variance.data<float>()[c] = variance;
  }
}

void batch_norm_backward(Stream& stream, const Tensor& y, const NormalizationBackward& a) {
  const auto by = [&](auto g) {
    batch_norm_backward_by(g, stream, a);
  };
  y ? by(Masked{a.dy.data<float>(), y.data<float>()}) : by(Unmasked{a.dy.data<float>()});
}

// -- group normalization ----------------------------------------------------------------

namespace {

/// (B, S, C) with C / groups channels side by side in a group.
struct Groups {
  std::int64_t count;
  std::int64_t width;  // channels of one
  std::int64_t image;  // elements
  double n;            // elements of a group in an image

  Groups(std::int64_t groups, const Shape& x)
      : count(groups),
        width(x[2] / groups),
        image(x[1] * x[2]),
        n(static_cast<double>(x[1] * width)) {}
};

}  // namespace

void group_norm_forward(Stream& stream, std::int64_t groups, const NormalizationForward& a) {
  const LongRows rows(a.x.shape()[1], a.x.shape()[2]);
  const Groups all(groups, a.x.shape());
  const Scratch s(stream, rows);
  const float* gain = a.gamma.data<float>();
  float* group_mean = a.mean.data<float>();
  float* group_inverse = a.inverse_deviation.data<float>();
  std::copy_n(a.beta.data<float>(), rows.columns, s.offset);
  repeat(rows, {s.offset});
  for (std::int64_t b = 0; b < a.x.shape()[0]; ++b) {
    const float* from = a.x.data<float>() + b * all.image;
    sum_columns(rows, s, Moments{from});
    for (std::int64_t first = 0; first < rows.columns; first += all.width) {
      Terms<double> sum{0, 0};
      for (std::int64_t c = first; c < first + all.width; ++c) {
        sum = sum + Terms<double>{s.first[c], s.second[c]};
      }
      const NormalizationStatistics of_group(sum.first, sum.second, all.n, a.epsilon);
      *group_mean = of_group.mean;
      *group_inverse = of_group.inverse_deviation;
      for (std::int64_t c = first; c < first + all.width; ++c) {
        s.mean[c] = *group_mean;
        s.factor[c] = gain[c] * *group_inverse;
      }
      ++group_mean;
      ++group_inverse;
    }
    repeat(rows, {s.mean, s.factor});
    normalize(rows, s, ActivationKind::none, from, a.y.data<float>() + b * all.image);
  }
}

void group_norm_backward(Stream& stream, std::int64_t groups, const NormalizationBackward& a) {
  const LongRows rows(a.x.shape()[1], a.x.shape()[2]);
  const Groups all(groups, a.x.shape());
  const Scratch s(stream, rows);
  const float* gain = a.gamma.data<float>();
  std::fill_n(s.dgamma, rows.columns, 0.0);
  std::fill_n(s.dbeta, rows.columns, 0.0);
  for (std::int64_t b = 0; b < a.x.shape()[0]; ++b) {
    const float* from = a.x.data<float>() + b * all.image;
    const float* means = a.mean.data<float>() + b * groups;
    const float* inverse = a.inverse_deviation.data<float>() + b * groups;
    const Unmasked gradient{a.dy.data<float>() + b * all.image};
    for (std::int64_t c = 0; c < rows.columns; ++c) {
      s.mean[c] = means[c / all.width];
    }
    repeat(rows, {s.mean});
    sum_columns(rows, s, GradientTerms<Unmasked>{gradient, from, s.mean});
    for (std::int64_t g = 0; g < groups; ++g) {
      Terms<double> sum{0, 0};
      for (std::int64_t c = g * all.width; c < (g + 1) * all.width; ++c) {
        const double weight = gain[c];
        sum = sum + Terms<double>{weight * s.first[c], weight * s.second[c]};
        s.dgamma[c] += s.second[c] * static_cast<double>(inverse[g]);
        s.dbeta[c] += s.first[c];
      }
      for (std::int64_t c = g * all.width; c < (g + 1) * all.width; ++c) {
        set_column(s, c, {gain[c], inverse[g], sum.first, sum.second, all.n});
      }
    }
    repeat(rows, {s.factor, s.slope, s.offset});
    input_gradient(rows, s, from, gradient, a.dx.data<float>() + b * all.image);
  }
  for (std::int64_t c = 0; c < rows.columns; ++c) {
    a.dgamma.data<float>()[c] = static_cast<float>(s.dgamma[c]);
    a.dbeta.data<float>()[c] = static_cast<float>(s.dbeta[c]);
  }
}

}  // namespace troupe::cpu::TROUPE_ISA
