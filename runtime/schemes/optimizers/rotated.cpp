// soap and basis_rotation: Adam in the eigenbasis of a matrix's gradients. There the second moments of Adam see the
// curvature along its own axes, and a late gradient still points where the weights have to go.
#include "kernels/check.hpp"
#include "kernels/combine.hpp"
#include "kernels/matmul.hpp"
#include "runtime/schemes/optimizers/eigenbasis.hpp"
#include "runtime/schemes/optimizers/steps.hpp"

#include <array>
#include <cmath>

namespace troupe {
namespace {

/// Which of the sides, rows and columns, are rotated.
std::array<bool, 2> rotated_sides(const RotationNumbers& r, const Shape& matrix) {
  const bool rows_shorter = matrix[0] < matrix[1];
  return {(r.bilateral || rows_shorter) && matrix[0] <= r.side_max,
          (r.bilateral || !rows_shorter) && matrix[1] <= r.side_max};
}

Tensor flat(const Tensor& x) {
  return x.view(0, {x.elements()});
}

/// What is kept of one side of n; both (n, n), or empty.
struct Side {
  Tensor basis;    // eigenvectors, one a column
  Tensor squares;  // mean of g g^T, of the columns' side g^T g
};

struct Kept {
  Tensor m;  // (rows, columns), in the weights' own basis
  Tensor v;  // (rows, columns), in the rotated one
  std::array<Side, 2> sides;
};

Kept kept_of(const UpdateNumbers& numbers, const UpdateTensors& t) {
  Kept kept{.m = t.moments[0].view(0, t.matrix), .v = t.moments[1].view(0, t.matrix), .sides = {}};
  const auto rotated = rotated_sides(numbers.rotation, t.matrix);
  std::size_t next = 2;
  for (std::size_t side = 0; side < 2; ++side) {
    if (rotated[side]) {
      const std::int64_t n = t.matrix[static_cast<int>(side)];
      kept.sides[side].basis = t.moments.at(next++).view(0, {n, n});
      if (numbers.rotation.source == BasisSource::second) {
        kept.sides[side].squares = t.moments.at(next++).view(0, {n, n});
      }
    }
  }
  return kept;
}

/// U^T x V, or U x V^T.
Tensor rotated(Stream& stream, const Kept& kept, const Tensor& x, bool back) {
  Tensor from = x;
  if (const Tensor& u = kept.sides[0].basis) {
    const Tensor to = stream.allocate(x.shape());
    matmul(stream, u, from, to, {.transpose_a = !back});
    from = to;
  }
  if (const Tensor& v = kept.sides[1].basis) {
    const Tensor to = stream.allocate(x.shape());
    matmul(stream, from, v, to, {.transpose_b = back});
    from = to;
  }
  return from;
}

/// squares <- beta squares + (1 - beta) g g^T, and g^T g.
void take_squares(Stream& stream, double beta, const Kept& kept, const Tensor& g) {
  const Tensor scaled = stream.allocate(g.shape());
  combine(stream, {{std::sqrt(1 - beta), g}}, scaled);
  for (std::size_t side = 0; side < 2; ++side) {
    if (const Tensor& squares = kept.sides[side].squares) {
      scale(stream, squares, static_cast<float>(beta));
      matmul(stream,
             scaled,
             scaled,
             squares,
             {.transpose_a = side == 1, .transpose_b = side == 0, .accumulate = true});
    }
  }
}

HostMatrix on_host(Stream& stream, Tensor x) {
  x.set_ready(stream.record());
  const std::vector<double> values = to_host(x);
  return {x.shape()[0], x.shape()[1], {values.begin(), values.end()}};
}

void write(Stream& stream, const HostMatrix& x, const Tensor& to) {
  copy(stream, from_host(stream, std::span<const float>(x.values), to.shape()), to);
}

/// The rows of x, or its columns, in another order.
HostMatrix in_order(HostMatrix x, const std::vector<std::int64_t>& order, bool rows) {
  HostMatrix out = x;
  for (std::int64_t i = 0; i < x.rows; ++i) {
    for (std::int64_t j = 0; j < x.columns; ++j) {
      out.at(i, j) = rows ? x.at(order[static_cast<std::size_t>(i)], j)
                          : x.at(i, order[static_cast<std::size_t>(j)]);
    }
  }
  return out;
}

/// Makes the bases, or brings them nearer; v's rows and columns follow. `mean`: of BasisSource::first_gram, the mean
/// gradient that is looked at. On the host: a GPU is waited for, and gets back what has changed.
void refresh(Stream& stream, const Kept& kept, const Tensor& mean, bool anew) {
  const HostMatrix gradient = mean ? on_host(stream, mean) : HostMatrix{};
  for (std::size_t side = 0; side < 2; ++side) {
    const Side& s = kept.sides[side];
    if (!s.basis) {
      continue;
    }
    const HostMatrix squares = mean ? gram(gradient, side == 0) : on_host(stream, s.squares);
    if (anew) {
      write(stream, eigenvectors(squares), s.basis);
      continue;
    }
    const Refreshed better = refreshed(squares, on_host(stream, s.basis));
    write(stream, better.basis, s.basis);
    write(stream, in_order(on_host(stream, kept.v), better.order, side == 0), kept.v);
  }
}

/// The same of BasisSource::first: U <- QR(M V), V <- QR(M^T U), each from the other one as it was, in whose order v
/// then stands. As in the authors' program this is so, too, where the other side is not rotated: its basis is the identity.
void alternate(Stream& stream, const Kept& kept, bool anew) {
  const HostMatrix mean = on_host(stream, kept.m);
  const std::array<HostMatrix, 2> seen{mean, transposed(mean)};
  std::array<HostMatrix, 2> old;
  for (std::size_t side = 0; side < 2 && !anew; ++side) {
    if (kept.sides[side].basis) {
      old[side] = on_host(stream, kept.sides[side].basis);
    }
  }
  for (std::size_t side = 0; side < 2; ++side) {
    const Tensor& basis = kept.sides[side].basis;
    if (!basis) {
      continue;
    }
    if (anew) {
      write(stream, left_singular_vectors(seen[side]), basis);
      continue;
    }
    const Refreshed better = alternated(seen[side], old[1 - side]);
    if (!better.order.empty()) {
      write(stream, better.basis, basis);
      write(stream, in_order(on_host(stream, kept.v), better.order, side == 1), kept.v);
    }
  }
}

/// m <- gamma m + (1 - gamma) g
void take_mean(Stream& stream, const UpdateNumbers& numbers, const Kept& kept, const Tensor& g) {
  combine(stream, {{numbers.momentum, kept.m}, {1 - numbers.momentum, g}}, kept.m);
}

/// The step of Adam in the rotated basis, turned back; with the padding, which is zero.
Tensor direction_of(Stream& stream,
                    const UpdateNumbers& numbers,
                    const Kept& kept,
                    const Tensor& g,
                    const Shape& padded) {
  const Tensor turned = adam_direction(stream,
                                       numbers,
                                       flat(rotated(stream, kept, g, false)),
                                       flat(rotated(stream, kept, kept.m, false)),
                                       flat(kept.v),
                                       true);
  const Tensor direction = stream.allocate(padded);
  fill(stream, direction, 0);
  copy(
      stream, rotated(stream, kept, turned.view(0, g.shape()), true), direction.view(0, g.shape()));
  return direction;
}

Tensor scaled_gradient(Stream& stream, const UpdateNumbers& numbers, const UpdateTensors& t) {
  const Tensor g = stream.allocate(t.matrix);
  combine(stream, {{numbers.gradient_scale, t.g.view(0, t.matrix)}}, g);
  return g;
}

}  // namespace

std::vector<std::int64_t> rotation_sizes(const UpdateNumbers& numbers, const Shape& matrix) {
  std::vector<std::int64_t> sizes;
  const auto sides = rotated_sides(numbers.rotation, matrix);
  for (std::size_t side = 0; side < 2; ++side) {
    if (sides[side]) {
      const std::int64_t n = matrix[static_cast<int>(side)];
      sizes.insert(sizes.end(), numbers.rotation.source == BasisSource::second ? 2 : 1, n * n);
    }
  }
  return sizes;
}

Tensor basis_rotation_step(Stream& stream,
                           const UpdateNumbers& numbers,
                           const OptionValues& /*values*/,
                           const UpdateTensors& t) {
  const Kept kept = kept_of(numbers, t);
  const RotationNumbers& r = numbers.rotation;
  const Tensor g = scaled_gradient(stream, numbers, t);
  if (r.source == BasisSource::second) {
    take_squares(stream, r.beta, kept, g);
  }
  take_mean(stream, numbers, kept, g);
  const bool anew = numbers.update == 1;
  if (anew || numbers.update % r.every == 0) {
    if (r.source == BasisSource::first) {
      alternate(stream, kept, anew);
    } else {
      refresh(stream, kept, r.source == BasisSource::first_gram ? kept.m : Tensor{}, anew);
    }
  }
  const Tensor direction = direction_of(stream, numbers, kept, g, t.g.shape());
  move_along(stream, numbers, direction, t);
  return direction;
}

Tensor soap_step(Stream& stream,
                 const UpdateNumbers& numbers,
                 const OptionValues& /*values*/,
                 const UpdateTensors& t) {
  const Kept kept = kept_of(numbers, t);
  const Tensor g = scaled_gradient(stream, numbers, t);
  const std::int64_t steps = numbers.update - 1;  // that move something
  Tensor direction;
  if (steps == 0) {
    direction = stream.allocate(t.g.shape());
    fill(stream, direction, 0);
    combine(stream, {{1, t.w}}, t.w_new);
  } else {
    UpdateNumbers own = numbers;
    own.update = steps;
    take_mean(stream, own, kept, g);
    direction = direction_of(stream, own, kept, g, t.g.shape());
    move_along(stream, own, direction, t);
  }
  take_squares(stream, numbers.rotation.beta, kept, g);
  if (steps % numbers.rotation.every == 0) {
    refresh(stream, kept, {}, steps == 0);
  }
  return direction;
}

}  // namespace troupe
