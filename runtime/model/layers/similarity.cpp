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
struct ComparedFeatures {
  Tensor x;                    // (B, F)
  std::int64_t positions = 0;  // of an image whose channels they stand for; 0: z itself
  std::vector<double> mean{};  // of each channel of each image

  ComparedFeatures(Stream& stream, const Tensor& z) {
    const Shape& s = z.shape();
    const bool image = s.dimensions() == 4 && s[3] > 3 && s[1] * s[2] > 1;
    if (!image) {
      x = z.reshape({s[0], z.elements() / s[0]});
      return;
    }
    positions = s[1] * s[2];
    x = stream.allocate({s[0], s[3]});
    mean.resize(nth(x.elements()));
    deviations(z.span<float>(), s[3]);
  }

  /// From dx to dz.
  Tensor gradient(Stream& stream, const Tensor& z, const Tensor& dx) const {
    if (positions == 0) {
      return dx.reshape(z.shape());
    }
    Tensor dz = stream.allocate(z.shape());
    const std::int64_t channels = x.shape()[1];
    for (std::int64_t i = 0; i < z.elements(); ++i) {
      const std::size_t at = nth(i / (positions * channels) * channels + i % channels);
      const double deviation = x.span<float>()[at];
      const double away = z.span<float>()[nth(i)] - mean[at];
      dz.span<float>()[nth(i)] =
          deviation < kSame ? 0
                            : static_cast<float>(dx.span<float>()[at] * away /
                                                 (deviation * static_cast<double>(positions - 1)));
    }
    return dz;
  }

 private:
  void deviations(std::span<const float> z, std::int64_t channels) {
    for (std::int64_t at = 0; at < x.elements(); ++at) {
      const std::int64_t first = at / channels * positions * channels + at % channels;
      double sum = 0;
      for (std::int64_t p = 0; p < positions; ++p) {
        sum += static_cast<double>(z[nth(first + p * channels)]);
      }
      const double m = mean[nth(at)] = sum / static_cast<double>(positions);
      double squares = 0;
      for (std::int64_t p = 0; p < positions; ++p) {
        const double away = z[nth(first + p * channels)] - m;
        squares += away * away;
      }
      x.span<float>()[nth(at)] =
          static_cast<float>(std::sqrt(squares / static_cast<double>(positions - 1)));
    }
  }
};

/// x (B, F), each row minus its mean and over its length; zeros where it does not vary.
struct Directions {
  Tensor unit;
  std::vector<double> length;

  Directions(Stream& stream, const Tensor& x)
      : unit(stream.allocate(x.shape())), length(nth(x.shape()[0])) {
    const std::int64_t width = x.shape()[1];
    for (std::int64_t r = 0; r < x.shape()[0]; ++r) {
      const auto row = x.span<float>().subspan(nth(r * width), nth(width));
      const auto to = unit.span<float>().subspan(nth(r * width), nth(width));
      double mean = 0;
      for (const float value : row) {
        mean += static_cast<double>(value);
      }
      mean /= static_cast<double>(width);
      double squares = 0;
      for (const float value : row) {
        squares += (value - mean) * (value - mean);
      }
      const double norm = length[nth(r)] = std::sqrt(squares);
      std::transform(row.begin(), row.end(), to.begin(), [&](float value) {
        return norm < kSame ? 0 : static_cast<float>((value - mean) / norm);
      });
    }
  }

  /// From the gradient by `unit` to that by x.
  Tensor gradient(Stream& stream, const Tensor& du) const {
    const std::int64_t width = unit.shape()[1];
    Tensor dx = stream.allocate(unit.shape());
    for (std::int64_t r = 0; r < unit.shape()[0]; ++r) {
      const auto u = unit.span<float>().subspan(nth(r * width), nth(width));
      const auto d = du.span<float>().subspan(nth(r * width), nth(width));
      double along = 0;
      double mean = 0;  // u itself has none
      for (std::size_t j = 0; j < u.size(); ++j) {
        along += static_cast<double>(u[j]) * d[j];
        mean += static_cast<double>(d[j]) / static_cast<double>(width);
      }
      const double norm = length[nth(r)];
      for (std::size_t j = 0; j < u.size(); ++j) {
        dx.span<float>()[nth(r * width) + j] =
            norm < kSame ? 0 : static_cast<float>((d[j] - mean - u[j] * along) / norm);
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

  void forward(
      const Pass&, Parameters, std::span<Tensor>, Bundle& bundle, Saved& saved) const override {
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

  void weight_gradient(Stream&, const Saved&, std::span<const Gradient>) const override {}

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
    const Directions directions(stream, features.x);
    const Tensor alike = stream.allocate({rows, rows});
    matmul(stream, directions.unit, directions.unit, alike, {.transpose_b = true});
    // One-hot labels of C classes, each minus its mean: the cosine of two that differ.
    const double apart = -1 / static_cast<double>(o_.classes - 1);
    const auto y = labels.span<std::int32_t>();
    const auto s = alike.span<float>();
    const double factor = 4 * o_.share / (static_cast<double>(rows) * static_cast<double>(rows));
    for (std::int64_t at = 0; at < rows * rows; ++at) {
      const double target = y[nth(at / rows)] == y[nth(at % rows)] ? 1 : apart;
      s[nth(at)] = static_cast<float>(factor * (s[nth(at)] - target));
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
