#include "kernels/normalization.hpp"

#include "kernels/dispatch.hpp"

namespace troupe {

namespace {

void check_activation(std::string_view op, ActivationKind kind) {
  TROUPE_CHECK(kind == ActivationKind::none || kind == ActivationKind::relu,
               "[",
               op,
               "] activation ",
               to_string(kind),
               "; right is none or relu");
}

void check_matrix(std::string_view op, const Tensor& x, const Stream& stream) {
  check_operand(op, "x", x, stream);
  TROUPE_CHECK(x.shape().dimensions() == 2 && x.shape()[1] > 0,
               "[",
               op,
               "] x is ",
               x.shape(),
               ", not (R, C) with C >= 1");
}

void check_has_rows(std::string_view op, const Tensor& x) {
  TROUPE_CHECK(x.elements() > 0, "[", op, "] no statistics of no rows: x is ", x.shape());
}

void check_groups(std::string_view op, std::int64_t groups, const Tensor& x, const Stream& stream) {
  check_tensor(op, "x", x, stream);
  TROUPE_CHECK(x.shape().dimensions() == 3 && x.shape()[1] > 0 && x.shape()[2] > 0,
               "[",
               op,
               "] x is ",
               x.shape(),
               ", not (B, S, C) with S, C >= 1");
  TROUPE_CHECK(groups >= 1 && x.shape()[2] % groups == 0,
               "[",
               op,
               "] ",
               x.shape()[2],
               " channels do not make ",
               groups,
               " equal groups");
}

/// What the three normalizations share. `statistics` is the shape of mean and inverse_deviation.
void check_forward(std::string_view op,
                   const Stream& stream,
                   const Tensor& x,
                   const Tensor& gamma,
                   const Tensor& beta,
                   const Tensor& y,
                   const Tensor& mean,
                   const Tensor& inverse_deviation,
                   const Shape& statistics) {
  const Shape channels{x.shape().back()};
  check_tensor(op, "gamma", gamma, stream, channels);
  check_tensor(op, "beta", beta, stream, channels);
  check_tensor(op, "y", y, stream, x.shape());
  check_tensor(op, "mean", mean, stream, statistics);
  check_tensor(op, "inverse_deviation", inverse_deviation, stream, statistics);
}

void check_backward(std::string_view op,
                    const Stream& stream,
                    const Tensor& x,
                    const Tensor& gamma,
                    const Tensor& mean,
                    const Tensor& inverse_deviation,
                    const Tensor& dy,
                    const Tensor& dx,
                    const Tensor& dgamma,
                    const Tensor& dbeta,
                    const Shape& statistics) {
  const Shape channels{x.shape().back()};
  check_tensor(op, "gamma", gamma, stream, channels);
  check_tensor(op, "mean", mean, stream, statistics);
  check_tensor(op, "inverse_deviation", inverse_deviation, stream, statistics);
  check_tensor(op, "dy", dy, stream, x.shape());
  check_tensor(op, "dx", dx, stream, x.shape(), x.type());
  check_tensor(op, "dgamma", dgamma, stream, channels);
  check_tensor(op, "dbeta", dbeta, stream, channels);
}

}  // namespace

void batch_norm_forward(Stream& stream,
                        const Tensor& x,
                        const Tensor& gamma,
                        const Tensor& beta,
                        float epsilon,
                        ActivationKind activation,
                        const Tensor& y,
                        const Tensor& mean,
                        const Tensor& inverse_deviation) {
  constexpr std::string_view kOp = "batch_norm_forward";
  check_matrix(kOp, x, stream);
  check_has_rows(kOp, x);
  check_forward(kOp, stream, x, gamma, beta, y, mean, inverse_deviation, Shape{x.shape().back()});
  check_activation(kOp, activation);
  begin(stream, {&x, &gamma, &beta, &y, &mean, &inverse_deviation});
  TROUPE_DISPATCH(
      batch_norm_forward, stream, x, gamma, beta, epsilon, activation, y, mean, inverse_deviation);
}

void batch_norm_infer(Stream& stream,
                      const Tensor& x,
                      const Tensor& gamma,
                      const Tensor& beta,
                      const Tensor& running_mean,
                      const Tensor& running_variance,
                      float epsilon,
                      ActivationKind activation,
                      const Tensor& y) {
  constexpr std::string_view kOp = "batch_norm_infer";
  check_matrix(kOp, x, stream);
  const Shape channels{x.shape().back()};
  check_tensor(kOp, "gamma", gamma, stream, channels);
  check_tensor(kOp, "beta", beta, stream, channels);
  check_tensor(kOp, "running_mean", running_mean, stream, channels);
  check_tensor(kOp, "running_variance", running_variance, stream, channels);
  check_tensor(kOp, "y", y, stream, x.shape());
  check_activation(kOp, activation);
  begin(stream, {&x, &gamma, &beta, &running_mean, &running_variance, &y});
  TROUPE_DISPATCH(batch_norm_infer,
                  stream,
                  x,
                  gamma,
                  beta,
                  running_mean,
                  running_variance,
                  epsilon,
                  activation,
                  y);
}

void batch_norm_running(Stream& stream,
                        const Tensor& mean,
                        const Tensor& inverse_deviation,
                        std::int64_t rows,
                        float epsilon,
                        float momentum,
                        const Tensor& running_mean,
                        const Tensor& running_variance) {
  constexpr std::string_view kOp = "batch_norm_running";
  check_tensor(kOp, "mean", mean, stream);
  check_tensor(kOp, "inverse_deviation", inverse_deviation, stream, mean.shape());
  check_tensor(kOp, "running_mean", running_mean, stream, mean.shape());
  check_tensor(kOp, "running_variance", running_variance, stream, mean.shape());
  TROUPE_CHECK(rows >= 1, "[", kOp, "] ", rows, " rows");
  begin(stream, {&mean, &inverse_deviation, &running_mean, &running_variance});
  TROUPE_DISPATCH(batch_norm_running,
                  stream,
                  mean,
                  inverse_deviation,
                  rows,
                  epsilon,
                  momentum,
                  running_mean,
                  running_variance);
}

void batch_norm_backward(Stream& stream,
                         const Tensor& x,
                         const Tensor& gamma,
                         const Tensor& mean,
                         const Tensor& inverse_deviation,
                         const Tensor& y,
                         const Tensor& dy,
                         const Tensor& dx,
                         const Tensor& dgamma,
                         const Tensor& dbeta) {
  constexpr std::string_view kOp = "batch_norm_backward";
  check_matrix(kOp, x, stream);
  check_has_rows(kOp, x);
  check_backward(kOp,
                 stream,
                 x,
                 gamma,
                 mean,
                 inverse_deviation,
                 dy,
                 dx,
                 dgamma,
                 dbeta,
                 Shape{x.shape().back()});
  if (y) {
    check_tensor(kOp, "y", y, stream, x.shape());
  }
  begin(stream, {&x, &gamma, &mean, &inverse_deviation, &y, &dy, &dx, &dgamma, &dbeta});
  TROUPE_DISPATCH(
      batch_norm_backward, stream, x, gamma, mean, inverse_deviation, y, dy, dx, dgamma, dbeta);
}

void layer_norm_forward(Stream& stream,
                        const Tensor& x,
                        const Tensor& gamma,
                        const Tensor& beta,
                        float epsilon,
                        const Tensor& y,
                        const Tensor& mean,
                        const Tensor& inverse_deviation) {
  constexpr std::string_view kOp = "layer_norm_forward";
  check_tensor(kOp, "x", x, stream);
  check_matrix(kOp, x, stream);
  check_forward(kOp, stream, x, gamma, beta, y, mean, inverse_deviation, Shape{x.shape().front()});
  begin(stream, {&x, &gamma, &beta, &y, &mean, &inverse_deviation});
  TROUPE_DISPATCH(layer_norm_forward, stream, x, gamma, beta, epsilon, y, mean, inverse_deviation);
}

void layer_norm_backward(Stream& stream,
                         const Tensor& x,
                         const Tensor& gamma,
                         const Tensor& mean,
                         const Tensor& inverse_deviation,
                         const Tensor& dy,
                         const Tensor& dx,
                         const Tensor& dgamma,
                         const Tensor& dbeta) {
  constexpr std::string_view kOp = "layer_norm_backward";
  check_tensor(kOp, "x", x, stream);
  check_matrix(kOp, x, stream);
  check_backward(kOp,
                 stream,
                 x,
                 gamma,
                 mean,
                 inverse_deviation,
                 dy,
                 dx,
                 dgamma,
                 dbeta,
                 Shape{x.shape().front()});
  begin(stream, {&x, &gamma, &mean, &inverse_deviation, &dy, &dx, &dgamma, &dbeta});
  TROUPE_DISPATCH(
      layer_norm_backward, stream, x, gamma, mean, inverse_deviation, dy, dx, dgamma, dbeta);
}

void group_norm_forward(Stream& stream,
                        std::int64_t groups,
                        const Tensor& x,
                        const Tensor& gamma,
                        const Tensor& beta,
                        float epsilon,
                        const Tensor& y,
                        const Tensor& mean,
                        const Tensor& inverse_deviation) {
  constexpr std::string_view kOp = "group_norm_forward";
  check_groups(kOp, groups, x, stream);
  check_forward(
      kOp, stream, x, gamma, beta, y, mean, inverse_deviation, Shape{x.shape()[0], groups});
  begin(stream, {&x, &gamma, &beta, &y, &mean, &inverse_deviation});
  TROUPE_DISPATCH(
      group_norm_forward, stream, groups, x, gamma, beta, epsilon, y, mean, inverse_deviation);
}

void group_norm_backward(Stream& stream,
                         std::int64_t groups,
                         const Tensor& x,
                         const Tensor& gamma,
                         const Tensor& mean,
                         const Tensor& inverse_deviation,
                         const Tensor& dy,
                         const Tensor& dx,
                         const Tensor& dgamma,
                         const Tensor& dbeta) {
  constexpr std::string_view kOp = "group_norm_backward";
  check_groups(kOp, groups, x, stream);
  check_backward(kOp,
                 stream,
                 x,
                 gamma,
                 mean,
                 inverse_deviation,
                 dy,
                 dx,
                 dgamma,
                 dbeta,
                 Shape{x.shape()[0], groups});
  begin(stream, {&x, &gamma, &mean, &inverse_deviation, &dy, &dx, &dgamma, &dbeta});
  TROUPE_DISPATCH(group_norm_backward,
                  stream,
                  groups,
                  x,
                  gamma,
                  mean,
                  inverse_deviation,
                  dy,
                  dx,
                  dgamma,
                  dbeta);
}

}  // namespace troupe
