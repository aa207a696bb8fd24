#include "kernels/orthogonalize.hpp"

#include "kernels/dispatch.hpp"
#include "kernels/matmul.hpp"
#include "kernels/update.hpp"
#include "kernels/wording.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace troupe {

namespace {

constexpr int kSteps = 5;  // odd, so that the last one writes `out`
constexpr float kA = 3.4445f;
constexpr float kB = -4.7750f;
constexpr float kC = 2.0315f;

}  // namespace

void orthogonalize(Stream& stream, const Tensor& x, const Tensor& out) {
  check_tensor("orthogonalize", "x", x, stream);
  TROUPE_CHECK(x.shape().dimensions() == 2 && x.elements() > 0,
               fill_in("[orthogonalize] x is {}, not (M, N) with both >= 1", x.shape()));
  check_tensor("orthogonalize", "out", out, stream, x.shape());
  // A tall X is not transposed: X (X^T X) is (X X^T) X, so that the powers are of the smaller
  // product and stand on the other side.
  const bool tall = x.shape()[0] > x.shape()[1];
  const std::int64_t side = std::min(x.shape()[0], x.shape()[1]);
  const Tensor gram = stream.allocate({side, side});
  const Tensor powers = stream.allocate({side, side});
  Tensor from = stream.allocate(x.shape());
  Tensor to = out;
  normalize(stream, x, from);
  for (int step = 0; step < kSteps; ++step) {
    matmul(stream, from, from, gram, {.transpose_a = tall, .transpose_b = !tall});
    // powers = b G + c G^2. A product has no factor of its own, so that c comes in as the square of
    // its root.
    copy(stream, gram, powers);
    scale(stream, powers, kB);
    scale(stream, gram, std::sqrt(kC));
    matmul(stream, gram, gram, powers, {.accumulate = true});
    // X <- a X + powers X
    copy(stream, from, to);
    scale(stream, to, kA);
    matmul(stream, tall ? from : powers, tall ? powers : from, to, {.accumulate = true});
    std::swap(from, to);
  }
}

}  // namespace troupe
