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

/// Of one call, as all structs of references here.
struct CompensationArguments {
  Compensation kind;
  const CompensationScalars& scalars;
  const Tensor& g;
  const Tensor& w;
  const Tensor& w_read;
  const Tensor& mean_square;  // read and written by adaptive, empty for the others
  const Tensor& out;          // written; may be g
};

/// out = the corrected gradient.
void compensate_delay(Stream& stream, const CompensationArguments& arguments);

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

struct OwnStepArguments {
  const OwnStepScalars& scalars;
  const Tensor& g;
  const Tensor& w;
  const Tensor& aim;
  const Tensor& w_read;
  const Tensor& square;  // s
  const Tensor& out;     // written; may be g
};

/// out = g / p + weight_decay w (1 / p - 1), p = 1 + |aim - w_read| / C, C = rate (sqrt(correction s)
/// + 1e-8), element by element: Gap-Aware as its authors' code has it, where weight decay, which the
/// update adds to the gradient in full, is damped with it.
void damp_by_own_steps(Stream& stream, const OwnStepArguments& arguments);

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

struct DeviationArguments {
  const DeviationScalars& scalars;
  const Tensor& g;
  const Tensor& square;     // n; read and written
  const Tensor& mean;       // b; read and written
  const Tensor& deviation;  // v; read and written
  const Tensor& out;        // written; may be g
};

/// FASGD (Odena 2016): n = gamma n + (1 - gamma) g^2, b = gamma b + (1 - gamma) g, v = beta v +
/// (1 - beta) sqrt(n - b^2 + epsilon), out = g / v.
void divide_by_deviation(Stream& stream, const DeviationArguments& arguments);

// The backends: same signatures, arguments already checked.
TROUPE_BACKENDS(compensate_delay);
TROUPE_BACKENDS(damp_by_gap);
TROUPE_BACKENDS(divide_by_deviation);
TROUPE_BACKENDS(damp_by_own_steps);
TROUPE_BACKENDS(average_square_step);

}  // namespace troupe
