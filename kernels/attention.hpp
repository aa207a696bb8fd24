// Causal self-attention (Vaswani et al. 2017, section 3.2) of many heads at once, without the
// projections before and behind it. The scores of a sequence are never all in memory: the backward
// computes them again from `log_sum` (Dao et al. 2022, arXiv:2205.14135).
//
// In head h, with D = C / heads columns: y_i = sum_{j <= i} p_ij v_j, where p_i = softmax over
// j <= i of (q_i . k_j) / sqrt(D). In bf16 on a GPU
// the products are of bfloat16 (attention_bf16.cu), and qkv, y, dy and dqkv may each be.
#pragma once

#include "kernels/stream.hpp"

#include <cstdint>

namespace troupe {

/// Shapes: qkv (B, T, 3C): q | k | v, each C wide, head h at the columns from h C / heads of each;
/// y (B, T, C); log_sum (B, heads, T): the logarithm of the sum of the exponentials of each row of
/// scores, for the backward. All extents >= 1, heads a divisor of C; on a GPU C / heads <= 128.
/// qkv and y are each float32 or of the stream's operand_type(), log_sum is float32; y must not alias
/// qkv. Throws ContractError on shapes, types or devices that disagree.
void causal_attention_forward(
    Stream& stream, std::int64_t heads, const Tensor& qkv, const Tensor& y, const Tensor& log_sum);

/// Of one call: qkv, y and log_sum as the forward had and left them.
struct AttentionGradient {
  std::int64_t heads;
  const Tensor& qkv;
  const Tensor& y;
  const Tensor& log_sum;
  const Tensor& dy;  // (B, T, C), the gradient by y; float32 or of the stream's operand_type()
  const Tensor&
      dqkv;  // (B, T, 3C), the same types, overwritten: the gradient by qkv; aliases none of the others
};

/// Throws as the forward does.
void causal_attention_backward(Stream& stream, const AttentionGradient& arguments);

// The backends: same signatures, arguments already checked.
namespace cpu {
decltype(troupe::causal_attention_forward) causal_attention_forward;
decltype(troupe::causal_attention_backward) causal_attention_backward;
}  // namespace cpu

namespace cuda {
decltype(troupe::causal_attention_forward) causal_attention_forward;
decltype(troupe::causal_attention_backward) causal_attention_backward;
}  // namespace cuda

}  // namespace troupe
