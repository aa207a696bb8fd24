// Self-attention (Vaswani et al. 2017, section 3.2) of many heads at once, without the
// projections before and behind it. The scores of a sequence are never all in memory: the backward
// computes them again from `log_sum` (Dao et al. 2022, arXiv:2205.14135).
//
// In head h, with D columns: y_i = sum_j p_ij v_j, where p_i = softmax over j of (q_i . k_j) / sqrt(D), j <= i
// where it is causal. Heads may share keys and values: head h reads those of head h kv_heads / heads (grouped-query
// attention, Ainslie et al. 2023, arXiv:2305.13245; of one, Shazeer 2019, arXiv:1911.02150). In bf16 on a GPU
// the products are of bfloat16 (attention_bf16.cu), and qkv, y, dy and dqkv may each be.
#pragma once

#include "kernels/stream.hpp"

#include <cstdint>

namespace troupe {

struct AttentionForm {
  std::int64_t heads = 1;
  std::int64_t kv_heads = 0;  // heads of keys and values, a divisor of heads; 0: as many
  bool causal = true;         // position i sees none behind it

  std::int64_t key_heads() const { return kv_heads > 0 ? kv_heads : heads; }
};

/// Shapes, with C = heads D and K = kv_heads D: qkv (B, T, C + 2K): q | k | v, head h at the columns from h D of
/// each; y (B, T, C); log_sum (B, heads, T): the logarithm of the sum of the exponentials of each row of
/// scores, for the backward. All extents >= 1; on a GPU D <= 128.
/// qkv and y are each float32 or of the stream's operand_type(), log_sum is float32; y must not alias
/// qkv. Throws ContractError on shapes, types or devices that disagree.
void attention_forward(Stream& stream,
                       const AttentionForm& form,
                       const Tensor& qkv,
                       const Tensor& y,
                       const Tensor& log_sum);

/// Of one call: form, qkv, y and log_sum as the forward had and left them.
struct AttentionGradient {
  AttentionForm form;
  const Tensor& qkv;
  const Tensor& y;
  const Tensor& log_sum;
  const Tensor& dy;  // (B, T, C), the gradient by y; float32 or of the stream's operand_type()
  const Tensor&
      dqkv;  // as qkv, the same types, overwritten: the gradient by qkv; aliases none of the others
};

/// Throws as the forward does.
void attention_backward(Stream& stream, const AttentionGradient& arguments);

// The backends: same signatures, arguments already checked.
TROUPE_BACKENDS(attention_forward);
TROUPE_BACKENDS(attention_backward);

}  // namespace troupe
