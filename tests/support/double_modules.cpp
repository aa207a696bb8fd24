#include "tests/support/double_modules.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace troupe::test {
namespace {

constexpr double kNormEpsilon = static_cast<double>(1e-5f);

/// Of each column: its mean, and one over its deviation.
struct Moments {
  std::vector<double> mean;
  std::vector<double> inverse;

  explicit Moments(const Matrix& x) : mean(x.columns), inverse(x.columns) {
    const auto rows = static_cast<double>(x.rows);
    for (std::size_t j = 0; j < x.columns; ++j) {
      for (std::size_t i = 0; i < x.rows; ++i) {
        mean[j] += x.at(i, j) / rows;
      }
      double variance = 0;
      for (std::size_t i = 0; i < x.rows; ++i) {
        variance += (x.at(i, j) - mean[j]) * (x.at(i, j) - mean[j]) / rows;
      }
      inverse[j] = 1 / std::sqrt(variance + kNormEpsilon);
    }
  }

  double normal(const Matrix& x, std::size_t i, std::size_t j) const {
    return (x.at(i, j) - mean[j]) * inverse[j];
  }
};

Matrix column_sums(const Matrix& x) {
  Matrix all = zeros(1, x.columns);
  for (std::size_t i = 0; i < x.rows; ++i) {
    for (std::size_t j = 0; j < x.columns; ++j) {
      all.values[j] += x.at(i, j);
    }
  }
  return all;
}

Matrix activated(const Matrix& x, DoublePart part) {
  Matrix y = x;
  for (double& value : y.values) {
    value = part == DoublePart::relu ? std::max(value, 0.0) : std::tanh(value);
  }
  return y;
}

Matrix activation_gradient(const Matrix& x, Matrix dy, DoublePart part) {
  for (std::size_t i = 0; i < dy.values.size(); ++i) {
    const double t = std::tanh(x.values[i]);
    dy.values[i] *= part == DoublePart::relu ? (x.values[i] > 0 ? 1 : 0) : 1 - t * t;
  }
  return dy;
}

Matrix normalised(const Matrix& x, const Matrix& gamma, const Matrix& beta) {
  const Moments moments(x);
  Matrix y = x;
  for (std::size_t i = 0; i < x.rows; ++i) {
    for (std::size_t j = 0; j < x.columns; ++j) {
      y.at(i, j) = gamma.values[j] * moments.normal(x, i, j) + beta.values[j];
    }
  }
  return y;
}

/// By x; fills the gradient by gamma. Ioffe & Szegedy 2015.
Matrix norm_gradient(const Matrix& x, const Matrix& dy, const Matrix& gamma, Matrix& dgamma) {
  const Moments moments(x);
  const auto rows = static_cast<double>(x.rows);
  Matrix dx = x;
  dgamma = zeros(1, x.columns);
  for (std::size_t j = 0; j < x.columns; ++j) {
    double mean = 0;
    double along = 0;
    for (std::size_t i = 0; i < x.rows; ++i) {
      mean += dy.at(i, j) / rows;
      along += dy.at(i, j) * moments.normal(x, i, j) / rows;
    }
    dgamma.values[j] = along * rows;
    for (std::size_t i = 0; i < x.rows; ++i) {
      dx.at(i, j) = gamma.values[j] * moments.inverse[j] *
                    (dy.at(i, j) - mean - moments.normal(x, i, j) * along);
    }
  }
  return dx;
}

}  // namespace

Matrix matrix_of(const Tensor& x) {
  const auto rows = static_cast<std::size_t>(x.shape()[0]);
  return {rows, static_cast<std::size_t>(x.elements()) / rows, to_host(x)};
}

Matrix beside(const Matrix& x, const Matrix& y) {
  Matrix z = zeros(x.rows, x.columns + y.columns);
  for (std::size_t i = 0; i < x.rows; ++i) {
    for (std::size_t j = 0; j < z.columns; ++j) {
      z.at(i, j) = j < x.columns ? x.at(i, j) : y.at(i, j - x.columns);
    }
  }
  return z;
}

Matrix one_hot(const std::vector<int>& labels, std::size_t classes) {
  Matrix all = zeros(labels.size(), classes);
  for (std::size_t i = 0; i < labels.size(); ++i) {
    all.at(i, static_cast<std::size_t>(labels[i])) = 1;
  }
  return all;
}

Matrix cross_entropy_gradient(const Matrix& y, const std::vector<int>& labels, double smoothing) {
  Matrix g = one_hot(labels, y.columns);
  for (std::size_t i = 0; i < y.rows; ++i) {
    double all = 0;
    for (std::size_t j = 0; j < y.columns; ++j) {
      all += std::exp(y.at(i, j));
    }
    for (std::size_t j = 0; j < y.columns; ++j) {
      const double target =
          (1 - smoothing) * g.at(i, j) + smoothing / static_cast<double>(y.columns);
      g.at(i, j) = (std::exp(y.at(i, j)) / all - target) / static_cast<double>(y.rows);
    }
  }
  return g;
}

DoubleModule::DoubleModule(std::vector<DoublePart> parts, std::vector<Matrix> start, bool biased)
    : parameters(std::move(start)), parts_(std::move(parts)), biased_(biased) {
  for (const Matrix& p : parameters) {
    velocity_.push_back(zeros(p.rows, p.columns));
  }
}

bool DoubleModule::biased(std::size_t part) const {
  return biased_ || part + 1 == parts_.size() || parts_[part + 1] != DoublePart::norm;
}

DoubleModule::Pass DoubleModule::forward(const Matrix& x) const {
  Pass pass{.inputs = {}, .y = x};
  std::size_t next = 0;
  for (std::size_t k = 0; k < parts_.size(); ++k) {
    pass.inputs.push_back(pass.y);
    if (parts_[k] == DoublePart::dense) {
      pass.y = product(pass.y, transposed(parameters[next++]));
      if (biased(k)) {
        for (std::size_t i = 0; i < pass.y.values.size(); ++i) {
          pass.y.values[i] += parameters[next].values[i % pass.y.columns];
        }
        ++next;
      }
    } else if (parts_[k] == DoublePart::norm) {
      pass.y = normalised(pass.y, parameters[next], parameters[next + 1]);
      next += 2;
    } else {
      pass.y = activated(pass.y, parts_[k]);
    }
  }
  return pass;
}

DoubleModule::Gradient DoubleModule::backward(const Pass& pass,
                                              Matrix dy,
                                              const std::vector<Matrix>& by) const {
  Gradient made{.dx = {}, .parameters = parameters};
  std::size_t next = parameters.size();
  for (std::size_t k = parts_.size(); k-- > 0;) {
    const Matrix& x = pass.inputs[k];
    if (parts_[k] == DoublePart::dense) {
      if (biased(k)) {
        made.parameters[--next].values = column_sums(dy).values;
      }
      made.parameters[--next] = product(transposed(dy), x);
      dy = product(dy, by[next]);
    } else if (parts_[k] == DoublePart::norm) {
      made.parameters[--next].values = column_sums(dy).values;
      --next;
      Matrix dgamma;
      dy = norm_gradient(x, dy, by[next], dgamma);
      made.parameters[next].values = dgamma.values;
    } else {
      dy = activation_gradient(x, std::move(dy), parts_[k]);
    }
  }
  made.dx = std::move(dy);
  return made;
}

void DoubleModule::step(const std::vector<Matrix>& gradient, double rate, double momentum) {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    velocity_[i] = sum(momentum, velocity_[i], 1, gradient[i]);
    parameters[i] = sum(1, parameters[i], -rate, velocity_[i]);
  }
}

std::vector<Matrix> initial_parameters(const Chunk& chunk, std::uint64_t seed) {
  Stream stream(Device{});
  const std::vector<Tensor> slices = chunk.initial_slices(stream, seed);
  std::vector<Matrix> all;
  for (const ParameterLayout::Entry& entry : chunk.layout().entries) {
    all.push_back(matrix_of(slices[entry.slice].view(entry.offset, entry.spec.shape)));
  }
  return all;
}

}  // namespace troupe::test
