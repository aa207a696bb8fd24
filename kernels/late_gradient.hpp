// What a server makes of a gradient that was computed at weights it has left meanwhile. Formulas:
// functors/late_gradient.hpp. Shapes: all tensors (n) float32 on the stream's device.
#pragma once

#include "kernels/stream.hpp"

#include <cstdint>

namespace troupe {

/// DC-ASGD's corrections (Zheng et al. 2017).
enum class Compensation : std::uint8_t {
  constant,  // g + lambda g^2 (w - w_read)
  adaptive,  // g + lambda g^2 (w - w_read) / sqrt(s + 1e-7), s = decay s + (1 - decay) g^2
  absolute,  // g + lambda |g| (w - w_read), as Multiverso's updater does
};

struct CompensationScalars {
  float lambda = 0;
  float decay = 0;  // of adaptive's mean square s
};

/// out = the corrected gradient. `mean_square` is read and written by adaptive, empty for the
/// others. out may be g.
void compensate_delay(Stream& stream,
                      Compensation kind,
                      const CompensationScalars& scalars,
                      const Tensor& g,
                      const Tensor& w,
                      const Tensor& w_read,
                      const Tensor& mean_square,
                      const Tensor& out);

/// out = g / (1 + |w - w_read| / reach), element by element: Gap-Aware (Barkai et al. 2020). reach >
/// 0. out may be g.
void damp_by_gap(Stream& stream,
                 float reach,
                 const Tensor& g,
                 const Tensor& w,
                 const Tensor& w_read,
                 const Tensor& out);

struct OwnStepScalars {
  float rate = 0;        // the largest of the run
  float correction = 1;  // 1 / (1 - decay^steps): of a mean that began with 0
  float weight_decay = 0;
};

/// out = g / p + weight_decay w (1 / p - 1), p = 1 + |aim - w_read| / C, C = rate (sqrt(correction s)
/// + 1e-8), element by element: Gap-Aware as its authors' code has it, where weight decay, which the
/// update adds to the gradient in full, is damped with it. s is `square`. out may be g.
void damp_by_own_steps(Stream& stream,
                       const OwnStepScalars& scalars,
                       const Tensor& g,
                       const Tensor& w,
                       const Tensor& aim,
                       const Tensor& w_read,
                       const Tensor& square,
                       const Tensor& out);

/// square = decay square + (1 - decay) (scale (before - after))^2, element by element.
void average_square_step(Stream& stream,
                         float decay,
                         float scale,
                         const Tensor& before,
                         const Tensor& after,
                         const Tensor& square);

struct DeviationScalars {
  float decay = 0;            // gamma, of the averages of g^2 and g
  float deviation_decay = 0;  // beta, of the average of the deviation
  float epsilon = 0;          // added to the variance
};

/// FASGD (Odena 2016): n = gamma n + (1 - gamma) g^2, b = gamma b + (1 - gamma) g, v = beta v +
/// (1 - beta) sqrt(n - b^2 + epsilon), out = g / v. `square` n, `mean` b and `deviation` v are read
/// and written; out may be g.
void divide_by_deviation(Stream& stream,
                         const DeviationScalars& scalars,
                         const Tensor& g,
                         const Tensor& square,
                         const Tensor& mean,
                         const Tensor& deviation,
                         const Tensor& out);

// The backends: same signatures, arguments already checked.
namespace cpu {
void compensate_delay(Stream& stream,
                      Compensation kind,
                      const CompensationScalars& scalars,
                      const Tensor& g,
                      const Tensor& w,
                      const Tensor& w_read,
                      const Tensor& mean_square,
                      const Tensor& out);
void damp_by_gap(Stream& stream,
                 float reach,
                 const Tensor& g,
                 const Tensor& w,
                 const Tensor& w_read,
                 const Tensor& out);
void divide_by_deviation(Stream& stream,
                         const DeviationScalars& scalars,
                         const Tensor& g,
                         const Tensor& square,
                         const Tensor& mean,
                         const Tensor& deviation,
                         const Tensor& out);
void damp_by_own_steps(Stream& stream,
                       const OwnStepScalars& scalars,
                       const Tensor& g,
                       const Tensor& w,
                       const Tensor& aim,
                       const Tensor& w_read,
                       const Tensor& square,
                       const Tensor& out);
void average_square_step(Stream& stream,
                         float decay,
                         float scale,
                         const Tensor& before,
                         const Tensor& after,
                         const Tensor& square);
}  // namespace cpu

namespace cuda {
void compensate_delay(Stream& stream,
                      Compensation kind,
                      const CompensationScalars& scalars,
                      const Tensor& g,
                      const Tensor& w,
                      const Tensor& w_read,
                      const Tensor& mean_square,
                      const Tensor& out);
void damp_by_gap(Stream& stream,
                 float reach,
                 const Tensor& g,
                 const Tensor& w,
                 const Tensor& w_read,
                 const Tensor& out);
void divide_by_deviation(Stream& stream,
                         const DeviationScalars& scalars,
                         const Tensor& g,
                         const Tensor& square,
                         const Tensor& mean,
                         const Tensor& deviation,
                         const Tensor& out);
void damp_by_own_steps(Stream& stream,
                       const OwnStepScalars& scalars,
                       const Tensor& g,
                       const Tensor& w,
                       const Tensor& aim,
                       const Tensor& w_read,
                       const Tensor& square,
                       const Tensor& out);
void average_square_step(Stream& stream,
                         float decay,
                         float scale,
                         const Tensor& before,
                         const Tensor& after,
                         const Tensor& square);
}  // namespace cuda

}  // namespace troupe
