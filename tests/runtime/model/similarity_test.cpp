// The similarity loss's gradient against finite differences of its definition, in double.
#include "runtime/model/layers.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/reference.hpp"

#include <cmath>

namespace similarity_test {

using namespace troupe;
using test::Values;

namespace {

/// Cosines of the rows of x, each minus its mean.
std::vector<Values> cosines(std::vector<Values> x) {
  for (Values& row : x) {
    double mean = 0;
    for (const double value : row) {
      mean += value / static_cast<double>(row.size());
    }
    double squares = 0;
    for (double& value : row) {
      value -= mean;
      squares += value * value;
    }
    for (double& value : row) {
      value /= std::sqrt(squares);
    }
  }
  std::vector<Values> all(x.size(), Values(x.size()));
  for (std::size_t i = 0; i < x.size(); ++i) {
    for (std::size_t j = 0; j < x.size(); ++j) {
      for (std::size_t f = 0; f < x[i].size(); ++f) {
        all[i][j] += x[i][f] * x[j][f];
      }
    }
  }
  return all;
}

/// Rows of z as samples are compared by: of an image of more than three channels their deviations.
std::vector<Values> compared(const Values& z, const Shape& shape) {
  const auto rows = static_cast<std::size_t>(shape[0]);
  const std::size_t each = z.size() / rows;
  std::vector<Values> x;
  for (std::size_t r = 0; r < rows; ++r) {
    x.emplace_back(z.begin() + static_cast<std::ptrdiff_t>(r * each),
                   z.begin() + static_cast<std::ptrdiff_t>((r + 1) * each));
    const auto channels = static_cast<std::size_t>(shape.back());
    if (shape.dimensions() != 4 || channels <= 3) {
      continue;
    }
    const auto positions = static_cast<double>(each / channels);
    Values deviations;
    for (std::size_t c = 0; c < channels; ++c) {
      double mean = 0;
      for (std::size_t i = c; i < each; i += channels) {
        mean += x[r][i] / positions;
      }
      double squares = 0;
      for (std::size_t i = c; i < each; i += channels) {
        squares += (x[r][i] - mean) * (x[r][i] - mean);
      }
      deviations.push_back(std::sqrt(squares / (positions - 1)));
    }
    x[r] = deviations;
  }
  return x;
}

/// Mean of (S(z) - S(one-hot labels))^2 over all pairs.
double similarity(const Values& z, const Shape& shape, const std::vector<std::int32_t>& labels) {
  constexpr std::size_t kClasses = 3;
  std::vector<Values> one_hot;
  for (const std::int32_t label : labels) {
    one_hot.emplace_back(kClasses);
    one_hot.back()[static_cast<std::size_t>(label)] = 1;
  }
  const std::vector<Values> got = cosines(compared(z, shape));
  const std::vector<Values> wanted = cosines(one_hot);
  double sum = 0;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    for (std::size_t j = 0; j < labels.size(); ++j) {
      sum += (got[i][j] - wanted[i][j]) * (got[i][j] - wanted[i][j]);
    }
  }
  return sum / static_cast<double>(labels.size() * labels.size());
}

const std::vector<std::int32_t> kOfSamples{0, 2, 0, 1, 2};

/// The layer's gradients by x and by what is compared, for a gradient dy of the loss.
Bundle gradients(Stream& stream, const Tensor& z, const Tensor& dy, double share) {
  const auto layer = similarity_loss_layer(
      "s", {.skip = "z", .features = z.elements() / 5, .classes = 3, .share = share});
  const Pass pass{.stream = stream};
  Bundle bundle{{"x", dy}, {kLabelsEntry, from_host(stream, kOfSamples, {5})}, {"z", z}};
  Saved saved;
  layer->forward(pass, {}, {}, bundle, saved);
  CHECK(bundle.size() == 1);
  Bundle error{{"x", dy}};
  layer->input_gradient(pass, {}, saved, error, true);
  return error;
}

}  // namespace

TEST_CASE("the similarity loss's gradient is that of its definition", "[runtime][model]") {
  Stream stream(Device{});
  constexpr double kShare = 0.75;
  constexpr double kStep = 1e-5;
  for (const Shape& shape : {Shape{5, 7}, Shape{5, 3, 2, 4}, Shape{5, 3, 2, 2}}) {
    const Tensor z = test::normal_tensor(stream, 3, shape);
    const Tensor dy = test::normal_tensor(stream, 4, {5, 3});
    const Bundle error = gradients(stream, z, dy, kShare);
    REQUIRE(error.size() == 2);
    const Values x = to_host(dy);
    const Values dx = to_host(error[0].tensor);
    for (std::size_t i = 0; i < x.size(); ++i) {
      CHECK(dx[i] == Approx((1 - kShare) * x[i]));
    }
    const Values at = to_host(z);
    const Values dz = to_host(error[1].tensor);
    CHECK(error[1].tensor.shape() == shape);
    for (std::size_t i = 0; i < at.size(); ++i) {
      Values up = at;
      Values down = at;
      up[i] += kStep;
      down[i] -= kStep;
      const double difference =
          (similarity(up, shape, kOfSamples) - similarity(down, shape, kOfSamples)) / (2 * kStep);
      CHECK(dz[i] == Approx(kShare * difference).epsilon(1e-4).margin(1e-6));
    }
  }
}

TEST_CASE("samples without variation have no direction, and no gradient", "[runtime][model]") {
  Stream stream(Device{});
  const Tensor z = test::normal_tensor(stream, 3, {5, 7});
  std::fill_n(z.span<float>().begin() + 7, 7, 2.0f);
  const Values dz =
      to_host(gradients(stream, z, test::normal_tensor(stream, 4, {5, 3}), 1)[1].tensor);
  for (std::size_t i = 0; i < dz.size(); ++i) {
    CHECK(std::isfinite(dz[i]));
    CHECK((i / 7 != 1 || dz[i] == 0));
  }
}

}  // namespace similarity_test
