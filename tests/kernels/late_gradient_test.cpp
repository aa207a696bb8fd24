#include "kernels/late_gradient.hpp"

#include "tests/support/catch.hpp"
#include "tests/support/reference.hpp"

#include <cmath>

namespace late_gradient_test {

using namespace troupe;
using namespace troupe::test;

namespace {

constexpr std::int64_t kSizes[] = {0, 1, 31, 33, 1023, 4099};

/// A dozen float operations on numbers of up to a few tens.
constexpr Tolerance kTolerance{1e-5, 2e-6};

struct Fields {
  Tensor g, w, read, out;

  Fields(Stream& stream, std::int64_t n)
      : g(normal_tensor(stream, 1, {n})),
        w(normal_tensor(stream, 2, {n})),
        read(normal_tensor(stream, 3, {n})),
        out(stream.allocate({n})) {}
};

Tensor constant(Stream& stream, std::int64_t n, double value) {
  Tensor x = stream.allocate({n});
  fill(stream, x, value);
  return x;
}

}  // namespace

TEST_CASE("DC-ASGD's corrections agree with their formulas", "[kernels]") {
  Stream stream{Device{}};
  const auto kind =
      GENERATE(Compensation::constant, Compensation::adaptive, Compensation::absolute);
  const CompensationScalars s{.lambda = 0.4f, .decay = 0.9f};
  for (const std::int64_t n : kSizes) {
    const Fields f(stream, n);
    const Tensor kept = kind == Compensation::adaptive ? constant(stream, n, 0.5) : Tensor();
    const Values g = to_host(f.g);
    const Values w = to_host(f.w);
    const Values read = to_host(f.read);
    Values expected(g.size());
    Values square(g.size(), 0.5);
    for (std::size_t i = 0; i < g.size(); ++i) {
      const double moved = w[i] - read[i];
      switch (kind) {
        case Compensation::constant:
          expected[i] = g[i] + 0.4 * g[i] * g[i] * moved;
          break;
        case Compensation::adaptive:
          square[i] = 0.9 * square[i] + 0.1 * g[i] * g[i];
          expected[i] = g[i] + 0.4 / std::sqrt(square[i] + 1e-7) * g[i] * g[i] * moved;
          break;
        case Compensation::absolute:
          expected[i] = g[i] + 0.4 * std::abs(g[i]) * moved;
          break;
      }
    }
    compensate_delay(stream,
                     {.kind = kind,
                      .scalars = s,
                      .g = f.g,
                      .w = f.w,
                      .w_read = f.read,
                      .mean_square = kept,
                      .out = f.out});
    check_close("out", to_host(f.out), expected, kTolerance);
    if (kept) {
      check_close("mean square", to_host(kept), square, kTolerance);
    }
    // Without strength, or without movement, nothing is corrected: not a bit.
    compensate_delay(stream,
                     {.kind = kind,
                      .scalars = {0, 0.9f},
                      .g = f.g,
                      .w = f.w,
                      .w_read = f.read,
                      .mean_square = kept,
                      .out = f.out});
    CHECK(to_host(f.out) == g);
    compensate_delay(stream,
                     {.kind = kind,
                      .scalars = s,
                      .g = f.g,
                      .w = f.w,
                      .w_read = f.w,
                      .mean_square = kept,
                      .out = f.g});
    CHECK(to_host(f.g) == g);
  }
}

TEST_CASE("damping by the gap agrees with its formula", "[kernels]") {
  Stream stream{Device{}};
  for (const std::int64_t n : kSizes) {
    const Fields f(stream, n);
    const Values g = to_host(f.g);
    const Values w = to_host(f.w);
    const Values read = to_host(f.read);
    Values expected(g.size());
    for (std::size_t i = 0; i < g.size(); ++i) {
      expected[i] = g[i] / (1 + std::abs(w[i] - read[i]) / 0.25);
    }
    damp_by_gap(stream, 0.25f, f.g, f.w, f.read, f.out);
    check_close("out", to_host(f.out), expected, kTolerance);
    damp_by_gap(stream, INFINITY, f.g, f.w, f.read, f.out);
    CHECK(to_host(f.out) == g);
    damp_by_gap(stream, 0.25f, f.g, f.w, f.w, f.g);
    CHECK(to_host(f.g) == g);
  }
  const Fields f(stream, 3);
  CHECK_THROWS_WITH(damp_by_gap(stream, 0, f.g, f.w, f.read, f.out), says("reach is 0"));
}

TEST_CASE("damping in each element's own steps, by hand", "[kernels]") {
  Stream stream{Device{}};
  const auto tensor = [&](std::initializer_list<float> values) {
    return from_host(stream,
                     std::span<const float>(std::data(values), values.size()),
                     {static_cast<std::int64_t>(values.size())});
  };
  // C = 0.1 x sqrt(4) = 0.2. Gaps 0.6, 0 and 0.2: penalties 4, 1 and 2; and one that never moved.
  const Tensor out = stream.allocate({4});
  damp_by_own_steps(stream,
                    {.scalars = {.rate = 0.1f, .correction = 2, .weight_decay = 0.1f},
                     .g = tensor({2, 2, -3, 1}),
                     .w = tensor({0.5f, 0.5f, 2, 1}),
                     .aim = tensor({1, 1, 0.5f, 3}),
                     .w_read = tensor({0.4f, 1, 0.7f, 2}),
                     .square = tensor({2, 2, 2, 0}),
                     .out = out});
  // 2 / 4 - 0.05 x 3 / 4; 2; -3 / 2 - 0.2 / 2; 0 - 0.1
  check_close("out", to_host(out), {0.4625, 2, -1.6, -0.1}, {1e-6, 1e-6});

  const Tensor square = tensor({4, 0});
  average_square_step(stream, 0.75f, 10, tensor({1, 0}), tensor({0.8f, 0.1f}), square);
  check_close("square", to_host(square), {4, 0.25}, {1e-6, 1e-6});
  CHECK_THROWS_WITH(damp_by_own_steps(stream,
                                      {.scalars = {},
                                       .g = square,
                                       .w = square,
                                       .aim = square,
                                       .w_read = square,
                                       .square = square,
                                       .out = square}),
                    says("rate is 0"));
}

TEST_CASE("FASGD's averages and division agree with their formulas", "[kernels]") {
  Stream stream{Device{}};
  const DeviationScalars s{.decay = 0.9f, .deviation_decay = 0.8f, .epsilon = 1e-3f};
  for (const std::int64_t n : kSizes) {
    const Tensor square = constant(stream, n, 0);
    const Tensor mean = constant(stream, n, 0);
    const Tensor deviation = constant(stream, n, 1);
    const auto size = static_cast<std::size_t>(n);
    Values squares(size), means(size), deviations(size, 1.0), expected(size);
    for (std::uint64_t step = 0; step < 3; ++step) {
      const Tensor g = normal_tensor(stream, 10 + step, {n});
      const Values from = to_host(g);
      for (std::size_t i = 0; i < size; ++i) {
        squares[i] = 0.9 * squares[i] + 0.1 * from[i] * from[i];
        means[i] = 0.9 * means[i] + 0.1 * from[i];
        deviations[i] =
            0.8 * deviations[i] + 0.2 * std::sqrt(squares[i] - means[i] * means[i] + 1e-3);
        expected[i] = from[i] / deviations[i];
      }
      divide_by_deviation(
          stream,
          {.scalars = s, .g = g, .square = square, .mean = mean, .deviation = deviation, .out = g});
      check_close("out", to_host(g), expected, kTolerance);
    }
    check_close("square", to_host(square), squares, kTolerance);
    check_close("mean", to_host(mean), means, kTolerance);
    check_close("deviation", to_host(deviation), deviations, kTolerance);
  }
}

TEST_CASE("a variance that rounding leaves below zero has a root", "[kernels]") {
  Stream stream{Device{}};
  const std::int64_t n = 257;
  // Of equal gradients the variance falls to nothing, and is far above epsilon's ulp.
  const DeviationScalars s{.decay = 0.5f, .deviation_decay = 0.0f, .epsilon = 1e-30f};
  const Tensor square = constant(stream, n, 0);
  const Tensor mean = constant(stream, n, 0);
  const Tensor deviation = constant(stream, n, 1);
  for (int step = 0; step < 40; ++step) {
    const Tensor g = normal_tensor(stream, 3, {n});
    scale(stream, g, 1e3f);
    divide_by_deviation(
        stream,
        {.scalars = s, .g = g, .square = square, .mean = mean, .deviation = deviation, .out = g});
    for (const double x : to_host(g)) {
      REQUIRE_FALSE(std::isnan(x));
    }
  }
}

}  // namespace late_gradient_test
