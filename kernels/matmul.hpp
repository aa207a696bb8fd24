// Matrix products with the epilogues that dense layers want.
#pragma once

#include "kernels/activation.hpp"
#include "kernels/stream.hpp"

namespace troupe {

struct MatmulOptions {
  bool transpose_a = false;  // a is stored (K, M)
  bool transpose_b = false;  // b is stored (N, K)
  bool accumulate = false;   // c += instead of c =; then neither bias nor activation
  Tensor bias{};             // (N), added to each row; empty for none
  ActivationKind activation = ActivationKind::none;  // applied last: none, relu, tanh or selu
};

/// c = act(a b + bias), row-major float32. Shapes: a (M, K), b (K, N), c (M, N), all >= 1. a, b and c may be of the
/// stream's operand_type() instead; what of a and b is not is rounded as the stream's precision says.
/// c must not alias a or b. Throws ContractError on shapes, types or devices that disagree.
void matmul(Stream& stream,
            const Tensor& a,
            const Tensor& b,
            const Tensor& c,
            const MatmulOptions& options = {});

/// The right factor of many products, rounded or copied once as the stream's device multiplies by it fastest.
class RepeatedFactor {
 public:
  /// b (K, N), or (N, K) where it is stored transposed.
  RepeatedFactor(Stream& stream, const Tensor& b, bool transpose);

  /// Whether it has been copied. Then a row of a product has the same bits whatever other rows there are.
  bool is_copied() const { return static_cast<bool>(panels_); }

  /// c = or += a b. Shapes and contract as matmul's.
  void multiply(Stream& stream, const Tensor& a, const Tensor& c, bool accumulate) const;

 private:
  Tensor b_;
  bool transpose_;
  Tensor panels_;  // empty: `b_` is read where it lies
};

/// out[c] = (accumulate ? out[c] : 0) + sum over rows of x[r, c]. Shapes: x (R, C), float32 or of the stream's
/// operand_type(), out (C).
void column_sum(Stream& stream, const Tensor& x, const Tensor& out, bool accumulate);

// The backends: same signatures, arguments already checked.
TROUPE_BACKENDS(matmul);
TROUPE_BACKENDS(column_sum);

/// What a copy of b (inner, columns) takes that products by it are fastest with; 0: none.
TROUPE_ON_CPU(std::int64_t panel_floats(std::int64_t inner, std::int64_t columns));
TROUPE_ON_CPU(
    void pack_panels(Stream& stream, const Tensor& b, bool transpose_b, const Tensor& panels));
/// c = or += a b of float32. A row of c has the same bits whatever other rows there are.
TROUPE_ON_CPU(void multiply_by_panels(
    Stream& stream, const Tensor& a, const Tensor& panels, const Tensor& c, bool accumulate));

}  // namespace troupe
