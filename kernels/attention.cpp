#include "kernels/attention.hpp"

#include "kernels/dispatch.hpp"
#include "kernels/wording.hpp"

namespace troupe {

namespace {

constexpr std::int64_t kGpuHeadSizeMax = 128;  // what a tile of cuda/attention.cu holds

/// float32 or the stream's operand_type(), of that shape.
void check_values(std::string_view op,
                  std::string_view name,
                  const Tensor& x,
                  const Stream& stream,
                  const Shape& shape) {
  check_operand(op, name, x, stream);
  check_tensor(op, name, x, stream, shape, x.type());
}

void check_attention(std::string_view op,
                     const Stream& stream,
                     const AttentionForm& form,
                     const Tensor& qkv,
                     const Tensor& y,
                     const Tensor& log_sum) {
  check_operand(op, "qkv", qkv, stream);
  const std::int64_t keys = form.key_heads();
  TROUPE_CHECK(form.heads >= 1 && keys >= 1 && form.heads % keys == 0,
               fill_in("[{}] {} heads of keys do not divide {}", op, keys, form.heads));
  const Shape& shape = qkv.shape();
  const std::int64_t all = form.heads + 2 * keys;
  TROUPE_CHECK(shape.dimensions() == 3 && shape.elements() > 0 && shape[2] % all == 0,
               fill_in("[{}] qkv is {}, not (B, T, {} D) with all >= 1", op, shape, all));
  const std::int64_t size = shape[2] / all;  // D
  TROUPE_CHECK(stream.device().kind == DeviceKind::cpu || size <= kGpuHeadSizeMax,
               fill_in("[{}] a head of {} columns: the GPU's kernel takes at most {}",
                       op,
                       size,
                       kGpuHeadSizeMax));
  check_values(op, "y", y, stream, Shape{shape[0], shape[1], form.heads * size});
  check_tensor(op, "log_sum", log_sum, stream, Shape{shape[0], form.heads, shape[1]});
}

}  // namespace

void attention_forward(Stream& stream,
                       const AttentionForm& form,
                       const Tensor& qkv,
                       const Tensor& y,
                       const Tensor& log_sum) {
  check_attention("attention_forward", stream, form, qkv, y, log_sum);
  begin(stream, {&qkv, &y, &log_sum});
  TROUPE_DISPATCH(attention_forward, stream, form, qkv, y, log_sum);
}

void attention_backward(Stream& stream, const AttentionGradient& a) {
  check_attention("attention_backward", stream, a.form, a.qkv, a.y, a.log_sum);
  check_values("attention_backward", "dy", a.dy, stream, a.y.shape());
  check_values("attention_backward", "dqkv", a.dqkv, stream, a.qkv.shape());
  const auto at = [](const Tensor& x) -> const void* {
    return x.type() == DType::bfloat16 ? static_cast<const void*>(x.data<BFloat16>())
                                       : x.data<float>();
  };
  TROUPE_CHECK(at(a.dqkv) != at(a.qkv), "[attention_backward] dqkv is qkv itself");
  begin(stream, {&a.qkv, &a.y, &a.log_sum, &a.dy, &a.dqkv});
  TROUPE_DISPATCH(attention_backward, stream, a);
}

}  // namespace troupe
