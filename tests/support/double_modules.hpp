// Modules of small networks in double: loops that know neither kernels nor actors, for literal trajectories of schemes.
#pragma once

#include "runtime/model/chunk.hpp"
#include "tests/support/double_matrix.hpp"

#include <cstddef>
#include <vector>

namespace troupe::test {

Matrix matrix_of(const Tensor& x);                // (rows, everything else)
Matrix beside(const Matrix& x, const Matrix& y);  // (rows, columns of both)
Matrix one_hot(const std::vector<int>& labels, std::size_t classes);

/// (softmax(y) - target) / rows: the gradient by y of the mean cross entropy, with labels smoothed as PyTorch does.
Matrix cross_entropy_gradient(const Matrix& y,
                              const std::vector<int>& labels,
                              double smoothing = 0);

enum class DoublePart { dense, tanh, relu, norm };

/// A chain of layers. Parameters stand in the order of the layers: of `dense` a weight (outputs, inputs) and a bias, of
/// `norm` (batch norm, of the micro-batch) gamma and beta.
class DoubleModule {
 public:
  /// `biased`: whether a dense layer that is followed by a norm has a bias, too.
  DoubleModule(std::vector<DoublePart> parts, std::vector<Matrix> parameters, bool biased = true);

  struct Pass {
    std::vector<Matrix> inputs;  // of each part
    Matrix y;
  };

  struct Gradient {
    Matrix dx;
    std::vector<Matrix> parameters;
  };

  Pass forward(const Matrix& x) const;

  /// The gradient by the parameters, where errors go back through `by` in place of them.
  Gradient backward(const Pass& pass, Matrix dy, const std::vector<Matrix>& by) const;

  Gradient backward(const Pass& pass, const Matrix& dy) const {
    return backward(pass, dy, parameters);
  }

  /// v = momentum v + g; w -= rate v.
  void step(const std::vector<Matrix>& gradient, double rate, double momentum);

  std::vector<Matrix> parameters;

 private:
  bool biased(std::size_t part) const;

  std::vector<DoublePart> parts_;
  bool biased_;
  std::vector<Matrix> velocity_;
};

/// How the parameters of `chunk` start with `seed`, in the order of its layers.
std::vector<Matrix> initial_parameters(const Chunk& chunk, std::uint64_t seed);

}  // namespace troupe::test
