// Orthogonalisation of a matrix by products alone: the heart of Muon (Jordan et al. 2024,
// kellerjordan.github.io/posts/muon).
#pragma once

#include "kernels/stream.hpp"

namespace troupe {

/// out = nearly U V^T, where x = U S V^T is the singular value decomposition: five Newton-Schulz
/// steps X <- a X + b (X X^T) X + c (X X^T)^2 X from x / ||x||_F, with Jordan's a = 3.4445,
/// b = -4.7750, c = 2.0315. They do not converge to 1 but bring every singular value of at least 1/190
/// of the norm into [0.68, 1.14], of at least 1/650 into [0.68, 1.21]; smaller ones grow up to 485
/// times.
///
/// Shapes: x, out (M, N) float32, both >= 1; out may be x. 10 s^2 (2 l + s) operations for sides
/// s <= l. Asynchronous; takes a matrix like x and two (s, s) from the pool. A NaN spreads.
void orthogonalize(Stream& stream, const Tensor& x, const Tensor& out);

}  // namespace troupe
