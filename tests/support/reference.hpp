// The specification of the kernels: naive loops in double. The fast ones are compared with these
// over odd sizes.
#pragma once

#include "kernels/attention.hpp"
#include "kernels/convolution.hpp"
#include "kernels/functors/activation.hpp"
#include "kernels/functors/update.hpp"
#include "kernels/loss.hpp"
#include "kernels/matmul.hpp"
#include "kernels/stream.hpp"
#include "kernels/update.hpp"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace troupe::test {

using Values = std::vector<double>;

// -- inputs -------------------------------------------------------------------------

/// n normal numbers, the same for the same seed.
std::vector<float> normal_floats(std::uint64_t seed, std::int64_t n);
Tensor normal_tensor(Stream& stream, std::uint64_t seed, Shape shape);
/// An update kernel's first or second moment before a step: normal numbers, or 0.1 + their squares where the
/// kernel takes its root.
Tensor moment_tensor(Stream& stream, UpdateKernel kernel, int which, Shape shape);
/// n integers in [0, below).
Tensor random_labels(Stream& stream, std::uint64_t seed, std::int64_t n, std::int64_t below);

// -- comparison ---------------------------------------------------------------------

/// |got - expected| <= absolute + relative * |expected|.
struct Tolerance {
  double absolute = 0;
  double relative = 0;
};

/// A Catch check that fails with the worst element's index and both values.
void check_close(const std::string& what,
                 const Values& got,
                 const Values& expected,
                 Tolerance tolerance);

// -- operations, on row-major values in double ------------------------------------------

double activation(ActivationKind kind, double x);

/// c (M, N) += op(a) op(b), stored as MatmulOptions say.
void matmul(const Values& a,
            const Values& b,
            Values& c,
            std::int64_t rows,
            std::int64_t columns,
            std::int64_t inner,
            bool transpose_a,
            bool transpose_b);

struct Images {  // x (B, H, W, C), w (O, kernel, kernel, C), y (B, H', W', O)
  ConvolutionGeometry geometry;
  std::int64_t batch = 1;
  std::int64_t height = 1;
  std::int64_t width = 1;
  std::int64_t channels = 1;
  std::int64_t channels_out = 1;

  Shape x() const { return {batch, height, width, channels}; }

  Shape w() const { return {channels_out, geometry.kernel, geometry.kernel, channels}; }

  Shape y() const { return {batch, geometry.output(height), geometry.output(width), channels_out}; }

  Shape pooled() const {
    return {batch, geometry.output(height), geometry.output(width), channels};
  }
};

Values convolution(const Images& images, const Values& x, const Values& w, const Values& bias);
Values convolution_input_gradient(const Images& images, const Values& dy, const Values& w);
Values convolution_weight_gradient(const Images& images, const Values& x, const Values& dy);

struct Pooled {
  Values y;
  Values winner;
};

Pooled max_pool(const Images& images, const Values& x);
Values max_pool_backward(const Images& images, const Values& dy, const Values& winner);
Values average_pool(const Images& images, const Values& x);
Values average_pool_backward(const Images& images, const Values& dy);

/// Which elements of x, row-major with `channels` last, share a mean and a variance: all
/// normalizations differ in nothing else.
struct Normalization {
  std::int64_t channels = 1;
  std::int64_t groups = 1;                               // means and variances
  std::function<std::int64_t(std::int64_t i)> group_of;  // of element i
  double epsilon = 0;
  bool centred = true;  // else the mean counts as 0

  static Normalization batch(std::int64_t channels, double epsilon);
  static Normalization layer(std::int64_t rows, std::int64_t channels, double epsilon);
  /// x (B, S, C), `groups` in each image.
  static Normalization group(const Shape& x, std::int64_t groups, double epsilon);
};

struct Normalized {
  Values y;
  Values mean;
  Values variance;
};

Normalized normalize(const Normalization& n,
                     const Values& x,
                     const Values& gamma,
                     const Values& beta);

struct NormalizationGradients {
  Values dx;
  Values dgamma;
  Values dbeta;
};

NormalizationGradients normalization_backward(const Normalization& n,
                                              const Values& x,
                                              const Values& gamma,
                                              const Values& dy);

struct Loss {
  double sum = 0;
  double right = 0;
  Values gradient;
};

Loss softmax_cross_entropy(const Values& logits,
                           const Values& labels,
                           std::int64_t classes,
                           double smoothing = 0);
Loss squared_error(const Values& y, const Values& target, std::int64_t columns);

struct Heads {  // qkv (B, T, C + 2K), y (B, T, C), log_sum (B, heads, T)
  std::int64_t batch = 1;
  std::int64_t length = 1;
  std::int64_t heads = 1;
  std::int64_t head_size = 1;
  std::int64_t kv_heads = 0;  // 0: as many
  bool causal = true;

  AttentionForm form() const { return {heads, kv_heads, causal}; }

  std::int64_t width() const { return heads * head_size; }

  Shape qkv() const { return {batch, length, width() + 2 * form().key_heads() * head_size}; }

  /// Where row i of sequence b begins in qkv, and, in a row, head h's keys and values.
  std::int64_t row(std::int64_t b, std::int64_t i) const { return (b * length + i) * qkv()[2]; }

  std::int64_t key_of(std::int64_t h) const {
    return width() + h * form().key_heads() / heads * head_size;
  }

  std::int64_t value_of(std::int64_t h) const { return key_of(h) + form().key_heads() * head_size; }

  /// Keys that query i sees.
  std::int64_t seen(std::int64_t i) const { return causal ? i + 1 : length; }

  Shape y() const { return {batch, length, width()}; }

  Shape log_sum() const { return {batch, heads, length}; }
};

struct Attended {
  Values y;
  Values log_sum;
};

Attended attention(const Heads& heads, const Values& qkv);
Values attention_gradient(const Heads& heads, const Values& qkv, const Values& dy);

struct Lstm {  // x (B, T, I), w_input (4H, I), w_hidden (4H, H), bias (4H)
  std::int64_t batch = 1;
  std::int64_t length = 1;
  std::int64_t inputs = 1;
  std::int64_t cells = 1;
};

/// y (B, T, H). The state before the first step, h and c (B, H); empty: zeros.
Values lstm(const Lstm& sizes,
            const Values& x,
            const Values& w_input,
            const Values& w_hidden,
            const Values& bias,
            const Values& h = {},
            const Values& c = {});
/// Muon's orthogonalisation (orthogonalize.hpp) of x (rows, columns), by its formula.
Values newton_schulz(Values x, std::int64_t rows, std::int64_t columns);

/// One element's step by the formulas of update.hpp.
struct Step {
  double w = 0;
  double m = 0;
  double v = 0;
  double direction = 0;
};

Step update(
    UpdateKernel kernel, const UpdateScalars& scalars, double w, double g, double m, double v);

}  // namespace troupe::test
