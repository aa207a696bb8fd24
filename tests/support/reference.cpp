#include "tests/support/reference.hpp"

#include "kernels/random.hpp"
#include "tests/support/catch.hpp"

#include <algorithm>
#include <cmath>
#include <sstream>

namespace troupe::test {

namespace {

std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

/// f(b, oy, ox, o, ky, kx, iy, ix): every place of a filter that lies inside the image.
template <class F>
void for_each_tap(const Images& s, std::int64_t channels_out, F f) {
  const ConvolutionGeometry& g = s.geometry;
  for (std::int64_t b = 0; b < s.batch; ++b) {
    for (std::int64_t oy = 0; oy < g.output(s.height); ++oy) {
      for (std::int64_t ox = 0; ox < g.output(s.width); ++ox) {
        for (std::int64_t o = 0; o < channels_out; ++o) {
          for (std::int64_t ky = 0; ky < g.kernel; ++ky) {
            for (std::int64_t kx = 0; kx < g.kernel; ++kx) {
              const std::int64_t iy = oy * g.stride - g.padding + ky;
              const std::int64_t ix = ox * g.stride - g.padding + kx;
              if (iy >= 0 && iy < s.height && ix >= 0 && ix < s.width) {
                const std::int64_t output =
                    ((b * g.output(s.height) + oy) * g.output(s.width) + ox) * channels_out + o;
                f(output, (b * s.height + iy) * s.width + ix, o, ky * g.kernel + kx);
              }
            }
          }
        }
      }
    }
  }
}

}  // namespace

std::vector<float> normal_floats(std::uint64_t seed, std::int64_t n) {
  const RandomStream random(seed, Purpose::test);
  std::vector<float> values(at(n));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(random.normal(i));
  }
  return values;
}

Tensor normal_tensor(Stream& stream, std::uint64_t seed, Shape shape) {
  return from_host(stream, std::span<const float>(normal_floats(seed, shape.elements())), shape);
}

Tensor random_labels(Stream& stream, std::uint64_t seed, std::int64_t n, std::int64_t below) {
  const RandomStream random(seed, Purpose::test);
  std::vector<std::int32_t> values(at(n));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<std::int32_t>(random.below(i, static_cast<std::uint64_t>(below)));
  }
  return from_host(stream, std::span<const std::int32_t>(values), Shape{n});
}

void check_close(const std::string& what,
                 const Values& got,
                 const Values& expected,
                 Tolerance tolerance) {
  REQUIRE(got.size() == expected.size());
  double worst = 0;
  std::size_t worst_index = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double allowed = tolerance.absolute + tolerance.relative * std::abs(expected[i]);
    const double excess = std::abs(got[i] - expected[i]) - allowed;
    if (!(excess <= worst)) {  // a NaN is worse than anything
      worst = std::isnan(excess) ? INFINITY : excess;
      worst_index = i;
    }
  }
  std::ostringstream report;
  report.precision(9);
  if (worst > 0) {
    report << what << " [" << worst_index << " of " << got.size() << "]: " << got[worst_index]
           << ", expected " << expected[worst_index];
  }
  INFO(report.str());
  CHECK(worst == 0.0);
}

double activation(ActivationKind kind, double x) {
  switch (kind) {
    case ActivationKind::none:
      return x;
    case ActivationKind::relu:
      return x > 0 ? x : 0;
    case ActivationKind::tanh:
      return std::tanh(x);
    case ActivationKind::gelu:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case ActivationKind::selu:
      return 1.0507009873554805 * (x > 0 ? x : 1.6732632423543772 * std::expm1(x));
  }
  return NAN;
}

void matmul(const Values& a,
            const Values& b,
            Values& c,
            std::int64_t rows,
            std::int64_t columns,
            std::int64_t inner,
            bool transpose_a,
            bool transpose_b) {
  for (std::int64_t m = 0; m < rows; ++m) {
    for (std::int64_t n = 0; n < columns; ++n) {
      for (std::int64_t k = 0; k < inner; ++k) {
        c[at(m * columns + n)] += a[at(transpose_a ? k * rows + m : m * inner + k)] *
                                  b[at(transpose_b ? n * inner + k : k * columns + n)];
      }
    }
  }
}

Values convolution(const Images& s, const Values& x, const Values& w, const Values& bias) {
  Values y(at(s.y().elements()));
  for (std::size_t i = 0; i < y.size(); ++i) {
    y[i] = bias[i % bias.size()];
  }
  const std::int64_t taps = s.geometry.kernel * s.geometry.kernel;
  for_each_tap(s,
               s.channels_out,
               [&](std::int64_t output, std::int64_t pixel, std::int64_t o, std::int64_t tap) {
                 for (std::int64_t c = 0; c < s.channels; ++c) {
                   y[at(output)] +=
                       x[at(pixel * s.channels + c)] * w[at((o * taps + tap) * s.channels + c)];
                 }
               });
  return y;
}

Values convolution_input_gradient(const Images& s, const Values& dy, const Values& w) {
  Values dx(at(s.x().elements()));
  const std::int64_t taps = s.geometry.kernel * s.geometry.kernel;
  for_each_tap(s,
               s.channels_out,
               [&](std::int64_t output, std::int64_t pixel, std::int64_t o, std::int64_t tap) {
                 for (std::int64_t c = 0; c < s.channels; ++c) {
                   dx[at(pixel * s.channels + c)] +=
                       dy[at(output)] * w[at((o * taps + tap) * s.channels + c)];
                 }
               });
  return dx;
}

Values convolution_weight_gradient(const Images& s, const Values& x, const Values& dy) {
  Values dw(at(s.w().elements()));
  const std::int64_t taps = s.geometry.kernel * s.geometry.kernel;
  for_each_tap(s,
               s.channels_out,
               [&](std::int64_t output, std::int64_t pixel, std::int64_t o, std::int64_t tap) {
                 for (std::int64_t c = 0; c < s.channels; ++c) {
                   dw[at((o * taps + tap) * s.channels + c)] +=
                       dy[at(output)] * x[at(pixel * s.channels + c)];
                 }
               });
  return dw;
}

Pooled max_pool(const Images& s, const Values& x) {
  Pooled pooled{Values(at(s.pooled().elements()), -INFINITY), Values(at(s.pooled().elements()))};
  for_each_tap(s,
               s.channels,
               [&](std::int64_t output, std::int64_t pixel, std::int64_t o, std::int64_t tap) {
                 const double value = x[at(pixel * s.channels + o)];
                 if (value > pooled.y[at(output)]) {
                   pooled.y[at(output)] = value;
                   pooled.winner[at(output)] = static_cast<double>(tap);
                 }
               });
  return pooled;
}

Values max_pool_backward(const Images& s, const Values& dy, const Values& winner) {
  Values dx(at(s.x().elements()));
  for_each_tap(s,
               s.channels,
               [&](std::int64_t output, std::int64_t pixel, std::int64_t o, std::int64_t tap) {
                 if (static_cast<double>(tap) == winner[at(output)]) {
                   dx[at(pixel * s.channels + o)] += dy[at(output)];
                 }
               });
  return dx;
}

Loss softmax_cross_entropy(const Values& logits, const Values& labels, std::int64_t classes) {
  Loss loss;
  loss.gradient.resize(logits.size());
  const double rows = static_cast<double>(labels.size());
  for (std::size_t r = 0; r < labels.size(); ++r) {
    const double* x = logits.data() + r * at(classes);
    const auto label = static_cast<std::int64_t>(labels[r]);
    const double largest = *std::max_element(x, x + classes);
    double sum = 0;
    for (std::int64_t c = 0; c < classes; ++c) {
      sum += std::exp(x[c] - largest);
    }
    loss.sum += std::log(sum) - (x[label] - largest);
    loss.right += std::max_element(x, x + classes) - x == label ? 1 : 0;
    for (std::int64_t c = 0; c < classes; ++c) {
      loss.gradient[r * at(classes) + at(c)] =
          (std::exp(x[c] - largest) / sum - (c == label ? 1 : 0)) / rows;
    }
  }
  return loss;
}

Loss squared_error(const Values& y, const Values& target, std::int64_t columns) {
  Loss loss;
  const double rows = static_cast<double>(y.size()) / static_cast<double>(columns);
  for (std::size_t i = 0; i < y.size(); ++i) {
    loss.sum += 0.5 * (y[i] - target[i]) * (y[i] - target[i]);
    loss.gradient.push_back((y[i] - target[i]) / rows);
  }
  return loss;
}

Step update(UpdateRule rule, const UpdateScalars& s, double w, double g, double m, double v) {
  const bool decoupled = rule == UpdateRule::adamw || rule == UpdateRule::nadamw;
  const double gradient = double(s.gradient_scale) * g + (decoupled ? 0 : double(s.decay) * w);
  if (decoupled) {
    w *= 1 - double(s.rate) * double(s.decay);
  }
  const double velocity = double(s.gamma) * m + gradient;
  const double first = double(s.gamma) * m + (1 - double(s.gamma)) * gradient;
  const double second = double(s.beta2) * v + (1 - double(s.beta2)) * gradient * gradient;
  const double denominator = std::sqrt(second * double(s.v_scale)) + double(s.epsilon);
  const double rate = double(s.rate);
  switch (rule) {
    case UpdateRule::sgd:
      return {w - rate * gradient, m, v, gradient};
    case UpdateRule::momentum:
      return {w - rate * velocity, velocity, v, velocity};
    case UpdateRule::nesterov:
      return {w - rate * (gradient + double(s.gamma) * velocity), velocity, v, velocity};
    case UpdateRule::spike_compensation:
      return {w - rate * (double(s.a) * velocity + double(s.b) * gradient), velocity, v, velocity};
    case UpdateRule::adam:
    case UpdateRule::adamw: {
      const double direction = first * double(s.m_scale) / denominator;
      return {w - rate * direction, first, second, direction};
    }
    case UpdateRule::nadam:
    case UpdateRule::nadamw: {
      const double step = (double(s.g_scale) * gradient + double(s.m_scale) * first) / denominator;
      return {w - rate * step, first, second, double(s.m_scale) * first / denominator};
    }
  }
  return {};
}

}  // namespace troupe::test
