#include "kernels/loss.hpp"

#include "kernels/dispatch.hpp"
#include "kernels/wording.hpp"

namespace troupe {

namespace {

void check_loss(std::string_view op,
                const Tensor& y,
                std::string_view name,
                const Stream& stream,
                const Tensor& result) {
  TROUPE_CHECK(y.shape().dimensions() == 2 && y.elements() > 0,
               fill_in("[{}] {} is {}, not (R, C) with both >= 1", op, name, y.shape()));
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
               fill_in("[softmax_cross_entropy] smoothing is {}, not in [0, 1)", smoothing));
  begin(stream, {&logits, &labels, &dlogits, &result});
  TROUPE_DISPATCH(softmax_cross_entropy, stream, logits, labels, dlogits, result, smoothing);
}

void softmax_statistics(Stream& stream, const Tensor& logits, const Tensor& statistics) {
  check_tensor("softmax_statistics", "logits", logits, stream);
  TROUPE_CHECK(
      logits.shape().dimensions() == 2 && logits.elements() > 0,
      fill_in("[softmax_statistics] logits is {}, not (R, n) with both >= 1", logits.shape()));
  check_tensor("softmax_statistics", "statistics", statistics, stream, Shape{logits.shape()[0], 2});
  begin(stream, {&logits, &statistics});
  TROUPE_DISPATCH(softmax_statistics, stream, logits, statistics);
}

void parted_cross_entropy(Stream& stream, const PartedCrossEntropy& of) {
  const char* const op = "parted_cross_entropy";
  check_tensor(op, "logits", of.logits, stream);
  check_loss(op, of.logits, "logits", stream, of.result);
  const Shape& shape = of.logits.shape();
  check_tensor(op, "statistics", of.statistics, stream);
  const Shape& statistics = of.statistics.shape();
  TROUPE_CHECK(statistics.dimensions() == 2 && statistics[0] == shape[0] && of.part >= 0 &&
                   2 * of.part + 1 < statistics[1],
               fill_in("[parted_cross_entropy] statistics is {}, not (R, 2 parts) with part {}",
                       statistics,
                       of.part));
  check_tensor(op, "labels", of.labels, stream, Shape{shape[0]}, DType::int32);
  if (of.dlogits) {
    check_tensor(op, "dlogits", of.dlogits, stream, shape);
  }
  TROUPE_CHECK(
      of.first >= 0 && of.first + shape[1] <= of.classes && of.smoothing >= 0 && of.smoothing < 1,
      fill_in("[parted_cross_entropy] classes [{}, {}) of {}, smoothing {}",
              of.first,
              of.first + shape[1],
              of.classes,
              of.smoothing));
  begin(stream, {&of.logits, &of.statistics, &of.labels, &of.dlogits, &of.result});
  TROUPE_DISPATCH(parted_cross_entropy, stream, of);
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
