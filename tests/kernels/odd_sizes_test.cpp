// Sizes that fill no vector, in every combination: library code that handles the common sizes well has overrun its memory
// at these. Each result is compared with the naive one, and so is the memory around it with what it held before. With the
// address sanitizer oneDNN's scratch memory is guarded too (kernels/cpu/scratch_guard.hpp).
#include "kernels/convolution.hpp"
#include "kernels/matmul.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/reference.hpp"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <vector>

namespace odd_sizes_test {

using namespace troupe;
using namespace troupe::test;

namespace {

/// A tensor for a result, with memory around it that nobody may write to.
class Fenced {
 public:
  Fenced(Stream& stream, const Shape& shape)
      : elements_(shape.elements()), all_(stream.allocate({elements_ + 2 * kFence})) {
    fill(stream, all_, kMark);
    inside_ = all_.view(kFence, shape);
  }

  const Tensor& tensor() const { return inside_; }

  void check(const std::string& what) const {
    const auto values = all_.span<float>();
    const auto is_mark = [](float value) {
      return value == kMark;
    };
    const bool untouched = std::all_of(values.begin(), values.begin() + kFence, is_mark) &&
                           std::all_of(values.end() - kFence, values.end(), is_mark);
    INFO("memory around " << what);
    CHECK(untouched);
  }

 private:
  static constexpr std::int64_t kFence = 64;  // floats
  static constexpr float kMark = 1234.5f;
  std::int64_t elements_;
  Tensor all_;
  Tensor inside_;
};

// As in convolution_test and matmul_test: the error of a float sum of so many products of normal numbers.
Tolerance tolerance(std::int64_t terms) {
  return {4e-6 * std::sqrt(double(terms)), 1e-6};
}

std::vector<ConvolutionGeometry> geometries() {
  std::vector<ConvolutionGeometry> all;
  for (const std::int64_t kernel : {1, 3, 5}) {
    for (const std::int64_t stride : {1, 2, 3}) {
      for (std::int64_t padding = 0; padding < kernel; padding += 2) {
        all.push_back({kernel, stride, padding});
      }
    }
  }
  return all;
}

void check_convolutions(Stream& stream, const Images& s) {
  const std::int64_t taps = s.geometry.kernel * s.geometry.kernel;
  const Tensor x = normal_tensor(stream, 1, s.x());
  const Tensor w = normal_tensor(stream, 2, s.w());
  const Tensor bias = normal_tensor(stream, 3, {s.channels_out});
  const Tensor dy = normal_tensor(stream, 4, s.y());
  const Fenced y(stream, s.y());
  const Fenced dx(stream, s.x());
  const Fenced dw(stream, s.w());
  convolution_forward(stream,
                      {.geometry = s.geometry,
                       .x = x,
                       .w = w,
                       .bias = bias,
                       .activation = ActivationKind::none,
                       .y = y.tensor()});
  troupe::convolution_input_gradient(stream, s.geometry, dy, w, dx.tensor());
  troupe::convolution_weight_gradient(stream, s.geometry, x, dy, dw.tensor(), false);
  check_close("y",
              to_host(y.tensor()),
              convolution(s, to_host(x), to_host(w), to_host(bias)),
              tolerance(4 * s.channels * taps));
  check_close("dx",
              to_host(dx.tensor()),
              test::convolution_input_gradient(s, to_host(dy), to_host(w)),
              tolerance(s.channels_out * taps));
  check_close("dw",
              to_host(dw.tensor()),
              test::convolution_weight_gradient(s, to_host(x), to_host(dy)),
              tolerance(s.batch * s.y()[1] * s.y()[2]));
  y.check("y");
  dx.check("dx");
  dw.check("dw");
}

}  // namespace

TEST_CASE("convolutions of odd sizes agree with the naive sums, and write nowhere else",
          "[kernels]") {
  Stream stream{Device{}};
  for (const ConvolutionGeometry& geometry : geometries()) {
    for (const auto& [height, width] : {std::pair{12, 12}, std::pair{7, 6}}) {
      for (const std::int64_t channels : {1, 2, 3, 4, 5, 7, 9, 17}) {
        for (const std::int64_t channels_out : {1, 2, 7, 17}) {
          const Images s{geometry, 2, height, width, channels, channels_out};
          INFO("x " << s.x() << " w " << s.w() << " stride " << geometry.stride << " padding "
                    << geometry.padding);
          check_convolutions(stream, s);
        }
      }
    }
  }
}

TEST_CASE("products of odd sizes agree with the naive ones, and write nowhere else", "[kernels]") {
  Stream stream{Device{}};
  const auto transpose_a = GENERATE(false, true);
  const auto transpose_b = GENERATE(false, true);
  const auto with_bias = GENERATE(false, true);
  constexpr std::int64_t kSizes[] = {1, 2, 3, 4, 5, 7, 9, 17};
  for (const std::int64_t rows : kSizes) {
    for (const std::int64_t columns : kSizes) {
      for (const std::int64_t inner : kSizes) {
        INFO(rows << " x " << columns << " x " << inner << " transposed " << transpose_a
                  << transpose_b << " bias " << with_bias);
        const Tensor a =
            normal_tensor(stream, 1, transpose_a ? Shape{inner, rows} : Shape{rows, inner});
        const Tensor b =
            normal_tensor(stream, 2, transpose_b ? Shape{columns, inner} : Shape{inner, columns});
        const Tensor bias = with_bias ? normal_tensor(stream, 3, {columns}) : Tensor{};
        const Fenced c(stream, {rows, columns});
        Values expected;
        for (std::int64_t i = 0; i < rows * columns; ++i) {
          expected.push_back(with_bias ? double(bias.span<float>()[std::size_t(i % columns)]) : 0);
        }
        test::matmul(
            to_host(a), to_host(b), expected, rows, columns, inner, transpose_a, transpose_b);
        troupe::matmul(stream,
                       a,
                       b,
                       c.tensor(),
                       {.transpose_a = transpose_a, .transpose_b = transpose_b, .bias = bias});
        check_close("c", to_host(c.tensor()), expected, tolerance(inner + 1));
        c.check("c");
      }
    }
  }
}

}  // namespace odd_sizes_test
