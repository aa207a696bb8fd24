// Losses: the mean over the rows of a micro-batch, its gradient, and what a progress line wants to
// know.
//
// `result` is float64 (2): [0] the SUM of the rows' losses, [1] the number of rows predicted right
// (0 where that has no meaning). The gradient is that of the MEAN over the rows given.
#pragma once

#include "kernels/stream.hpp"

#include <cstdint>

namespace troupe {

/// Softmax and cross-entropy: loss = -sum_c target[c] log softmax(logits)[c], dlogits = (softmax -
/// target) / R, where target = (1 - smoothing) onehot(label) + smoothing / C (label smoothing,
/// Szegedy et al. 2016, as in PyTorch; 0: -log softmax(logits)[label]).
/// Shapes: logits, dlogits (R, C), labels int32 (R) in [0, C). dlogits may be logits; empty: not
/// wanted; of logits' type, float32 or the stream's operand_type(). smoothing in [0, 1). Right: the first largest logit is the label's.
void softmax_cross_entropy(Stream& stream,
                           const Tensor& logits,
                           const Tensor& labels,
                           const Tensor& dlogits,
                           const Tensor& result,
                           float smoothing = 0);

/// Of classes that several parts share: statistics[r] = the greatest of the row's own logits, and the sum of
/// exp(logit - greatest). Shapes: logits (R, n), statistics (R, 2), float32.
void softmax_statistics(Stream& stream, const Tensor& logits, const Tensor& statistics);

/// softmax_cross_entropy() where a part has the classes [first, first + n) of `classes`: its own columns of dlogits, and
/// what its own classes add to the result: rows whose label is one of them, and their share of a smoothed target. The parts'
/// results add up to that of all.
struct PartedCrossEntropy {
  Tensor logits;      // (R, n)
  Tensor statistics;  // (R, 2 parts): softmax_statistics() of each part, side by side
  Tensor labels;      // int32 (R)
  Tensor dlogits;     // (R, n); empty: not wanted
  Tensor result;
  std::int64_t part = 0;  // whose logits these are
  std::int64_t first = 0;
  std::int64_t classes = 1;
  float smoothing = 0;
};

void parted_cross_entropy(Stream& stream, const PartedCrossEntropy& of);

/// loss of a row = 1/2 sum_c (y - target)^2; dy = (y - target) / R. Shapes: y, target, dy (R, C).
/// dy may be y; empty: not wanted.
void squared_error(
    Stream& stream, const Tensor& y, const Tensor& target, const Tensor& dy, const Tensor& result);

// The backends: same signatures, arguments already checked.
TROUPE_BACKENDS(softmax_cross_entropy);
TROUPE_BACKENDS(softmax_statistics);
TROUPE_BACKENDS(parted_cross_entropy);
TROUPE_BACKENDS(squared_error);

}  // namespace troupe
