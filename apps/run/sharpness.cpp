#include "apps/run/sharpness.hpp"

#include "experiment/model.pb.h"
#include "kernels/random.hpp"
#include "kernels/wording.hpp"
#include "messages/sections.hpp"
#include "runtime/data/batch.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <numeric>
#include <string_view>
#include <utility>

namespace troupe {
namespace {

constexpr std::int64_t kRows = 500;     // samples of a batch
constexpr std::int64_t kLabels = 4096;  // of a batch, where samples have many
constexpr double kStep = 0.1;           // of the box's half side
constexpr std::int64_t kDirectionsMax = std::int64_t{1} << 30;  // elements of A

using Vector = std::vector<double>;

/// f and its gradient by all parameters in layer order.
class Objective {
 public:
  Objective(const Blueprint& b, const SharpnessOptions& options)
      : b_(b),
        split_(options.split),
        progress_(options.progress),
        chunk_(*b.chunks.front()),
        stream_(b.devices.front()),
        buffers_(starting_buffers(stream_, b, 0)) {
    const std::int64_t all = b.data->size(split_);
    const std::int64_t rows =
        std::clamp<std::int64_t>(kLabels / b.data->labels_per_sample(), 1, kRows);
    for (std::int64_t first = 0; first < all; first += rows) {
      starts_.push_back(first);
    }
    starts_.push_back(all);
    const auto passes = 1 + kAscentSteps * options.epsilons.size();
    batches_ = static_cast<double>(passes * (starts_.size() - 1));
  }

  std::int64_t samples() const { return starts_.back(); }

  /// What the blueprint starts with.
  Vector start() {
    Vector x;
    const std::vector<Tensor> slices = starting_slices(stream_, b_, 0);
    read(slices, [&](std::size_t, double value) { x.push_back(value); });
    return x;
  }

  double loss(const Vector& x) { return evaluate(x, nullptr); }

  double loss(const Vector& x, Vector& gradient) {
    gradient.assign(x.size(), 0);
    return evaluate(x, &gradient);
  }

 private:
  /// see(j, element) for each parameter's elements, without the padding.
  template <class See>
  void read(const std::vector<Tensor>& slices, const See& see) const {
    std::vector<Vector> host;
    for (const Tensor& slice : slices) {
      host.push_back(to_host(slice));
    }
    std::size_t j = 0;
    for (const ParameterLayout::Entry& entry : chunk_.layout().entries) {
      const Vector& slice = host[entry.slice];
      for (std::int64_t i = 0; i < entry.spec.shape.elements(); ++i) {
        see(j++, slice[static_cast<std::size_t>(entry.offset + i)]);
      }
    }
  }

  Weights weights(const Vector& x) {
    std::vector<ParameterValues> values;
    auto from = x.begin();
    for (const ParameterLayout::Entry& entry : chunk_.layout().entries) {
      const auto to = from + entry.spec.shape.elements();
      ParameterValues& of = values.emplace_back();
      std::transform(
          from, to, std::back_inserter(of), [](double v) { return static_cast<float>(v); });
      from = to;
    }
    Weights all;
    for (Tensor& slice : slices_of(stream_, chunk_.layout(), values)) {
      all.push_back({.values = std::move(slice)});
    }
    return all;
  }

  double evaluate(const Vector& x, Vector* gradient) {
    const Weights at = weights(x);
    const Pass pass{.stream = stream_, .seed = sections::seed(b_.experiment)};
    double sum = 0;
    for (std::size_t i = 0; i + 1 < starts_.size(); ++i) {
      std::vector<std::int64_t> indices(static_cast<std::size_t>(starts_[i + 1] - starts_[i]));
      std::iota(indices.begin(), indices.end(), starts_[i]);
      Batch batch = gather_batch(host_, *b_.data, split_, indices, 0);
      // With `keep` in both cases: only then are labels smoothed as in training.
      ForwardPass forward = chunk_.forward(
          pass, at, buffers_, {{"x", on_device(batch.x)}}, on_device(batch.target), true);
      sum += to_host(forward.result)[0];
      ++done_;
      if (gradient) {
        const double share = static_cast<double>(indices.size()) / static_cast<double>(samples());
        const InputGradient backward =
            chunk_.input_gradient(pass, at, std::move(forward.stash), {});
        read(chunk_.weight_gradient(stream_, backward.deltas, {}, 1).gradient,
             [&](std::size_t j, double g) { (*gradient)[j] += share * g; });
      }
      if (progress_) {
        progress_(done_ / batches_);
      }
    }
    return sum / static_cast<double>(samples() * b_.data->labels_per_sample());
  }

  Tensor on_device(const Tensor& x) {
    if (stream_.device() == x.device()) {
      return x;
    }
    Tensor there = stream_.allocate(x.shape(), x.type());
    copy(stream_, x, there);
    return there;
  }

  const Blueprint& b_;
  Split split_;
  const std::function<void(double)>& progress_;
  const Chunk& chunk_;
  Stream stream_;
  Stream host_{Device{}};  // samples are gathered there
  std::vector<Tensor> buffers_;
  std::vector<std::int64_t> starts_;  // of each batch, then the number of samples
  double batches_ = 0;                // of all passes, unless one of them ends early
  double done_ = 0;
};

/// z -> A z and g -> A' g; A+ x. Without directions A is the identity.
class Space {
 public:
  Space(std::int64_t n, const SharpnessOptions& options)
      : n_(static_cast<std::size_t>(n)), p_(static_cast<std::size_t>(options.subspace)) {
    if (p_ > 0) {
      a_ = random_directions(n, options.subspace, options.seed);
    }
  }

  Vector along(const Vector& z) const {
    if (p_ == 0) {
      return z;
    }
    Vector y(n_, 0);
    for (std::size_t i = 0; i < n_; ++i) {
      for (std::size_t j = 0; j < p_; ++j) {
        y[i] += static_cast<double>(a_[i * p_ + j]) * z[j];
      }
    }
    return y;
  }

  Vector back(const Vector& g) const {
    if (p_ == 0) {
      return g;
    }
    Vector y(p_, 0);
    for (std::size_t i = 0; i < n_; ++i) {
      for (std::size_t j = 0; j < p_; ++j) {
        y[j] += static_cast<double>(a_[i * p_ + j]) * g[i];
      }
    }
    return y;
  }

  /// (A'A)^-1 A' x, by Cholesky: p random directions in n >= p dimensions are independent.
  Vector coordinates(const Vector& x) const {
    if (p_ == 0) {
      return x;
    }
    Vector gram(p_ * p_, 0);
    for (std::size_t i = 0; i < n_; ++i) {
      for (std::size_t j = 0; j < p_; ++j) {
        for (std::size_t k = 0; k <= j; ++k) {
          gram[j * p_ + k] += static_cast<double>(a_[i * p_ + j]) * a_[i * p_ + k];
        }
      }
    }
    for (std::size_t j = 0; j < p_; ++j) {  // gram = L L', L in its lower half
      for (std::size_t k = 0; k <= j; ++k) {
        double sum = gram[j * p_ + k];
        for (std::size_t l = 0; l < k; ++l) {
          sum -= gram[j * p_ + l] * gram[k * p_ + l];
        }
        gram[j * p_ + k] = j == k ? std::sqrt(sum) : sum / gram[k * p_ + k];
      }
    }
    Vector z = back(x);
    for (std::size_t j = 0; j < p_; ++j) {  // L u = A' x
      for (std::size_t k = 0; k < j; ++k) {
        z[j] -= gram[j * p_ + k] * z[k];
      }
      z[j] /= gram[j * p_ + j];
    }
    for (std::size_t j = p_; j-- > 0;) {  // L' z = u
      for (std::size_t k = j + 1; k < p_; ++k) {
        z[j] -= gram[k * p_ + j] * z[k];
      }
      z[j] /= gram[j * p_ + j];
    }
    return z;
  }

 private:
  std::size_t n_;
  std::size_t p_;
  std::vector<float> a_;  // (n, p)
};

Vector sum(const Vector& x, const Vector& delta) {
  Vector y(x.size());
  std::transform(x.begin(), x.end(), delta.begin(), y.begin(), std::plus<>());
  return y;
}

/// The largest f met on the way up from x, where it is `loss` and its gradient `gradient`.
double ascend(Objective& f,
              const Space& space,
              const Vector& x,
              const Vector& half_sides,
              double loss,
              Vector gradient) {
  double best = loss;
  Vector z(half_sides.size(), 0);
  for (int step = 1; step <= kAscentSteps; ++step) {
    const Vector g = space.back(gradient);
    for (std::size_t j = 0; j < z.size(); ++j) {
      const double sign = g[j] > 0 ? 1 : g[j] < 0 ? -1 : 0;
      z[j] = std::clamp(z[j] + sign * kStep * half_sides[j], -half_sides[j], half_sides[j]);
    }
    const Vector y = sum(x, space.along(z));
    const double here = step < kAscentSteps ? f.loss(y, gradient) : f.loss(y);
    if (!std::isfinite(here)) {
      return std::numeric_limits<double>::infinity();
    }
    best = std::max(best, here);
  }
  return best;
}

}  // namespace

proto::Model without_dropout(proto::Model model) {
  if (model.has_vgg()) {
    model.mutable_vgg()->set_dropout(0);
  } else if (model.has_lstm()) {
    model.mutable_lstm()->set_dropout(0);
  } else if (model.has_gpt()) {
    model.mutable_gpt()->set_dropout(0);
  }
  if (model.has_layers()) {
    for (proto::LayerSpec& layer : *model.mutable_layers()->mutable_layer()) {
      if (layer.has_dropout()) {
        layer.mutable_dropout()->set_rate(0);  // it stays: layers are named by their number
      }
    }
  }
  return model;
}

std::vector<float> random_directions(std::int64_t n, std::int64_t p, std::uint64_t seed) {
  constexpr std::string_view kName = "sharpness";
  const RandomStream random(seed, Purpose::sample, name_key(kName.data(), kName.size()));
  std::vector<float> a(static_cast<std::size_t>(n * p));
  for (std::size_t i = 0; i < a.size(); ++i) {
    a[i] = static_cast<float>(random.normal(i));
  }
  return a;
}

Result<SharpnessReport> measure_sharpness(const Blueprint& b, const SharpnessOptions& options) {
  TROUPE_CHECK(b.chunks.size() == 1, "[measure_sharpness] ", b.chunks.size(), " chunks");
  SharpnessReport report;
  report.parameters = b.network.parameters();
  if (options.subspace > report.parameters ||
      options.subspace > kDirectionsMax / std::max<std::int64_t>(1, report.parameters)) {
    return Error{ErrorKind::usage,
                 fill_in("a subspace of {} dimensions is too much: the network has {} parameters, "
                         "and a matrix of both may have 2^30 elements",
                         options.subspace,
                         report.parameters)};
  }
  Objective f(b, options);
  report.samples = f.samples();
  const Vector x = f.start();
  Vector gradient;
  report.loss = f.loss(x, gradient);
  if (!std::isfinite(report.loss)) {
    return Error{ErrorKind::data, concat("the loss at these weights is ", report.loss)};
  }
  const Space space(static_cast<std::int64_t>(x.size()), options);
  const Vector coordinates = space.coordinates(x);
  for (const double epsilon : options.epsilons) {
    Vector half_sides;
    for (const double z : coordinates) {
      half_sides.push_back(epsilon * (std::abs(z) + 1));
    }
    const double most = ascend(f, space, x, half_sides, report.loss, gradient);
    report.at.push_back({epsilon, most, 100 * (most - report.loss) / (1 + report.loss)});
  }
  return report;
}

}  // namespace troupe
