#include "kernels/normalization.hpp"

#include "kernels/dispatch.hpp"
#include "kernels/wording.hpp"

namespace troupe {

namespace {

void check_activation(std::string_view op, ActivationKind kind) {
  TROUPE_CHECK(kind == ActivationKind::none || kind == ActivationKind::relu,
               fill_in("[{}] activation {}; expected none or relu", op, to_string(kind)));
}

void check_matrix(std::string_view op, const Tensor& x, const Stream& stream) {
  check_operand(op, "x", x, stream);
  TROUPE_CHECK(x.shape().dimensions() == 2 && x.shape()[1] > 0,
               fill_in("[{}] x is {}, not (R, C) with C >= 1", op, x.shape()));
}

void check_has_rows(std::string_view op, const Tensor& x) {
  TROUPE_CHECK(x.elements() > 0, "[", op, "] no statistics of no rows: x is ", x.shape());
}

void check_groups(std::string_view op, std::int64_t groups, const Tensor& x, const Stream& stream) {
  check_operand(op, "x", x, stream);
  TROUPE_CHECK(x.shape().dimensions() == 3 && x.shape()[1] > 0 && x.shape()[2] > 0,
               fill_in("[{}] x is {}, not (B, S, C) with S, C >= 1", op, x.shape()));
  TROUPE_CHECK(groups >= 1 && x.shape()[2] % groups == 0,
               fill_in("[{}] {} channels do not make {} equal groups", op, x.shape()[2], groups));
}

/// What the three normalizations share. `statistics` is the shape of mean and inverse_deviation.
void check_forward(std::string_view op,
                   const Stream& stream,
                   const NormalizationForward& a,
                   const Shape& statistics,
                   bool centred = true) {
  const Shape channels{a.x.shape().back()};
  check_tensor(op, "gamma", a.gamma, stream, channels);
  if (centred) {
    check_tensor(op, "beta", a.beta, stream, channels);
    check_tensor(op, "mean", a.mean, stream, statistics);
  }
  check_operand(op, "y", a.y, stream);
  check_tensor(op, "y", a.y, stream, a.x.shape(), a.y.type());
  check_tensor(op, "inverse_deviation", a.inverse_deviation, stream, statistics);
}

void check_backward(std::string_view op,
                    const Stream& stream,
                    const NormalizationBackward& a,
                    const Shape& statistics,
                    bool centred = true) {
  const Shape channels{a.x.shape().back()};
  check_tensor(op, "gamma", a.gamma, stream, channels);
  if (centred) {
    check_tensor(op, "mean", a.mean, stream, statistics);
    check_tensor(op, "dbeta", a.dbeta, stream, channels);
  }
  check_tensor(op, "inverse_deviation", a.inverse_deviation, stream, statistics);
  check_operand(op, "dy", a.dy, stream);
  check_tensor(op, "dy", a.dy, stream, a.x.shape(), a.dy.type());
  check_tensor(op, "dx", a.dx, stream, a.x.shape(), a.x.type());
  check_tensor(op, "dgamma", a.dgamma, stream, channels);
}

}  // namespace

void batch_norm_forward(Stream& stream, ActivationKind activation, const NormalizationForward& a) {
  constexpr std::string_view kOp = "batch_norm_forward";
  check_matrix(kOp, a.x, stream);
  check_has_rows(kOp, a.x);
  check_forward(kOp, stream, a, Shape{a.x.shape().back()});
  check_activation(kOp, activation);
  begin(stream, {&a.x, &a.gamma, &a.beta, &a.y, &a.mean, &a.inverse_deviation});
  TROUPE_DISPATCH(batch_norm_forward, stream, activation, a);
}

void batch_norm_infer(Stream& stream, const BatchNormInference& a) {
  constexpr std::string_view kOp = "batch_norm_infer";
  check_matrix(kOp, a.x, stream);
  const Shape channels{a.x.shape().back()};
  check_tensor(kOp, "gamma", a.gamma, stream, channels);
  check_tensor(kOp, "beta", a.beta, stream, channels);
  check_tensor(kOp, "running_mean", a.running_mean, stream, channels);
  check_tensor(kOp, "running_variance", a.running_variance, stream, channels);
  check_operand(kOp, "y", a.y, stream);
  check_tensor(kOp, "y", a.y, stream, a.x.shape(), a.y.type());
  check_activation(kOp, a.activation);
  begin(stream, {&a.x, &a.gamma, &a.beta, &a.running_mean, &a.running_variance, &a.y});
  TROUPE_DISPATCH(batch_norm_infer, stream, a);
}

void batch_norm_running(Stream& stream, const BatchNormRunning& a) {
  constexpr std::string_view kOp = "batch_norm_running";
  check_tensor(kOp, "mean", a.mean, stream);
  check_tensor(kOp, "inverse_deviation", a.inverse_deviation, stream, a.mean.shape());
  check_tensor(kOp, "running_mean", a.running_mean, stream, a.mean.shape());
  check_tensor(kOp, "running_variance", a.running_variance, stream, a.mean.shape());
  check_tensor(kOp, "next_mean", a.next_mean, stream, a.mean.shape());
  check_tensor(kOp, "next_variance", a.next_variance, stream, a.mean.shape());
  TROUPE_CHECK(a.rows >= 1, "[", kOp, "] ", a.rows, " rows");
  begin(stream,
        {&a.mean,
         &a.inverse_deviation,
         &a.running_mean,
         &a.running_variance,
         &a.next_mean,
         &a.next_variance});
  TROUPE_DISPATCH(batch_norm_running, stream, a);
}

void batch_norm_backward(Stream& stream, const Tensor& y, const NormalizationBackward& a) {
  constexpr std::string_view kOp = "batch_norm_backward";
  check_matrix(kOp, a.x, stream);
  check_has_rows(kOp, a.x);
  check_backward(kOp, stream, a, Shape{a.x.shape().back()});
  if (y) {
    check_operand(kOp, "y", y, stream);
    check_tensor(kOp, "y", y, stream, a.x.shape(), y.type());
  }
  begin(stream,
        {&a.x, &a.gamma, &a.mean, &a.inverse_deviation, &y, &a.dy, &a.dx, &a.dgamma, &a.dbeta});
  TROUPE_DISPATCH(batch_norm_backward, stream, y, a);
}

void layer_norm_forward(Stream& stream, const NormalizationForward& a) {
  constexpr std::string_view kOp = "layer_norm_forward";
  check_matrix(kOp, a.x, stream);
  check_forward(kOp, stream, a, Shape{a.x.shape().front()}, a.mean || a.beta);
  begin(stream, {&a.x, &a.gamma, &a.beta, &a.y, &a.mean, &a.inverse_deviation});
  TROUPE_DISPATCH(layer_norm_forward, stream, a);
}

void layer_norm_backward(Stream& stream, const NormalizationBackward& a) {
  constexpr std::string_view kOp = "layer_norm_backward";
  check_matrix(kOp, a.x, stream);
  check_backward(kOp, stream, a, Shape{a.x.shape().front()}, a.mean || a.dbeta);
  begin(stream, {&a.x, &a.gamma, &a.mean, &a.inverse_deviation, &a.dy, &a.dx, &a.dgamma, &a.dbeta});
  TROUPE_DISPATCH(layer_norm_backward, stream, a);
}

void group_norm_forward(Stream& stream, std::int64_t groups, const NormalizationForward& a) {
  constexpr std::string_view kOp = "group_norm_forward";
  check_groups(kOp, groups, a.x, stream);
  check_forward(kOp, stream, a, Shape{a.x.shape()[0], groups});
  begin(stream, {&a.x, &a.gamma, &a.beta, &a.y, &a.mean, &a.inverse_deviation});
  TROUPE_DISPATCH(group_norm_forward, stream, groups, a);
}

void group_norm_backward(Stream& stream, std::int64_t groups, const NormalizationBackward& a) {
  constexpr std::string_view kOp = "group_norm_backward";
  check_groups(kOp, groups, a.x, stream);
  check_backward(kOp, stream, a, Shape{a.x.shape()[0], groups});
  begin(stream, {&a.x, &a.gamma, &a.mean, &a.inverse_deviation, &a.dy, &a.dx, &a.dgamma, &a.dbeta});
  TROUPE_DISPATCH(group_norm_backward, stream, groups, a);
}

}  // namespace troupe
