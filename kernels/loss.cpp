#include "kernels/loss.hpp"

#include "kernels/dispatch.hpp"

namespace troupe {

namespace {

void check_loss(std::string_view op,
                const Tensor& y,
                std::string_view name,
                const Stream& stream,
                const Tensor& result) {
  TROUPE_CHECK(y.shape().dimensions() == 2 && y.elements() > 0,
               "[",
               op,
               "] ",
               name,
               " is ",
               y.shape(),
               ", not (R, C) with both >= 1");
  check_tensor(op, "result", result, stream, Shape{2}, DType::float64);
}

}  // namespace

void softmax_cross_entropy(Stream& stream,
                           const Tensor& logits,
                           const Tensor& labels,
                           const Tensor& dlogits,
                           const Tensor& result,
                           float smoothing) {
  check_operand("softmax_cross_entropy", "logits", logits, stream);
  check_loss("softmax_cross_entropy", logits, "logits", stream, result);
  check_tensor(
      "softmax_cross_entropy", "labels", labels, stream, Shape{logits.shape()[0]}, DType::int32);
  if (dlogits) {
    check_tensor(
        "softmax_cross_entropy", "dlogits", dlogits, stream, logits.shape(), logits.type());
  }
  TROUPE_CHECK(smoothing >= 0 && smoothing < 1,
               "[softmax_cross_entropy] smoothing is ",
               smoothing,
               ", not in [0, 1)");
  begin(stream, {&logits, &labels, &dlogits, &result});
  TROUPE_DISPATCH(softmax_cross_entropy, stream, logits, labels, dlogits, result, smoothing);
}

void squared_error(
    Stream& stream, const Tensor& y, const Tensor& target, const Tensor& dy, const Tensor& result) {
  check_tensor("squared_error", "y", y, stream);
  check_loss("squared_error", y, "y", stream, result);
  check_tensor("squared_error", "target", target, stream, y.shape());
  if (dy) {
    check_tensor("squared_error", "dy", dy, stream, y.shape());
  }
  begin(stream, {&y, &target, &dy, &result});
  TROUPE_DISPATCH(squared_error, stream, y, target, dy, result);
}

}  // namespace troupe
