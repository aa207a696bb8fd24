// Optimizer steps: one pass over memory reads w, g and the moments, and writes the new weights, the
// moments and every prediction that is due. Kernels and formulas: functors/update.hpp. Convention (PyTorch's):
// v <- gamma v + g, w <- w - eta v.
#pragma once

#include "kernels/functors/update.hpp"
#include "kernels/stream.hpp"

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace troupe {

std::string_view to_string(UpdateKernel kernel);

/// Tensors of the size of w that the kernel keeps: 0, 1 (m: the velocity v, lion's m, adagrad's sum of squares)
/// or 2 (m and v: Adam's moments, rmsprop's buffer and mean square). Muon's momentum is not among
/// them: nesterov_direction() has it.
int moments(UpdateKernel kernel);

/// A point that the pass also writes: out = w_new - factor * d, where d is the kernel's own direction
/// (v for the momentum kernels, g for sgd, m_hat / (sqrt(v_hat) + epsilon) for the Adam family,
/// g / (sqrt(v) + epsilon) for adagrad, the momentum of that for rmsprop, the sign for lion, s g for muon), or the
/// smoothed displacement.
struct Prediction {
  float factor = 0;           // rate times reach; negative reaches into the past
  bool displacement = false;  // along UpdateArguments::displacement instead
  Tensor out;                 // (n)
};

struct UpdateArguments {
  UpdateKernel kernel = UpdateKernel::sgd;
  UpdateScalars scalars;
  Tensor w;      // (n) read
  Tensor g;      // (n) read
  Tensor w_new;  // (n) written; may be w, or g
  Tensor m;      // (n) read and written; empty where moments(kernel) < 1
  Tensor v;      // (n) read and written; empty where moments(kernel) < 2
  /// PipeMare's smoothed displacement (n), delta <- d delta + (1 - d)(w_new - w); empty where
  /// nobody wants it.
  Tensor displacement;
  float displacement_decay = 0;
  std::vector<Prediction> predictions;
};

/// Shapes: all (n) float32 on the stream's device. Bandwidth-bound: 20 B an element with momentum,
/// 28 B with Adam, 4 B more for each prediction.
void update(Stream& stream, const UpdateArguments& arguments);

/// The first half of a muon step on a matrix, before orthogonalize(): m <- gamma m + s g, then
/// out = s g + gamma m, with gamma and s = gradient_scale of `scalars`. Shapes: all (n) float32; out
/// may be g.
void nesterov_direction(Stream& stream,
                        const UpdateScalars& scalars,
                        const Tensor& g,
                        const Tensor& m,
                        const Tensor& out);

/// out = x / max(||x||, 1e-7), the norm over all elements, summed in double. Shapes: x and out the
/// same; out may be x.
void normalize(Stream& stream, const Tensor& x, const Tensor& out);

/// out[i] = the sum over part i of x squared, in double, in an order that depends on the part
/// alone. Shapes: x (n), out float64 (parts). A part is {offset, size} in elements of x.
struct Part {
  std::int64_t offset = 0;
  std::int64_t size = 0;
};

void sum_of_squares(Stream& stream,
                    const Tensor& x,
                    std::span<const Part> parts,
                    const Tensor& out);

/// out[0] = the sum of (a - b)^2 in double. Shapes: a, b (n), out float64 (1).
void squared_distance(Stream& stream, const Tensor& a, const Tensor& b, const Tensor& out);

// The backends: same signatures, arguments already checked.
TROUPE_BACKENDS(update);
TROUPE_BACKENDS(nesterov_direction);
TROUPE_BACKENDS(normalize);
TROUPE_BACKENDS(sum_of_squares);
TROUPE_BACKENDS(squared_distance);

}  // namespace troupe
