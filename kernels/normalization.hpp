// Batch, layer, RMS and group normalization: y = (x - mean) / sqrt(variance + epsilon) * gamma + beta,
// with the biased variance. What they differ in is over which elements mean and variance are taken.
//
// Images (B, H, W, C) are passed as (B H W, C) or (B, H W, C). inverse_deviation is 1 /
// sqrt(variance + epsilon). x and dx, y, dy are each float32 or of the stream's
// operand_type(), the others float32; sums are in double or in float blocks that are added in
// double, in a fixed order, so that neither many rows nor a mean far from zero costs precision.
// A NaN spreads over all that its mean is taken of.
#pragma once

#include "kernels/activation.hpp"
#include "kernels/stream.hpp"

namespace troupe {

// Arguments are named, in structs of references: for one call.

/// What all forwards take. y may be x where no backward follows and their types agree.
struct NormalizationForward {
  const Tensor& x;
  const Tensor& gamma;  // (C)
  const Tensor& beta;   // (C); of an RMS norm empty
  float epsilon;
  const Tensor& y;                  // of x's shape; written
  const Tensor& mean;               // written, for the backward; of an RMS norm empty
  const Tensor& inverse_deviation;  // the same
};

/// What all backwards take: x, gamma, mean and inverse_deviation as the forward had and left them. The
/// gradients are overwritten.
struct NormalizationBackward {
  const Tensor& x;
  const Tensor& gamma;
  const Tensor& mean;
  const Tensor& inverse_deviation;
  const Tensor& dy;      // the gradient by y
  const Tensor& dx;      // of x's shape and type; may be dy
  const Tensor& dgamma;  // (C)
  const Tensor& dbeta;   // (C); of an RMS norm empty, as mean is
};

/// y = act(normalized x), mean and variance of each column over the rows of this batch. Shapes: x, y
/// (R, C), R >= 1; mean, inverse_deviation (C).
/// Activation: none or relu. Ioffe & Szegedy 2015, algorithm 1.
void batch_norm_forward(Stream& stream,
                        ActivationKind activation,
                        const NormalizationForward& arguments);

struct BatchNormInference {
  const Tensor& x;  // (R, C); R may be 0
  const Tensor& gamma;
  const Tensor& beta;
  const Tensor& running_mean;      // (C)
  const Tensor& running_variance;  // (C)
  float epsilon;
  ActivationKind activation;
  const Tensor& y;  // (R, C), written; may be x where their types agree
};

/// The same with given statistics instead of the batch's.
void batch_norm_infer(Stream& stream, const BatchNormInference& arguments);

struct BatchNormRunning {
  const Tensor& mean;               // (C), the forward's result
  const Tensor& inverse_deviation;  // (C), the same
  std::int64_t rows;                // of the forward
  float epsilon;                    // the forward's
  float momentum;
  const Tensor& running_mean;      // (C)
  const Tensor& running_variance;  // (C)
  const Tensor& next_mean;         // (C), written; may be running_mean
  const Tensor& next_variance;     // (C), the same
};

/// next = (1 - momentum) running + momentum batch, with the variance unbiased by R /
/// (R - 1), as PyTorch does (of a single row as it is: zero).
void batch_norm_running(Stream& stream, const BatchNormRunning& arguments);

/// `y` is the forward's output where relu was applied: dy counts where y > 0; empty where there was no
/// activation.
void batch_norm_backward(Stream& stream, const Tensor& y, const NormalizationBackward& arguments);

/// Mean and variance of each row. Shapes: x, y (R, C), C >= 1; mean, inverse_deviation (R). Ba, Kiros &
/// Hinton 2016, arXiv:1607.06450. Without mean and beta: as if they were 0, so that inverse_deviation is one over the root
/// mean square (Zhang & Sennrich 2019, arXiv:1910.07467).
void layer_norm_forward(Stream& stream, const NormalizationForward& arguments);

/// Shapes as the forward's.
void layer_norm_backward(Stream& stream, const NormalizationBackward& arguments);

/// Mean and variance of each image's `groups` groups of C / groups neighbouring channels. Shapes: x,
/// y (B, S, C), S >= 1, C >= 1 a multiple of groups; mean, inverse_deviation (B, groups). Wu & He 2018,
/// arXiv:1803.08494.
void group_norm_forward(Stream& stream, std::int64_t groups, const NormalizationForward& arguments);

/// Shapes as the forward's.
void group_norm_backward(Stream& stream,
                         std::int64_t groups,
                         const NormalizationBackward& arguments);

// The backends: same signatures, arguments already checked.
TROUPE_BACKENDS(batch_norm_forward);
TROUPE_BACKENDS(batch_norm_infer);
TROUPE_BACKENDS(batch_norm_running);
TROUPE_BACKENDS(batch_norm_backward);
TROUPE_BACKENDS(layer_norm_forward);
TROUPE_BACKENDS(layer_norm_backward);
TROUPE_BACKENDS(group_norm_forward);
TROUPE_BACKENDS(group_norm_backward);

}  // namespace troupe
