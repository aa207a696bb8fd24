#include "kernels/convolution.hpp"

#include "tests/support/catch.hpp"
#include "tests/support/reference.hpp"

#include <cmath>

namespace convolution_test {

using namespace troupe;
using namespace troupe::test;

namespace {

Images images(std::int64_t kernel,
              std::int64_t stride,
              std::int64_t padding,
              std::int64_t batch,
              std::int64_t height,
              std::int64_t width,
              std::int64_t channels,
              std::int64_t channels_out) {
  return {{kernel, stride, padding}, batch, height, width, channels, channels_out};
}

std::vector<Images> sizes() {
  return {
      images(1, 1, 0, 1, 1, 1, 1, 1),     images(5, 1, 2, 3, 28, 28, 1, 6),
      images(5, 1, 0, 3, 14, 14, 6, 16),  images(3, 1, 1, 2, 7, 9, 1, 5),
      images(3, 1, 1, 2, 9, 7, 3, 8),     images(3, 2, 1, 2, 9, 8, 5, 7),
      images(5, 1, 2, 1, 13, 37, 1, 3),   images(5, 1, 2, 1, 5, 61, 1, 9),
      images(3, 1, 0, 1, 31, 33, 1, 1),   images(2, 2, 0, 1, 7, 7, 4, 4),
      images(3, 1, 1, 1, 8, 8, 16, 32),   images(3, 1, 1, 2, 6, 6, 17, 13),
      images(5, 1, 4, 1, 6, 6, 6, 16),    images(7, 1, 3, 1, 9, 10, 3, 11),
      images(5, 1, 2, 2, 11, 11, 8, 20),  images(4, 1, 1, 1, 9, 11, 7, 3),
      images(3, 3, 0, 2, 11, 11, 1, 6),   images(5, 1, 2, 2, 4, 4, 1, 6),
      images(5, 1, 0, 1, 5, 5, 12, 40),   images(3, 1, 1, 1, 17, 70, 2, 2),
      images(1, 1, 0, 2, 5, 5, 16, 3),    images(11, 1, 5, 1, 12, 12, 1, 4),
      images(5, 1, 2, 1, 28, 28, 1, 20),  images(3, 1, 2, 1, 5, 5, 1, 16),
      images(3, 2, 0, 1, 12, 12, 20, 24), images(3, 1, 1, 1, 1, 1, 6, 16),
      images(3, 1, 1, 7, 5, 4, 16, 32),   images(3, 1, 1, 6, 13, 15, 32, 16),
      images(3, 2, 1, 7, 9, 8, 16, 48),   images(3, 2, 1, 6, 26, 27, 16, 32),
      images(1, 2, 0, 13, 6, 5, 32, 32),  images(3, 1, 1, 13, 2, 2, 160, 96),
      images(5, 1, 2, 6, 14, 13, 16, 16), images(3, 1, 1, 7, 3, 33, 32, 32),
      images(2, 3, 0, 14, 7, 8, 32, 16),  images(3, 1, 2, 6, 1, 1, 32, 32),
      images(3, 1, 1, 26, 2, 2, 272, 80), images(3, 2, 1, 61, 6, 5, 16, 272),
      images(3, 1, 1, 29, 4, 4, 64, 96),  images(3, 2, 1, 14, 9, 8, 128, 64),
      images(3, 1, 1, 14, 2, 2, 96, 160), images(3, 1, 1, 15, 12, 13, 64, 64),
  };
}

std::string describe(const Images& s) {
  return concat(
      "x ", s.x(), " w ", s.w(), " stride ", s.geometry.stride, " padding ", s.geometry.padding);
}

// As for matmul: the error of a float sum of K products of normal numbers.
Tolerance tolerance(std::int64_t terms) {
  return {4e-6 * std::sqrt(double(terms)), 1e-6};
}

}  // namespace

TEST_CASE("convolution_forward agrees with the naive sum", "[kernels]") {
  Stream stream{Device{}};
  for (const Images& s : sizes()) {
    INFO(describe(s));
    const Tensor x = normal_tensor(stream, 1, s.x());
    const Tensor w = normal_tensor(stream, 2, s.w());
    const Tensor bias = normal_tensor(stream, 3, {s.channels_out});
    const Tensor y = stream.allocate(s.y());
    const Values expected = convolution(s, to_host(x), to_host(w), to_host(bias));
    for (const ActivationKind kind :
         {ActivationKind::none, ActivationKind::relu, ActivationKind::tanh, ActivationKind::selu}) {
      Values activated;
      for (const double value : expected) {
        activated.push_back(activation(kind, value));
      }
      convolution_forward(
          stream,
          {.geometry = s.geometry, .x = x, .w = w, .bias = bias, .activation = kind, .y = y});
      check_close("y",
                  to_host(y),
                  activated,
                  tolerance(4 * s.channels * s.geometry.kernel * s.geometry.kernel));
    }
  }
}

TEST_CASE("convolution_input_gradient agrees with the naive sum", "[kernels]") {
  Stream stream{Device{}};
  for (const Images& s : sizes()) {
    INFO(describe(s));
    const Tensor dy = normal_tensor(stream, 1, s.y());
    const Tensor w = normal_tensor(stream, 2, s.w());
    const Tensor dx = normal_tensor(stream, 3, s.x());
    troupe::convolution_input_gradient(stream, s.geometry, dy, w, dx);
    check_close("dx",
                to_host(dx),
                test::convolution_input_gradient(s, to_host(dy), to_host(w)),
                tolerance(s.channels_out * s.geometry.kernel * s.geometry.kernel));
  }
}

TEST_CASE("convolution_weight_gradient agrees with the naive sum, and accumulates", "[kernels]") {
  Stream stream{Device{}};
  const auto accumulate = GENERATE(false, true);
  for (const Images& s : sizes()) {
    INFO(describe(s));
    const Tensor x = normal_tensor(stream, 1, s.x());
    const Tensor dy = normal_tensor(stream, 2, s.y());
    const Tensor dw = normal_tensor(stream, 3, s.w());
    Values expected = test::convolution_weight_gradient(s, to_host(x), to_host(dy));
    const Values before = to_host(dw);
    for (std::size_t i = 0; accumulate && i < expected.size(); ++i) {
      expected[i] += before[i];
    }
    troupe::convolution_weight_gradient(stream, s.geometry, x, dy, dw, accumulate);
    check_close("dw", to_host(dw), expected, tolerance(s.batch * s.y()[1] * s.y()[2]));
  }
}

TEST_CASE("convolutions give the same bits every time", "[kernels]") {
  Stream stream{Device{}};
  for (const Images& s : sizes()) {
    INFO(describe(s));
    const Tensor x = normal_tensor(stream, 1, s.x());
    const Tensor w = normal_tensor(stream, 2, s.w());
    const Tensor bias = normal_tensor(stream, 3, {s.channels_out});
    const Tensor dy = normal_tensor(stream, 4, s.y());
    const auto run = [&](Stream& on) {
      const Tensor y = on.allocate(s.y());
      const Tensor dx = on.allocate(s.x());
      const Tensor dw = on.allocate(s.w());
      convolution_forward(on,
                          {.geometry = s.geometry,
                           .x = x,
                           .w = w,
                           .bias = bias,
                           .activation = ActivationKind::relu,
                           .y = y});
      troupe::convolution_input_gradient(on, s.geometry, dy, w, dx);
      troupe::convolution_weight_gradient(on, s.geometry, x, dy, dw, false);
      return std::vector<Values>{to_host(y), to_host(dx), to_host(dw)};
    };
    Stream other{Device{}};
    const auto first = run(stream);
    CHECK(run(stream) == first);
    CHECK(run(other) == first);
  }
}

// What one sample's output is must not depend on its neighbours in the batch.
TEST_CASE("a sample's convolution does not depend on the batch around it", "[kernels]") {
  Stream stream{Device{}};
  for (Images s : {images(5, 1, 2, 5, 28, 28, 1, 6), images(5, 1, 0, 5, 14, 14, 6, 16)}) {
    const Tensor x = normal_tensor(stream, 1, s.x());
    const Tensor w = normal_tensor(stream, 2, s.w());
    const Tensor bias = normal_tensor(stream, 3, {s.channels_out});
    const Tensor y = stream.allocate(s.y());
    convolution_forward(stream,
                        {.geometry = s.geometry,
                         .x = x,
                         .w = w,
                         .bias = bias,
                         .activation = ActivationKind::relu,
                         .y = y});
    const std::int64_t batch = s.batch;
    s.batch = 1;
    for (std::int64_t b = 0; b < batch; ++b) {
      const Tensor alone = stream.allocate(s.y());
      convolution_forward(stream,
                          {.geometry = s.geometry,
                           .x = x.view(b * s.x().elements(), s.x()),
                           .w = w,
                           .bias = bias,
                           .activation = ActivationKind::relu,
                           .y = alone});
      CHECK(to_host(alone) == to_host(y.view(b * s.y().elements(), s.y())));
    }
  }
}

TEST_CASE("convolution_forward does not hide a NaN", "[kernels]") {
  Stream stream{Device{}};
  const auto kind = GENERATE(ActivationKind::none, ActivationKind::relu);
  for (const Images& s : {images(5, 1, 2, 1, 9, 9, 1, 6), images(3, 1, 1, 1, 8, 8, 16, 32)}) {
    const Tensor x = normal_tensor(stream, 1, s.x());
    const Tensor w = normal_tensor(stream, 2, s.w());
    const Tensor bias = stream.allocate({s.channels_out});
    fill(stream, bias, NAN);
    const Tensor y = stream.allocate(s.y());
    convolution_forward(
        stream, {.geometry = s.geometry, .x = x, .w = w, .bias = bias, .activation = kind, .y = y});
    for (const double value : to_host(y)) {
      CHECK(std::isnan(value));
    }
  }
}

TEST_CASE("convolutions say what disagrees", "[kernels]") {
  Stream stream{Device{}};
  const ConvolutionGeometry geometry{.kernel = 5, .stride = 1, .padding = 2};
  const Tensor x = stream.allocate({2, 8, 8, 3});
  const Tensor w = stream.allocate({4, 5, 5, 3});
  const Tensor bias = stream.allocate({4});
  CHECK_THROWS_WITH(convolution_forward(stream,
                                        {.geometry = geometry,
                                         .x = x,
                                         .w = stream.allocate({4, 3, 3, 3}),
                                         .bias = bias,
                                         .activation = ActivationKind::none,
                                         .y = stream.allocate({2, 8, 8, 4})}),
                    says("[convolution_forward] w is (4, 3, 3, 3), not (4, 5, 5, 3)"));
  CHECK_THROWS_WITH(convolution_forward(stream,
                                        {.geometry = geometry,
                                         .x = x,
                                         .w = w,
                                         .bias = bias,
                                         .activation = ActivationKind::none,
                                         .y = stream.allocate({2, 4, 4, 4})}),
                    says("[convolution_forward] y is (2, 4, 4, 4), not (2, 8, 8, 4)"));
  CHECK_THROWS_AS(convolution_forward(stream,
                                      {.geometry = geometry,
                                       .x = x,
                                       .w = w,
                                       .bias = bias,
                                       .activation = ActivationKind::gelu,
                                       .y = stream.allocate({2, 8, 8, 4})}),
                  ContractError);
  const ConvolutionGeometry wide{.kernel = 11, .stride = 1, .padding = 0};
  CHECK_THROWS_WITH(
      troupe::convolution_input_gradient(
          stream, wide, stream.allocate({2, 1, 1, 4}), stream.allocate({4, 11, 11, 3}), x),
      says("has no window of 11"));
}

}  // namespace convolution_test
