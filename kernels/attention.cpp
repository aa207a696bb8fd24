#include "kernels/attention.hpp"

#include "kernels/dispatch.hpp"

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
                     std::int64_t heads,
                     const Tensor& qkv,
                     const Tensor& y,
                     const Tensor& log_sum) {
  check_operand(op, "qkv", qkv, stream);
  const Shape& shape = qkv.shape();
  TROUPE_CHECK(shape.dimensions() == 3 && shape.elements() > 0 && shape[2] % 3 == 0,
               "[",
               op,
               "] qkv is ",
               shape,
               ", not (B, T, 3C) with all >= 1");
  const std::int64_t width = shape[2] / 3;  // C
  TROUPE_CHECK(
      heads >= 1 && width % heads == 0, "[", op, "] ", heads, " heads do not divide C = ", width);
  TROUPE_CHECK(stream.device().kind == DeviceKind::cpu || width / heads <= kGpuHeadSizeMax,
               "[",
               op,
               "] a head of ",
               width / heads,
               " columns: the GPU's kernel takes at most ",
               kGpuHeadSizeMax);
  check_values(op, "y", y, stream, Shape{shape[0], shape[1], width});
  check_tensor(op, "log_sum", log_sum, stream, Shape{shape[0], heads, shape[1]});
}

}  // namespace

void causal_attention_forward(
    Stream& stream, std::int64_t heads, const Tensor& qkv, const Tensor& y, const Tensor& log_sum) {
  check_attention("causal_attention_forward", stream, heads, qkv, y, log_sum);
  begin(stream, {&qkv, &y, &log_sum});
  TROUPE_DISPATCH(causal_attention_forward, stream, heads, qkv, y, log_sum);
}

void causal_attention_backward(Stream& stream, const AttentionGradient& a) {
  check_attention("causal_attention_backward", stream, a.heads, a.qkv, a.y, a.log_sum);
  check_values("causal_attention_backward", "dy", a.dy, stream, a.y.shape());
  check_values("causal_attention_backward", "dqkv", a.dqkv, stream, a.qkv.shape());
  const auto at = [](const Tensor& x) -> const void* {
    return x.type() == DType::bfloat16 ? static_cast<const void*>(x.data<BFloat16>())
                                       : x.data<float>();
  };
  TROUPE_CHECK(at(a.dqkv) != at(a.qkv), "[causal_attention_backward] dqkv is qkv itself");
  begin(stream, {&a.qkv, &a.y, &a.log_sum, &a.dy, &a.dqkv});
  TROUPE_DISPATCH(causal_attention_backward, stream, a);
}

}  // namespace troupe
