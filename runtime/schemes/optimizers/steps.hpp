// Optimizers that need more than one pass over the weights: UpdateMethod::update of each
// (runtime/schemes/optimizers/optimizer_scheme.hpp). Every one works on a parameter by itself.
#pragma once

#include "runtime/schemes/optimizers/optimizer_scheme.hpp"

#include <cstdint>
#include <vector>

namespace troupe {

/// Muon's step of a matrix along its orthogonalised momentum (Jordan et al. 2024), scaled as in Liu et al. 2025,
/// arXiv:2502.16982, section 2.2. One moment.
UpdateFunction muon_step;

/// You, Gitman & Ginsburg 2017, arXiv:1708.03888, algorithm 1; a norm of zero gives the local rate 1. One moment. Waits
/// for the GPU: the norms decide on the host.
UpdateFunction lars_step;

/// You et al. 2020, arXiv:1904.00962, algorithm 2 with phi(x) = x; a norm of zero gives the ratio 1. Two moments. Waits
/// for the GPU, too.
UpdateFunction lamb_step;

/// Adam in the basis of UpdateNumbers::rotation, with decoupled weight decay: Jung et al. 2026, arXiv:2602.03515,
/// algorithms 1 and 2; BasisSource::first as their program has it (github.com/LOG-postech/basis-rotation). The basis is
/// made from the first gradient, and refreshed before each `every`-th step. Two moments, and those of rotation_sizes(): m is of the weights' own basis, v of the rotated one.
UpdateFunction basis_rotation_step;

/// The same as Vyas et al. 2025, arXiv:2409.11321, have it: the basis is refreshed after each `every`-th step, with the
/// gradient that the step has used; the first gradient makes the basis and moves nothing.
UpdateFunction soap_step;

/// UpdateMethod::also of the two: of each rotated side n its basis (n, n), and with BasisSource::second the mean of
/// the gradients' squares (n, n); rows first.
std::vector<std::int64_t> rotation_sizes(const UpdateNumbers& numbers, const Shape& matrix);

/// What their steps end with: w_new = (1 - eta lambda) w - eta direction. Shapes: (n).
void move_along(Stream& stream,
                const UpdateNumbers& numbers,
                const Tensor& direction,
                const UpdateTensors& tensors);

/// Where Adam's step at rate 1 leads from 0, without weight decay: (n). `m` and `v` take in `g`; where
/// `m_is_new` is set m has done so, and stays.
Tensor adam_direction(Stream& stream,
                      const UpdateNumbers& numbers,
                      const Tensor& g,
                      const Tensor& m,
                      const Tensor& v,
                      bool m_is_new = false);

}  // namespace troupe
