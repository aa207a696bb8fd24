#include "kernels/attention.hpp"

#include "kernels/dispatch.hpp"

namespace troupe {

namespace {

constexpr std::int64_t kGpuHeadSizeMax = 128;  // what a tile of cuda/attention.cu holds

void check_attention(std::string_view op,
                     const Stream& stream,
                     std::int64_t heads,
                     const Tensor& qkv,
                     const Tensor& y,
                     const Tensor& log_sum) {
  check_tensor(op, "qkv", qkv, stream);
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
  check_tensor(op, "y", y, stream, Shape{shape[0], shape[1], width});
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
  check_tensor("causal_attention_backward", "dy", a.dy, stream, a.y.shape());
  check_tensor("causal_attention_backward", "dqkv", a.dqkv, stream, a.qkv.shape());
  TROUPE_CHECK(a.dqkv.data<float>() != a.qkv.data<float>(),
               "[causal_attention_backward] dqkv is qkv itself");
  begin(stream, {&a.qkv, &a.y, &a.log_sum, &a.dy, &a.dqkv});
  TROUPE_DISPATCH(causal_attention_backward, stream, a);
}

}  // namespace troupe
