// The similarity loss of a module of its own (Nokland & Eidnes 2019, arXiv:1901.06656, with
// the authors' adjusted cosine and, for images, the deviations of channels): outputs of samples of one
// class are to point one way, those of others apart.
#include "kernels/combine.hpp"
#include "kernels/matmul.hpp"
#include "runtime/model/layers.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace troupe {
namespace {

constexpr double kSame = 1e-8;  // what varies less does not vary

std::size_t nth(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

/// What samples are compared by: rows of z. Of an image of more than three channels, how much each
/// varies over the image.
class ComparedFeatures {
 public:
  ComparedFeatures(Stream& stream, const Tensor& z) {
    const Shape& s = z.shape();
    if (s.dimensions() != 4 || s[3] <= 3 || s[1] * s[2] == 1) {
      x_ = z.reshape({s[0], z.elements() / s[0]});
      return;
    }
    positions_ = s[1] * s[2];
    x_ = stream.allocate({s[0], s[3]});
    const auto to = x_.span<float>();
    mean_ = sums(z, [](std::size_t, double value) { return value; });
    for (double& mean : mean_) {
      mean /= static_cast<double>(positions_);
    }
    const std::vector<double> squares = sums(
        z, [&](std::size_t at, double value) { return (value - mean_[at]) * (value - mean_[at]); });
    for (std::size_t at = 0; at < to.size(); ++at) {
      to[at] = static_cast<float>(std::sqrt(squares[at] / static_cast<double>(positions_ - 1)));
    }
  }

  const Tensor& x() const { return x_; }  // (B, F)

  /// From dx to dz.
  Tensor gradient(Stream& stream, const Tensor& z, const Tensor& dx) const {
    if (positions_ == 0) {
      return dx.reshape(z.shape());
    }
    Tensor dz = stream.allocate(z.shape());
    const auto to = dz.span<float>();
    const auto deviation = x_.span<float>();
    const auto d = dx.span<float>();
    each(z, [&](std::size_t i, std::size_t at, double value) {
      const double scale = deviation[at] * static_cast<double>(positions_ - 1);
      to[i] = deviation[at] < kSame ? 0 : static_cast<float>(d[at] * (value - mean_[at]) / scale);
    });
    return dz;
  }

 private:
  /// f(i, at, z[i]) of each element, whose channel of its image is element `at` of x.
  template <class F>
  void each(const Tensor& z, F f) const {
    const auto from = z.span<float>();
    const std::size_t channels = nth(x_.shape()[1]);
    const std::size_t image = nth(positions_) * channels;
    for (std::size_t i = 0; i < from.size(); ++i) {
      f(i, i / image * channels + i % channels, static_cast<double>(from[i]));
    }
  }

  /// Of each channel of each image: the sum of f(at, value) over the image.
  template <class F>
  std::vector<double> sums(const Tensor& z, F f) const {
    std::vector<double> all(nth(x_.elements()));
    each(z, [&](std::size_t, std::size_t at, double value) { all[at] += f(at, value); });
    return all;
  }

  Tensor x_;
  std::int64_t positions_ = 0;  // of an image whose channels x stands for; 0: x is z
  std::vector<double> mean_{};  // as x: of each channel of each image
};

/// x (B, F), each row minus its mean and over its length; zeros where it does not vary.
struct RowDirections {
  Tensor unit;
  std::vector<double> length;

  RowDirections(Stream& stream, const Tensor& x)
      : unit(stream.allocate(x.shape())), length(nth(x.shape()[0])) {
    const std::size_t width = nth(x.shape()[1]);
    for (std::size_t r = 0; r < length.size(); ++r) {
      const auto row = x.span<float>().subspan(r * width, width);
      const auto to = unit.span<float>().subspan(r * width, width);
      double mean = 0;
      for (const float value : row) {
        mean += static_cast<double>(value);
      }
      mean /= static_cast<double>(width);
      double squares = 0;
      for (const float value : row) {
        squares += (value - mean) * (value - mean);
      }
      const double norm = length[r] = std::sqrt(squares);
      std::transform(row.begin(), row.end(), to.begin(), [&](float value) {
        return norm < kSame ? 0 : static_cast<float>((value - mean) / norm);
      });
    }
  }

  /// From the gradient by `unit` to that by x.
  Tensor gradient(Stream& stream, const Tensor& du) const {
    const std::size_t width = nth(unit.shape()[1]);
    Tensor dx = stream.allocate(unit.shape());
    for (std::size_t r = 0; r < length.size(); ++r) {
      const auto u = unit.span<float>().subspan(r * width, width);
      const auto d = du.span<float>().subspan(r * width, width);
      const auto to = dx.span<float>().subspan(r * width, width);
      double along = 0;
      double mean = 0;  // u itself has none
      for (std::size_t j = 0; j < width; ++j) {
        along += static_cast<double>(u[j]) * d[j];
        mean += static_cast<double>(d[j]) / static_cast<double>(width);
      }
      for (std::size_t j = 0; j < width; ++j) {
        to[j] =
            length[r] < kSame ? 0 : static_cast<float>((d[j] - mean - u[j] * along) / length[r]);
      }
    }
    return dx;
  }
};

class SimilarityLoss final : public Layer {
 public:
  SimilarityLoss(std::string name, const SimilarityOptions& options)
      : Layer(std::move(name)), o_(options) {}

  void shapes(BundleShape& bundle) const override {
    std::erase_if(bundle, [&](const NamedShape& entry) { return entry.name == o_.skip; });
  }

  std::int64_t saved_bytes() const override { return 4 * (o_.features + 1); }

  void forward(const Pass&, Parameters, LayerBuffers, Bundle& bundle, Saved& saved) const override {
    saved = {take(bundle, o_.skip), take(bundle, kLabelsEntry)};
  }

  void input_gradient(
      const Pass& pass, Parameters, Saved& saved, Bundle& error, bool) const override {
    Tensor& dy = error.front().tensor;
    const Tensor rest = pass.stream.allocate(dy.shape());
    combine(pass.stream, {{1 - o_.share, dy}}, rest);
    dy = rest;
    error.push_back({o_.skip, gradient(pass.stream, saved[0], saved[1])});
    saved.clear();
  }

 private:
  static Tensor take(Bundle& bundle, std::string_view name) {
    const auto found = std::find_if(
        bundle.begin(), bundle.end(), [&](const auto& entry) { return entry.name == name; });
    TROUPE_CHECK(found != bundle.end(), "the bundle has no entry ", name);
    Tensor tensor = std::move(found->tensor);
    bundle.erase(found);
    return tensor;
  }

  /// share times d/dz of the mean of (S(z) - S(labels))^2 over all pairs.
  Tensor gradient(Stream& stream, const Tensor& z, const Tensor& labels) const {
    const std::int64_t rows = z.shape()[0];
    const ComparedFeatures features(stream, z);
    const RowDirections directions(stream, features.x());
    const Tensor alike = stream.allocate({rows, rows});
    matmul(stream, directions.unit, directions.unit, alike, {.transpose_b = true});
    // One-hot labels of C classes, each minus its mean: the cosine of two that differ.
    const double apart = -1 / static_cast<double>(o_.classes - 1);
    const auto y = labels.span<std::int32_t>();
    const auto s = alike.span<float>();
    const double factor = 4 * o_.share / static_cast<double>(rows * rows);  // S is symmetric
    for (std::size_t at = 0; at < s.size(); ++at) {
      const bool same = y[at / y.size()] == y[at % y.size()];
      s[at] = static_cast<float>(factor * (s[at] - (same ? 1 : apart)));
    }
    const Tensor du = stream.allocate(directions.unit.shape());
    matmul(stream, alike, directions.unit, du);
    return features.gradient(stream, z, directions.gradient(stream, du));
  }

  SimilarityOptions o_;
};

}  // namespace

std::shared_ptr<const Layer> similarity_loss_layer(std::string name,
                                                   const SimilarityOptions& options) {
  return std::make_shared<SimilarityLoss>(std::move(name), options);
}

}  // namespace troupe
