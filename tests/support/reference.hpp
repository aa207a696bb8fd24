// The specification of the kernels: naive loops in double. The fast ones are compared with these
// over odd sizes.
#pragma once

#include "kernels/convolution.hpp"
#include "kernels/functors/activation.hpp"
#include "kernels/functors/update.hpp"
#include "kernels/loss.hpp"
#include "kernels/matmul.hpp"
#include "kernels/stream.hpp"
#include "kernels/update.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace troupe::test {

using Values = std::vector<double>;

// -- inputs -------------------------------------------------------------------------

/// n normal numbers, the same for the same seed.
std::vector<float> normal_floats(std::uint64_t seed, std::int64_t n);
Tensor normal_tensor(Stream& stream, std::uint64_t seed, Shape shape);
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

struct Loss {
  double sum = 0;
  double right = 0;
  Values gradient;
};

Loss softmax_cross_entropy(const Values& logits, const Values& labels, std::int64_t classes);
Loss squared_error(const Values& y, const Values& target, std::int64_t columns);

/// One element's step by the formulas of update.hpp.
struct Step {
  double w = 0;
  double m = 0;
  double v = 0;
  double direction = 0;
};

Step update(UpdateRule rule, const UpdateScalars& scalars, double w, double g, double m, double v);

}  // namespace troupe::test
