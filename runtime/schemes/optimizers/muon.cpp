#include "kernels/combine.hpp"
#include "kernels/orthogonalize.hpp"
#include "runtime/schemes/optimizers/steps.hpp"

#include <algorithm>
#include <cmath>

namespace troupe {
namespace {

/// An orthogonal (rows, columns) matrix has elements of root mean square 1 / sqrt(max(rows,
/// columns)), AdamW's steps one of 0.2 to 0.4 by experience.
double matched_scale(const Shape& matrix) {
  return 0.2 * std::sqrt(static_cast<double>(std::max(matrix[0], matrix[1])));
}

}  // namespace

// The padding behind the matrix, which is zero in g and m, stays zero.
Tensor muon_step(Stream& stream,
                 const UpdateNumbers& numbers,
                 const OptionValues& /*values*/,
                 const UpdateTensors& t) {
  UpdateScalars scalars = basic_scalars(numbers);
  const Tensor direction = stream.allocate(t.g.shape());
  nesterov_direction(stream, scalars, t.g, t.moments[0], direction);
  const Tensor matrix = direction.view(0, t.matrix);
  orthogonalize(stream, matrix, matrix);
  combine(stream, {{matched_scale(t.matrix), direction}}, direction);
  move_along(stream, numbers, direction, t);
  return direction;
}

}  // namespace troupe
