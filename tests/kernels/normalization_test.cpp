#include "kernels/normalization.hpp"

#include "tests/support/catch.hpp"
#include "tests/support/reference.hpp"

#include <algorithm>
#include <cmath>

namespace normalization_test {

using namespace troupe;
using namespace troupe::test;

namespace {

// Keeps 1 / deviation below 10 where two rows happen to be nearly equal, and with it what the
// rounding of a mean costs.
constexpr float kEpsilon = 0.01f;

// y is made by five operations on numbers below about 30 (x^ below 4, times gamma); dx likewise.
constexpr Tolerance kElement{8e-6, 2e-6};
// Sums over up to 1009 rows of products whose factors carry a rounding each.
constexpr Tolerance kSum{5e-5, 2e-6};

/// What each normalization gets and gives.
struct Run {
  Tensor x;
  Tensor gamma;
  Tensor beta;
  Tensor y;
  Tensor mean;
  Tensor inverse_deviation;
  Tensor dy;
  Tensor dx;
  Tensor dgamma;
  Tensor dbeta;

  Run(Stream& stream, Shape shape, Shape statistics)
      : x(normal_tensor(stream, 1, shape)),
        gamma(normal_tensor(stream, 2, {shape.back()})),
        beta(normal_tensor(stream, 3, {shape.back()})),
        y(stream.allocate(shape)),
        mean(stream.allocate(statistics)),
        inverse_deviation(stream.allocate(statistics)),
        dy(normal_tensor(stream, 4, shape)),
        dx(stream.allocate(shape)),
        // Not what comes out: they are overwritten.
        dgamma(normal_tensor(stream, 5, {shape.back()})),
        dbeta(normal_tensor(stream, 6, {shape.back()})) {}

  void check_forward(const Normalization& n) const {
    const Normalized expected = normalize(n, to_host(x), to_host(gamma), to_host(beta));
    check_close("y", to_host(y), expected.y, kElement);
    check_statistics(n, expected);
  }

  void check_statistics(const Normalization& n, const Normalized& expected) const {
    check_close("mean", to_host(mean), expected.mean, {1e-7, 1e-7});
    Values inverse;
    for (const double variance : expected.variance) {
      inverse.push_back(1 / std::sqrt(variance + n.epsilon));
    }
    check_close("inverse_deviation", to_host(inverse_deviation), inverse, {0, 2e-6});
  }

  void check_backward(const Normalization& n, const Values& gradient) const {
    const NormalizationGradients expected =
        normalization_backward(n, to_host(x), to_host(gamma), gradient);
    check_close("dx", to_host(dx), expected.dx, {3e-5, 2e-6});
    check_close("dgamma", to_host(dgamma), expected.dgamma, kSum);
    check_close("dbeta", to_host(dbeta), expected.dbeta, kSum);
  }
};

constexpr double epsilon() {
  return double(kEpsilon);
}

}  // namespace

TEST_CASE("the reference's gradient is the slope of the reference", "[kernels]") {
  const Shape shape{2, 3, 6};
  const auto to_values = [](const std::vector<float>& from) {
    return Values(from.begin(), from.end());
  };
  const Values x = to_values(normal_floats(1, 36));
  const Values gamma = to_values(normal_floats(2, 6));
  const Values beta = to_values(normal_floats(3, 6));
  const Values dy = to_values(normal_floats(4, 36));
  for (const Normalization& n : {Normalization::batch(6, 0.1),
                                 Normalization::layer(6, 6, 0.1),
                                 Normalization::group(shape, 2, 0.1)}) {
    const NormalizationGradients gradients = normalization_backward(n, x, gamma, dy);
    const auto value = [&](const Values& at, const Values& gain) {
      const Values y = normalize(n, at, gain, beta).y;
      double sum = 0;
      for (std::size_t i = 0; i < y.size(); ++i) {
        sum += y[i] * dy[i];
      }
      return sum;
    };
    const auto slope = [&](Values a, std::size_t i, auto f) {
      constexpr double kStep = 1e-5;
      a[i] += kStep;
      const double above = f(a);
      a[i] -= 2 * kStep;
      return (above - f(a)) / (2 * kStep);
    };
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double expected = slope(x, i, [&](const Values& a) { return value(a, gamma); });
      CHECK(gradients.dx[i] == Approx(expected).margin(1e-8));
    }
    for (std::size_t c = 0; c < gamma.size(); ++c) {
      const double expected = slope(gamma, c, [&](const Values& a) { return value(x, a); });
      CHECK(gradients.dgamma[c] == Approx(expected).margin(1e-8));
    }
  }
}

// -- batch ------------------------------------------------------------------------------

TEST_CASE("batch normalization agrees with the naive one", "[kernels]") {
  Stream stream{Device{}};
  const auto columns = GENERATE(1, 3, 6, 8, 15, 16, 33, 64, 100, 255, 256, 257, 320);
  const auto rows = GENERATE(1, 2, 5, 31, 256, 1009);
  INFO(rows << " x " << columns);
  const Run run(stream, {rows, columns}, {columns});
  const Normalization n = Normalization::batch(columns, epsilon());
  batch_norm_forward(stream,
                     ActivationKind::none,
                     {.x = run.x,
                      .gamma = run.gamma,
                      .beta = run.beta,
                      .epsilon = kEpsilon,
                      .y = run.y,
                      .mean = run.mean,
                      .inverse_deviation = run.inverse_deviation});
  run.check_forward(n);
  batch_norm_backward(stream,
                      Tensor(),
                      {.x = run.x,
                       .gamma = run.gamma,
                       .mean = run.mean,
                       .inverse_deviation = run.inverse_deviation,
                       .dy = run.dy,
                       .dx = run.dx,
                       .dgamma = run.dgamma,
                       .dbeta = run.dbeta});
  run.check_backward(n, to_host(run.dy));
}

TEST_CASE("batch normalization takes relu in, forward and backward", "[kernels]") {
  Stream stream{Device{}};
  const auto columns = GENERATE(3, 16, 257);
  const auto rows = GENERATE(2, 77);
  const Run run(stream, {rows, columns}, {columns});
  const Normalization n = Normalization::batch(columns, epsilon());
  batch_norm_forward(stream,
                     ActivationKind::relu,
                     {.x = run.x,
                      .gamma = run.gamma,
                      .beta = run.beta,
                      .epsilon = kEpsilon,
                      .y = run.y,
                      .mean = run.mean,
                      .inverse_deviation = run.inverse_deviation});
  Normalized expected = normalize(n, to_host(run.x), to_host(run.gamma), to_host(run.beta));
  Values gradient = to_host(run.dy);
  const Values y = to_host(run.y);
  for (std::size_t i = 0; i < y.size(); ++i) {
    expected.y[i] = std::max(expected.y[i], 0.0);
    gradient[i] = y[i] > 0 ? gradient[i] : 0;
  }
  check_close("y", y, expected.y, kElement);
  run.check_statistics(n, expected);
  batch_norm_backward(stream,
                      run.y,
                      {.x = run.x,
                       .gamma = run.gamma,
                       .mean = run.mean,
                       .inverse_deviation = run.inverse_deviation,
                       .dy = run.dy,
                       .dx = run.dx,
                       .dgamma = run.dgamma,
                       .dbeta = run.dbeta});
  run.check_backward(n, gradient);
}

// The mean is a thousand deviations from zero: sums of squares in float would leave nothing of the
// variance.
TEST_CASE("a mean far from zero costs no precision of the variance", "[kernels]") {
  Stream stream{Device{}};
  const std::int64_t rows = 4099;
  const std::int64_t columns = 24;
  std::vector<float> values = normal_floats(1, rows * columns);
  for (float& value : values) {
    value = 1000.0f + value;
  }
  Run run(stream, {rows, columns}, {columns});
  run.x = from_host(stream, std::span<const float>(values), {rows, columns});
  const Normalization batch = Normalization::batch(columns, epsilon());
  batch_norm_forward(stream,
                     ActivationKind::none,
                     {.x = run.x,
                      .gamma = run.gamma,
                      .beta = run.beta,
                      .epsilon = kEpsilon,
                      .y = run.y,
                      .mean = run.mean,
                      .inverse_deviation = run.inverse_deviation});
  run.check_statistics(batch,
                       normalize(batch, to_host(run.x), to_host(run.gamma), to_host(run.beta)));
  Run turned(stream, {columns, rows}, {columns});
  turned.x = run.x.reshape({columns, rows});
  const Normalization layer = Normalization::layer(columns, rows, epsilon());
  layer_norm_forward(stream,
                     {.x = turned.x,
                      .gamma = turned.gamma,
                      .beta = turned.beta,
                      .epsilon = kEpsilon,
                      .y = turned.y,
                      .mean = turned.mean,
                      .inverse_deviation = turned.inverse_deviation});
  turned.check_statistics(
      layer, normalize(layer, to_host(turned.x), to_host(turned.gamma), to_host(turned.beta)));
}

TEST_CASE("batch_norm_infer uses the running statistics", "[kernels]") {
  Stream stream{Device{}};
  const auto columns = GENERATE(1, 6, 64, 300);
  const auto rows = GENERATE(0, 1, 50);
  const auto activation = GENERATE(ActivationKind::none, ActivationKind::relu);
  const Run run(stream, {rows, columns}, {columns});
  std::vector<float> variance = normal_floats(7, columns);
  for (float& value : variance) {
    value = value * value;
  }
  const Tensor running_mean = normal_tensor(stream, 8, {columns});
  const Tensor running_variance =
      from_host(stream, std::span<const float>(variance), Shape{columns});
  batch_norm_infer(stream,
                   {.x = run.x,
                    .gamma = run.gamma,
                    .beta = run.beta,
                    .running_mean = running_mean,
                    .running_variance = running_variance,
                    .epsilon = kEpsilon,
                    .activation = activation,
                    .y = run.y});
  const Values x = to_host(run.x);
  const Values mean = to_host(running_mean);
  const Values gamma = to_host(run.gamma);
  const Values beta = to_host(run.beta);
  Values expected;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::size_t c = i % mean.size();
    const double normal = (x[i] - mean[c]) / std::sqrt(double(variance[c]) + epsilon());
    expected.push_back(test::activation(activation, normal * gamma[c] + beta[c]));
  }
  check_close("y", to_host(run.y), expected, {2e-5, 2e-6});
}

TEST_CASE("batch_norm_running takes in the mean and the unbiased variance", "[kernels]") {
  Stream stream{Device{}};
  const std::int64_t columns = 37;
  const auto rows = GENERATE(1, 2, 100);
  Run run(stream, {rows, columns}, {columns});
  batch_norm_forward(stream,
                     ActivationKind::none,
                     {.x = run.x,
                      .gamma = run.gamma,
                      .beta = run.beta,
                      .epsilon = kEpsilon,
                      .y = run.y,
                      .mean = run.mean,
                      .inverse_deviation = run.inverse_deviation});
  const Tensor mean = normal_tensor(stream, 7, {columns});
  const Tensor variance = stream.allocate({columns});
  fill(stream, variance, 1.5);
  const Values mean_before = to_host(mean);
  batch_norm_running(stream,
                     {.mean = run.mean,
                      .inverse_deviation = run.inverse_deviation,
                      .rows = rows,
                      .epsilon = kEpsilon,
                      .momentum = 0.25f,
                      .running_mean = mean,
                      .running_variance = variance,
                      .next_mean = mean,
                      .next_variance = variance});
  const Normalized batch = normalize(Normalization::batch(columns, epsilon()),
                                     to_host(run.x),
                                     to_host(run.gamma),
                                     to_host(run.beta));
  Values expected_mean;
  Values expected_variance;
  for (std::size_t c = 0; c < batch.mean.size(); ++c) {
    const double unbiased = rows > 1 ? batch.variance[c] * rows / (rows - 1) : 0.0;
    expected_mean.push_back(0.75 * mean_before[c] + 0.25 * batch.mean[c]);
    expected_variance.push_back(0.75 * 1.5 + 0.25 * unbiased);
  }
  check_close("mean", to_host(mean), expected_mean, {2e-7, 2e-7});
  // The inverse deviation, rounded, gives back variance + epsilon.
  check_close("variance", to_host(variance), expected_variance, {0, 1e-6});
}

// -- layer ------------------------------------------------------------------------------

TEST_CASE("layer normalization agrees with the naive one", "[kernels]") {
  Stream stream{Device{}};
  // The last two end just behind what is summed in float.
  const auto columns =
      GENERATE(1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 64, 65, 127, 384, 1024, 2051, 4099);
  const auto rows = GENERATE(0, 1, 15, 65, 130);
  INFO(rows << " x " << columns);
  const Run run(stream, {rows, columns}, {rows});
  const Normalization n = Normalization::layer(rows, columns, epsilon());
  layer_norm_forward(stream,
                     {.x = run.x,
                      .gamma = run.gamma,
                      .beta = run.beta,
                      .epsilon = kEpsilon,
                      .y = run.y,
                      .mean = run.mean,
                      .inverse_deviation = run.inverse_deviation});
  run.check_forward(n);
  layer_norm_backward(stream,
                      {.x = run.x,
                       .gamma = run.gamma,
                       .mean = run.mean,
                       .inverse_deviation = run.inverse_deviation,
                       .dy = run.dy,
                       .dx = run.dx,
                       .dgamma = run.dgamma,
                       .dbeta = run.dbeta});
  run.check_backward(n, to_host(run.dy));
}

TEST_CASE("RMS normalization agrees with the naive one", "[kernels]") {
  Stream stream{Device{}};
  const auto columns = GENERATE(1, 7, 16, 17, 33, 127, 384, 2051);
  const auto rows = GENERATE(0, 1, 65, 130);
  INFO(rows << " x " << columns);
  const Run run(stream, {rows, columns}, {rows});
  Normalization n = Normalization::layer(rows, columns, epsilon());
  n.centred = false;
  layer_norm_forward(stream,
                     {.x = run.x,
                      .gamma = run.gamma,
                      .beta = {},
                      .epsilon = kEpsilon,
                      .y = run.y,
                      .mean = {},
                      .inverse_deviation = run.inverse_deviation});
  fill(stream, run.beta, 0);
  fill(stream, run.mean, 0);
  run.check_forward(n);
  layer_norm_backward(stream,
                      {.x = run.x,
                       .gamma = run.gamma,
                       .mean = {},
                       .inverse_deviation = run.inverse_deviation,
                       .dy = run.dy,
                       .dx = run.dx,
                       .dgamma = run.dgamma,
                       .dbeta = {}});
  const NormalizationGradients expected =
      normalization_backward(n, to_host(run.x), to_host(run.gamma), to_host(run.dy));
  check_close("dx", to_host(run.dx), expected.dx, {3e-5, 2e-6});
  check_close("dgamma", to_host(run.dgamma), expected.dgamma, kSum);
}

// -- group ------------------------------------------------------------------------------

TEST_CASE("group normalization agrees with the naive one", "[kernels]") {
  Stream stream{Device{}};

  struct Size {
    std::int64_t batch, pixels, channels, groups;
  };

  for (const auto& [batch, pixels, channels, groups] : {Size{1, 1, 1, 1},
                                                        {0, 4, 8, 2},
                                                        {2, 9, 6, 3},
                                                        {3, 49, 33, 11},
                                                        {2, 16, 64, 1},
                                                        {2, 5, 64, 64},
                                                        {3, 1, 320, 32},
                                                        {2, 260, 24, 8},
                                                        {2, 4, 512, 32}}) {
    INFO(batch << " x " << pixels << " x " << channels << " in " << groups);
    const Run run(stream, {batch, pixels, channels}, {batch, groups});
    const Normalization n = Normalization::group(run.x.shape(), groups, epsilon());
    group_norm_forward(stream,
                       groups,
                       {.x = run.x,
                        .gamma = run.gamma,
                        .beta = run.beta,
                        .epsilon = kEpsilon,
                        .y = run.y,
                        .mean = run.mean,
                        .inverse_deviation = run.inverse_deviation});
    run.check_forward(n);
    group_norm_backward(stream,
                        groups,
                        {.x = run.x,
                         .gamma = run.gamma,
                         .mean = run.mean,
                         .inverse_deviation = run.inverse_deviation,
                         .dy = run.dy,
                         .dx = run.dx,
                         .dgamma = run.dgamma,
                         .dbeta = run.dbeta});
    run.check_backward(n, to_host(run.dy));
  }
}

// -- all --------------------------------------------------------------------------------

TEST_CASE("a gradient may be written over the one it is made of", "[kernels]") {
  Stream stream{Device{}};
  const std::int64_t rows = 70;
  const std::int64_t columns = 37;
  const Run batch(stream, {rows, columns}, {columns});
  batch_norm_forward(stream,
                     ActivationKind::relu,
                     {.x = batch.x,
                      .gamma = batch.gamma,
                      .beta = batch.beta,
                      .epsilon = kEpsilon,
                      .y = batch.y,
                      .mean = batch.mean,
                      .inverse_deviation = batch.inverse_deviation});
  const auto batch_backward = [&](const Tensor& dx) {
    batch_norm_backward(stream,
                        batch.y,
                        {.x = batch.x,
                         .gamma = batch.gamma,
                         .mean = batch.mean,
                         .inverse_deviation = batch.inverse_deviation,
                         .dy = batch.dy,
                         .dx = dx,
                         .dgamma = batch.dgamma,
                         .dbeta = batch.dbeta});
    return to_host(dx);
  };
  const Values apart = batch_backward(batch.dx);
  CHECK(batch_backward(batch.dy) == apart);

  const Run layer(stream, {rows, columns}, {rows});
  layer_norm_forward(stream,
                     {.x = layer.x,
                      .gamma = layer.gamma,
                      .beta = layer.beta,
                      .epsilon = kEpsilon,
                      .y = layer.y,
                      .mean = layer.mean,
                      .inverse_deviation = layer.inverse_deviation});
  const auto layer_backward = [&](const Tensor& dx) {
    layer_norm_backward(stream,
                        {.x = layer.x,
                         .gamma = layer.gamma,
                         .mean = layer.mean,
                         .inverse_deviation = layer.inverse_deviation,
                         .dy = layer.dy,
                         .dx = dx,
                         .dgamma = layer.dgamma,
                         .dbeta = layer.dbeta});
    return to_host(dx);
  };
  const Values layer_apart = layer_backward(layer.dx);
  CHECK(layer_backward(layer.dy) == layer_apart);
}

TEST_CASE("normalization does not depend on where the tensor stands", "[kernels]") {
  Stream stream{Device{}};
  const std::int64_t rows = 53;
  const std::int64_t columns = 27;
  const Run run(stream, {rows, columns}, {columns});
  const Tensor statistics = stream.allocate({2 * rows});
  std::vector<Values> batch;
  std::vector<Values> layer;
  for (std::int64_t offset = 0; offset < 9; ++offset) {
    const Tensor x = stream.allocate({rows * columns + 9}).view(offset, {rows, columns});
    copy(stream, run.x, x);
    batch_norm_forward(stream,
                       ActivationKind::none,
                       {.x = x,
                        .gamma = run.gamma,
                        .beta = run.beta,
                        .epsilon = kEpsilon,
                        .y = run.y,
                        .mean = run.mean,
                        .inverse_deviation = run.inverse_deviation});
    batch.push_back(to_host(run.y));
    layer_norm_forward(stream,
                       {.x = x,
                        .gamma = run.gamma,
                        .beta = run.beta,
                        .epsilon = kEpsilon,
                        .y = run.y,
                        .mean = statistics.view(0, {rows}),
                        .inverse_deviation = statistics.view(rows, {rows})});
    layer.push_back(to_host(run.y));
  }
  CHECK(batch == std::vector<Values>(batch.size(), batch[0]));
  CHECK(layer == std::vector<Values>(layer.size(), layer[0]));
}

TEST_CASE("a NaN spreads over what shares its mean, and no further", "[kernels]") {
  Stream stream{Device{}};
  const std::int64_t rows = 40;
  const std::int64_t columns = 19;
  std::vector<float> values = normal_floats(1, rows * columns);
  values[static_cast<std::size_t>(33 * columns + 5)] = NAN;
  const Tensor x = from_host(stream, std::span<const float>(values), {rows, columns});
  const Run run(stream, {rows, columns}, {columns});
  batch_norm_forward(stream,
                     ActivationKind::relu,
                     {.x = x,
                      .gamma = run.gamma,
                      .beta = run.beta,
                      .epsilon = kEpsilon,
                      .y = run.y,
                      .mean = run.mean,
                      .inverse_deviation = run.inverse_deviation});
  const Values by_column = to_host(run.y);
  const Tensor statistics = stream.allocate({2 * rows});
  layer_norm_forward(stream,
                     {.x = x,
                      .gamma = run.gamma,
                      .beta = run.beta,
                      .epsilon = kEpsilon,
                      .y = run.y,
                      .mean = statistics.view(0, {rows}),
                      .inverse_deviation = statistics.view(rows, {rows})});
  const Values by_row = to_host(run.y);
  for (std::int64_t i = 0; i < rows * columns; ++i) {
    CHECK(std::isnan(by_column[static_cast<std::size_t>(i)]) == (i % columns == 5));
    CHECK(std::isnan(by_row[static_cast<std::size_t>(i)]) == (i / columns == 33));
  }
}

TEST_CASE("normalization says what disagrees", "[kernels]") {
  Stream stream{Device{}};
  const Tensor x = stream.allocate({4, 6});
  const Tensor c = stream.allocate({6});
  const Tensor r = stream.allocate({4});
  CHECK_THROWS_WITH(
      batch_norm_forward(
          stream,
          ActivationKind::none,
          {.x = x, .gamma = c, .beta = r, .epsilon = 0, .y = x, .mean = c, .inverse_deviation = c}),
      says("[batch_norm_forward] beta is (4), not (6)"));
  CHECK_THROWS_WITH(
      batch_norm_forward(
          stream,
          ActivationKind::tanh,
          {.x = x, .gamma = c, .beta = c, .epsilon = 0, .y = x, .mean = c, .inverse_deviation = c}),
      says("[batch_norm_forward] activation tanh; expected none or relu"));
  const Tensor none = stream.allocate({0, 6});
  CHECK_THROWS_WITH(batch_norm_forward(stream,
                                       ActivationKind::none,
                                       {.x = none,
                                        .gamma = c,
                                        .beta = c,
                                        .epsilon = 0,
                                        .y = none,
                                        .mean = c,
                                        .inverse_deviation = c}),
                    says("no statistics of no rows: x is (0, 6)"));
  CHECK_THROWS_WITH(
      layer_norm_forward(
          stream,
          {.x = x, .gamma = c, .beta = c, .epsilon = 0, .y = x, .mean = c, .inverse_deviation = r}),
      says("[layer_norm_forward] mean is (6), not (4)"));
  const Tensor images = stream.allocate({2, 2, 6});
  CHECK_THROWS_WITH(group_norm_forward(stream,
                                       4,
                                       {.x = images,
                                        .gamma = c,
                                        .beta = c,
                                        .epsilon = 0,
                                        .y = images,
                                        .mean = c,
                                        .inverse_deviation = c}),
                    says("[group_norm_forward] 6 channels do not make 4 equal groups"));
}

}  // namespace normalization_test
