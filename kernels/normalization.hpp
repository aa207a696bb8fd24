// Batch, layer and group normalization: y = (x - mean) / sqrt(variance + epsilon) * gamma + beta,
// with the biased variance. What they differ in is over which elements mean and variance are taken.
//
// Images (B, H, W, C) are passed as (B H W, C) or (B, H W, C). inverse_deviation is 1 /
// sqrt(variance + epsilon). All float32 unless said; sums are in double or in float blocks that are added in
// double, in a fixed order, so that neither many rows nor a mean far from zero costs precision.
// A NaN spreads over all that its mean is taken of.
#pragma once

#include "kernels/activation.hpp"
#include "kernels/stream.hpp"

namespace troupe {

/// y = act(normalized x), mean and variance of each column over the rows of this batch, which are
/// written out for the backward. Shapes: x (float32 or of the stream's operand_type()), y (R, C), R >= 1; gamma, beta, mean, inverse_deviation
/// (C). Activation: none or relu. y may be x where no backward follows and x is float32. Ioffe & Szegedy 2015,
/// algorithm 1.
void batch_norm_forward(Stream& stream,
                        const Tensor& x,
                        const Tensor& gamma,
                        const Tensor& beta,
                        float epsilon,
                        ActivationKind activation,
                        const Tensor& y,
                        const Tensor& mean,
                        const Tensor& inverse_deviation);

/// The same with given statistics (C) instead of the batch's. R may be 0; y may be x where x is float32.
void batch_norm_infer(Stream& stream,
                      const Tensor& x,
                      const Tensor& gamma,
                      const Tensor& beta,
                      const Tensor& running_mean,
                      const Tensor& running_variance,
                      float epsilon,
                      ActivationKind activation,
                      const Tensor& y);

/// In place: running = (1 - momentum) running + momentum batch, with the variance unbiased by R /
/// (R - 1), as PyTorch does (of a single row as it is: zero). `rows` and `epsilon` are the
/// forward's, `mean` and `inverse_deviation` its results. Shapes: all (C).
void batch_norm_running(Stream& stream,
                        const Tensor& mean,
                        const Tensor& inverse_deviation,
                        std::int64_t rows,
                        float epsilon,
                        float momentum,
                        const Tensor& running_mean,
                        const Tensor& running_variance);

/// dx, dgamma and dbeta (all overwritten) given dy by the output. `y` is that output where relu was
/// applied: dy counts where y > 0; empty where there was no activation. Shapes as forward, dx of x's type; dx
/// may be dy.
void batch_norm_backward(Stream& stream,
                         const Tensor& x,
                         const Tensor& gamma,
                         const Tensor& mean,
                         const Tensor& inverse_deviation,
                         const Tensor& y,
                         const Tensor& dy,
                         const Tensor& dx,
                         const Tensor& dgamma,
                         const Tensor& dbeta);

/// Mean and variance of each row. Shapes: x, y (R, C), C >= 1; gamma, beta (C); mean,
/// inverse_deviation (R). Ba, Kiros & Hinton 2016, arXiv:1607.06450.
void layer_norm_forward(Stream& stream,
                        const Tensor& x,
                        const Tensor& gamma,
                        const Tensor& beta,
                        float epsilon,
                        const Tensor& y,
                        const Tensor& mean,
                        const Tensor& inverse_deviation);

/// dx, dgamma, dbeta (all overwritten). Shapes as forward; dx may be dy.
void layer_norm_backward(Stream& stream,
                         const Tensor& x,
                         const Tensor& gamma,
                         const Tensor& mean,
                         const Tensor& inverse_deviation,
                         const Tensor& dy,
                         const Tensor& dx,
                         const Tensor& dgamma,
                         const Tensor& dbeta);

/// Mean and variance of each image's `groups` groups of C / groups neighbouring channels. Shapes: x,
/// y (B, S, C), S >= 1, C >= 1 a multiple of groups; gamma, beta (C); mean, inverse_deviation (B,
/// groups). Wu & He 2018, arXiv:1803.08494.
void group_norm_forward(Stream& stream,
                        std::int64_t groups,
                        const Tensor& x,
                        const Tensor& gamma,
                        const Tensor& beta,
                        float epsilon,
                        const Tensor& y,
                        const Tensor& mean,
                        const Tensor& inverse_deviation);

/// dx, dgamma, dbeta (all overwritten). Shapes as forward; dx may be dy.
void group_norm_backward(Stream& stream,
                         std::int64_t groups,
                         const Tensor& x,
                         const Tensor& gamma,
                         const Tensor& mean,
                         const Tensor& inverse_deviation,
                         const Tensor& dy,
                         const Tensor& dx,
                         const Tensor& dgamma,
                         const Tensor& dbeta);

// The backends: same signatures, arguments already checked.
namespace cpu {
void batch_norm_forward(Stream& stream,
                        const Tensor& x,
                        const Tensor& gamma,
                        const Tensor& beta,
                        float epsilon,
                        ActivationKind activation,
                        const Tensor& y,
                        const Tensor& mean,
                        const Tensor& inverse_deviation);
void batch_norm_infer(Stream& stream,
                      const Tensor& x,
                      const Tensor& gamma,
                      const Tensor& beta,
                      const Tensor& running_mean,
                      const Tensor& running_variance,
                      float epsilon,
                      ActivationKind activation,
                      const Tensor& y);
void batch_norm_running(Stream& stream,
                        const Tensor& mean,
                        const Tensor& inverse_deviation,
                        std::int64_t rows,
                        float epsilon,
                        float momentum,
                        const Tensor& running_mean,
                        const Tensor& running_variance);
void batch_norm_backward(Stream& stream,
                         const Tensor& x,
                         const Tensor& gamma,
                         const Tensor& mean,
                         const Tensor& inverse_deviation,
                         const Tensor& y,
                         const Tensor& dy,
                         const Tensor& dx,
                         const Tensor& dgamma,
                         const Tensor& dbeta);
void layer_norm_forward(Stream& stream,
                        const Tensor& x,
                        const Tensor& gamma,
                        const Tensor& beta,
                        float epsilon,
                        const Tensor& y,
                        const Tensor& mean,
                        const Tensor& inverse_deviation);
void layer_norm_backward(Stream& stream,
                         const Tensor& x,
                         const Tensor& gamma,
                         const Tensor& mean,
                         const Tensor& inverse_deviation,
                         const Tensor& dy,
                         const Tensor& dx,
                         const Tensor& dgamma,
                         const Tensor& dbeta);
void group_norm_forward(Stream& stream,
                        std::int64_t groups,
                        const Tensor& x,
                        const Tensor& gamma,
                        const Tensor& beta,
                        float epsilon,
                        const Tensor& y,
                        const Tensor& mean,
                        const Tensor& inverse_deviation);
void group_norm_backward(Stream& stream,
                         std::int64_t groups,
                         const Tensor& x,
                         const Tensor& gamma,
                         const Tensor& mean,
                         const Tensor& inverse_deviation,
                         const Tensor& dy,
                         const Tensor& dx,
                         const Tensor& dgamma,
                         const Tensor& dbeta);
}  // namespace cpu

namespace cuda {
void batch_norm_forward(Stream& stream,
                        const Tensor& x,
                        const Tensor& gamma,
                        const Tensor& beta,
                        float epsilon,
                        ActivationKind activation,
                        const Tensor& y,
                        const Tensor& mean,
                        const Tensor& inverse_deviation);
void batch_norm_infer(Stream& stream,
                      const Tensor& x,
                      const Tensor& gamma,
                      const Tensor& beta,
                      const Tensor& running_mean,
                      const Tensor& running_variance,
                      float epsilon,
                      ActivationKind activation,
                      const Tensor& y);
void batch_norm_running(Stream& stream,
                        const Tensor& mean,
                        const Tensor& inverse_deviation,
                        std::int64_t rows,
                        float epsilon,
                        float momentum,
                        const Tensor& running_mean,
                        const Tensor& running_variance);
void batch_norm_backward(Stream& stream,
                         const Tensor& x,
                         const Tensor& gamma,
                         const Tensor& mean,
                         const Tensor& inverse_deviation,
                         const Tensor& y,
                         const Tensor& dy,
                         const Tensor& dx,
                         const Tensor& dgamma,
                         const Tensor& dbeta);
void layer_norm_forward(Stream& stream,
                        const Tensor& x,
                        const Tensor& gamma,
                        const Tensor& beta,
                        float epsilon,
                        const Tensor& y,
                        const Tensor& mean,
                        const Tensor& inverse_deviation);
void layer_norm_backward(Stream& stream,
                         const Tensor& x,
                         const Tensor& gamma,
                         const Tensor& mean,
                         const Tensor& inverse_deviation,
                         const Tensor& dy,
                         const Tensor& dx,
                         const Tensor& dgamma,
                         const Tensor& dbeta);
void group_norm_forward(Stream& stream,
                        std::int64_t groups,
                        const Tensor& x,
                        const Tensor& gamma,
                        const Tensor& beta,
                        float epsilon,
                        const Tensor& y,
                        const Tensor& mean,
                        const Tensor& inverse_deviation);
void group_norm_backward(Stream& stream,
                         std::int64_t groups,
                         const Tensor& x,
                         const Tensor& gamma,
                         const Tensor& mean,
                         const Tensor& inverse_deviation,
                         const Tensor& dy,
                         const Tensor& dx,
                         const Tensor& dgamma,
                         const Tensor& dbeta);
}  // namespace cuda

}  // namespace troupe
