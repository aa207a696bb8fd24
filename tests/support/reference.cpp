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

/// f(b, h, i) for every query.
template <class F>
void for_each_query(const Heads& s, F f) {
  for (std::int64_t b = 0; b < s.batch; ++b) {
    for (std::int64_t h = 0; h < s.heads; ++h) {
      for (std::int64_t i = 0; i < s.length; ++i) {
        f(b, h, i);
      }
    }
  }
}

/// Of the keys that query i sees, and the logarithm of the sum of their exponentials.
Values attention_probabilities(const Heads& s,
                               const Values& qkv,
                               std::int64_t b,
                               std::int64_t h,
                               std::int64_t i,
                               double& log_sum) {
  const double* query = qkv.data() + s.row(b, i) + h * s.head_size;
  Values p(at(s.seen(i)));
  for (std::int64_t j = 0; j < s.seen(i); ++j) {
    const double* key = qkv.data() + s.row(b, j) + s.key_of(h);
    for (std::int64_t c = 0; c < s.head_size; ++c) {
      p[at(j)] += query[c] * key[c] / std::sqrt(double(s.head_size));
    }
  }
  const double largest = *std::max_element(p.begin(), p.end());
  double sum = 0;
  for (const double score : p) {
    sum += std::exp(score - largest);
  }
  log_sum = largest + std::log(sum);
  for (double& score : p) {
    score = std::exp(score - log_sum);
  }
  return p;
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

Tensor moment_tensor(Stream& stream, UpdateKernel kernel, int which, Shape shape) {
  std::vector<float> values =
      normal_floats(static_cast<std::uint64_t>(2 + which), shape.elements());
  if (which == 2 || kernel == UpdateKernel::adagrad) {
    for (float& value : values) {
      value = 0.1f + value * value;
    }
  }
  return from_host(stream, std::span<const float>(values), shape);
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
    case ActivationKind::gelu_erf:
      return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
    case ActivationKind::silu:
      return x / (1 + std::exp(-x));
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

Values average_pool(const Images& s, const Values& x) {
  Values y(at(s.pooled().elements()));
  for_each_tap(
      s, s.channels, [&](std::int64_t output, std::int64_t pixel, std::int64_t c, std::int64_t) {
        y[at(output)] += x[at(pixel * s.channels + c)];
      });
  for (double& value : y) {
    value /= static_cast<double>(s.geometry.kernel * s.geometry.kernel);
  }
  return y;
}

Values average_pool_backward(const Images& s, const Values& dy) {
  Values dx(at(s.x().elements()));
  const double size = static_cast<double>(s.geometry.kernel * s.geometry.kernel);
  for_each_tap(
      s, s.channels, [&](std::int64_t output, std::int64_t pixel, std::int64_t c, std::int64_t) {
        dx[at(pixel * s.channels + c)] += dy[at(output)] / size;
      });
  return dx;
}

Normalization Normalization::batch(std::int64_t channels, double epsilon) {
  return {channels, channels, [=](std::int64_t i) { return i % channels; }, epsilon};
}

Normalization Normalization::layer(std::int64_t rows, std::int64_t channels, double epsilon) {
  return {channels, rows, [=](std::int64_t i) { return i / channels; }, epsilon};
}

Normalization Normalization::group(const Shape& x, std::int64_t groups, double epsilon) {
  const std::int64_t channels = x[2];
  const std::int64_t image = x[1] * channels;
  const std::int64_t width = channels / groups;
  return {channels,
          x[0] * groups,
          [=](std::int64_t i) { return i / image * groups + i % channels / width; },
          epsilon};
}

Normalized normalize(const Normalization& n,
                     const Values& x,
                     const Values& gamma,
                     const Values& beta) {
  Normalized result{Values(x.size()), Values(at(n.groups)), Values(at(n.groups))};
  const double share = static_cast<double>(n.groups) / static_cast<double>(x.size());
  const auto group = [&](std::size_t i) {
    return at(n.group_of(static_cast<std::int64_t>(i)));
  };
  for (std::size_t i = 0; i < x.size(); ++i) {
    result.mean[group(i)] += n.centred ? x[i] * share : 0;
  }
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double centred = x[i] - result.mean[group(i)];
    result.variance[group(i)] += centred * centred * share;
  }
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::size_t c = i % at(n.channels);
    result.y[i] = (x[i] - result.mean[group(i)]) /
                      std::sqrt(result.variance[group(i)] + n.epsilon) * gamma[c] +
                  beta[c];
  }
  return result;
}

NormalizationGradients normalization_backward(const Normalization& n,
                                              const Values& x,
                                              const Values& gamma,
                                              const Values& dy) {
  // With gamma 1 and beta 0: the normalized x itself.
  const Normalized normal = normalize(n, x, Values(gamma.size(), 1.0), Values(gamma.size()));
  NormalizationGradients result{Values(x.size()), Values(at(n.channels)), Values(at(n.channels))};
  Values sum(at(n.groups));
  Values product(at(n.groups));
  const double share = static_cast<double>(n.groups) / static_cast<double>(x.size());
  const auto group = [&](std::size_t i) {
    return at(n.group_of(static_cast<std::int64_t>(i)));
  };
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::size_t c = i % at(n.channels);
    result.dgamma[c] += dy[i] * normal.y[i];
    result.dbeta[c] += dy[i];
    sum[group(i)] += n.centred ? dy[i] * gamma[c] * share : 0;
    product[group(i)] += dy[i] * gamma[c] * normal.y[i] * share;
  }
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double weighted = dy[i] * gamma[i % at(n.channels)];
    result.dx[i] = (weighted - sum[group(i)] - normal.y[i] * product[group(i)]) /
                   std::sqrt(normal.variance[group(i)] + n.epsilon);
  }
  return result;
}

Loss softmax_cross_entropy(const Values& logits,
                           const Values& labels,
                           std::int64_t classes,
                           double smoothing) {
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
    loss.right += std::max_element(x, x + classes) - x == label ? 1 : 0;
    for (std::int64_t c = 0; c < classes; ++c) {
      const double target =
          (c == label ? 1 - smoothing : 0) + smoothing / static_cast<double>(classes);
      loss.sum -= target * (x[c] - largest - std::log(sum));
      loss.gradient[r * at(classes) + at(c)] = (std::exp(x[c] - largest) / sum - target) / rows;
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

Attended attention(const Heads& s, const Values& qkv) {
  Attended result{Values(at(s.y().elements())), Values(at(s.log_sum().elements()))};
  const std::int64_t T = s.length;
  const std::int64_t C = s.width();
  for_each_query(s, [&](std::int64_t b, std::int64_t h, std::int64_t i) {
    const Values p =
        attention_probabilities(s, qkv, b, h, i, result.log_sum[at((b * s.heads + h) * T + i)]);
    for (std::int64_t j = 0; j < s.seen(i); ++j) {
      for (std::int64_t c = 0; c < s.head_size; ++c) {
        result.y[at((b * T + i) * C + h * s.head_size + c)] +=
            p[at(j)] * qkv[at(s.row(b, j) + s.value_of(h) + c)];
      }
    }
  });
  return result;
}

// By y_i = sum_j p_ij v_j and dp_ij/ds_ik = p_ij ([j = k] - p_ik).
Values attention_gradient(const Heads& s, const Values& qkv, const Values& dy) {
  Values gradient(qkv.size());
  const std::int64_t T = s.length;
  const std::int64_t C = s.width();
  const double scale = 1 / std::sqrt(double(s.head_size));
  for_each_query(s, [&](std::int64_t b, std::int64_t h, std::int64_t i) {
    double log_sum = 0;
    const Values p = attention_probabilities(s, qkv, b, h, i, log_sum);
    Values dp(p.size());
    double mean = 0;
    const std::int64_t query = s.row(b, i) + h * s.head_size;
    const double* const error = dy.data() + (b * T + i) * C + h * s.head_size;
    for (std::int64_t j = 0; j < s.seen(i); ++j) {
      const std::int64_t value = s.row(b, j) + s.value_of(h);
      for (std::int64_t c = 0; c < s.head_size; ++c) {
        dp[at(j)] += error[c] * qkv[at(value + c)];
        gradient[at(value + c)] += p[at(j)] * error[c];
      }
      mean += p[at(j)] * dp[at(j)];
    }
    for (std::int64_t j = 0; j < s.seen(i); ++j) {
      const double ds = p[at(j)] * (dp[at(j)] - mean);
      const std::int64_t key = s.row(b, j) + s.key_of(h);
      for (std::int64_t c = 0; c < s.head_size; ++c) {
        gradient[at(query + c)] += scale * ds * qkv[at(key + c)];
        gradient[at(key + c)] += scale * ds * qkv[at(query + c)];
      }
    }
  });
  return gradient;
}

Values lstm(const Lstm& s,
            const Values& x,
            const Values& w_input,
            const Values& w_hidden,
            const Values& bias,
            const Values& h,
            const Values& c) {
  const auto sigmoid = [](double z) {
    return 1 / (1 + std::exp(-z));
  };
  const std::int64_t H = s.cells;
  Values y(at(s.batch * s.length * H));
  for (std::int64_t b = 0; b < s.batch; ++b) {
    Values hidden(at(H));
    Values cell(at(H));
    if (!h.empty()) {
      std::copy_n(h.begin() + b * H, H, hidden.begin());
      std::copy_n(c.begin() + b * H, H, cell.begin());
    }
    for (std::int64_t t = 0; t < s.length; ++t) {
      Values gates = bias;
      for (std::int64_t r = 0; r < 4 * H; ++r) {
        for (std::int64_t i = 0; i < s.inputs; ++i) {
          gates[at(r)] += w_input[at(r * s.inputs + i)] * x[at((b * s.length + t) * s.inputs + i)];
        }
        for (std::int64_t k = 0; k < H; ++k) {
          gates[at(r)] += w_hidden[at(r * H + k)] * hidden[at(k)];
        }
      }
      for (std::int64_t k = 0; k < H; ++k) {
        cell[at(k)] = sigmoid(gates[at(H + k)]) * cell[at(k)] +
                      sigmoid(gates[at(k)]) * std::tanh(gates[at(2 * H + k)]);
        hidden[at(k)] = sigmoid(gates[at(3 * H + k)]) * std::tanh(cell[at(k)]);
        y[at((b * s.length + t) * H + k)] = hidden[at(k)];
      }
    }
  }
  return y;
}

Values newton_schulz(Values x, std::int64_t rows, std::int64_t columns) {
  double squares = 0;
  for (const double value : x) {
    squares += value * value;
  }
  for (double& value : x) {
    value /= std::sqrt(squares);
  }
  for (int step = 0; step < 5; ++step) {
    Values gram(at(rows * rows)), square(at(rows * rows)), first(x.size()), second(x.size());
    matmul(x, x, gram, rows, rows, columns, false, true);
    matmul(gram, gram, square, rows, rows, rows, false, false);
    matmul(gram, x, first, rows, columns, rows, false, false);
    matmul(square, x, second, rows, columns, rows, false, false);
    for (std::size_t i = 0; i < x.size(); ++i) {
      x[i] = 3.4445 * x[i] - 4.7750 * first[i] + 2.0315 * second[i];
    }
  }
  return x;
}

Step update(UpdateKernel kernel, const UpdateScalars& s, double w, double g, double m, double v) {
  const bool decoupled = kernel == UpdateKernel::adamw || kernel == UpdateKernel::nadamw ||
                         kernel == UpdateKernel::lion || kernel == UpdateKernel::muon;
  const double gradient = double(s.gradient_scale) * g + (decoupled ? 0 : double(s.decay) * w);
  if (decoupled) {
    w *= 1 - double(s.rate) * double(s.decay);
  }
  const double velocity = double(s.gamma) * m + gradient;
  const double first = double(s.gamma) * m + (1 - double(s.gamma)) * gradient;
  const double second = double(s.beta2) * v + (1 - double(s.beta2)) * gradient * gradient;
  const double denominator = std::sqrt(second * double(s.v_scale)) + double(s.epsilon);
  const double rate = double(s.rate);
  switch (kernel) {
    case UpdateKernel::sgd:
      return {w - rate * gradient, m, v, gradient};
    case UpdateKernel::momentum:
      return {w - rate * velocity, velocity, v, velocity};
    case UpdateKernel::nesterov:
      return {w - rate * (gradient + double(s.gamma) * velocity), velocity, v, velocity};
    case UpdateKernel::spike_compensation:
      return {w - rate * (double(s.a) * velocity + double(s.b) * gradient), velocity, v, velocity};
    case UpdateKernel::adam:
    case UpdateKernel::adamw: {
      const double direction = first * double(s.m_scale) / denominator;
      return {w - rate * direction, first, second, direction};
    }
    case UpdateKernel::adagrad: {
      const double sum = m + gradient * gradient;
      const double direction = gradient / (std::sqrt(sum) + double(s.epsilon));
      return {w - rate * direction, sum, v, direction};
    }
    case UpdateKernel::rmsprop: {
      const double scaled = gradient / (std::sqrt(second) + double(s.epsilon));
      const double buffer = double(s.gamma) * m + scaled;
      return {w - rate * buffer, buffer, second, buffer};
    }
    case UpdateKernel::lion: {
      const double sign = first > 0 ? 1 : first < 0 ? -1 : 0;
      const double kept = double(s.beta2) * m + (1 - double(s.beta2)) * gradient;
      return {w - rate * sign, kept, v, sign};
    }
    case UpdateKernel::muon:
      return {w - rate * gradient, m, v, gradient};
    case UpdateKernel::nadam:
    case UpdateKernel::nadamw: {
      const double step = (double(s.g_scale) * gradient + double(s.m_scale) * first) / denominator;
      return {w - rate * step, first, second, double(s.m_scale) * first / denominator};
    }
  }
  return {};
}

}  // namespace troupe::test
