#include "kernels/matmul.hpp"

#include "kernels/cpu/backend.hpp"
#include "kernels/cpu/packed_matmul.hpp"

namespace troupe::cpu::TROUPE_ISA {

void matmul(Stream& stream,
            const Tensor& a,
            const Tensor& b,
            const Tensor& c,
            const MatmulOptions& options) {
  const MatmulPlan plan{.rows = c.shape()[0],
                        .columns = c.shape()[1],
                        .inner = a.shape()[options.transpose_a ? 0 : 1],
                        .transpose_a = options.transpose_a,
                        .transpose_b = options.transpose_b,
                        .accumulate = options.accumulate,
                        .bias = static_cast<bool>(options.bias),
                        .bfloat16 = stream.precision() == Precision::bf16};
  const float* bias = options.bias ? options.bias.data<float>() : nullptr;
  if (!plan.bfloat16 && packed_matmul_wins(plan)) {
    packed_matmul(stream.cpu(), plan, a.data<float>(), b.data<float>(), bias, c.data<float>());
  } else {
    stream.cpu().onednn().matmul(plan, a.data<float>(), b.data<float>(), bias, c.data<float>());
  }
  // A pass of its own, over what is still in the cache: the mathematics stays in the functors.
  if (options.activation != ActivationKind::none) {
    TROUPE_ISA::activation_forward(stream, options.activation, c, c);
  }
}

}  // namespace troupe::cpu::TROUPE_ISA
