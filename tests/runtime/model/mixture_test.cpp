// What a mixture of experts does beyond its formulas (golden_test.cpp): capacity, order, and what one expert comes to.
#include "kernels/matmul.hpp"
#include "runtime/model/layers.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/reference.hpp"

#include <algorithm>

namespace mixture_test {

using namespace troupe;
using namespace troupe::test;

namespace {

constexpr std::int64_t kWidth = 6;
constexpr std::int64_t kHidden = 5;

/// Of a batch of 2 sequences of 4 positions.
struct Passed {
  explicit Passed(const MixtureOptions& options) : layer(mixture_layer("m", options)) {
    std::uint64_t seed = 3;
    for (const ParameterSpec& spec : layer->parameters()) {
      weights.push_back(normal_tensor(stream, seed++, spec.shape));
    }
    Bundle bundle{{"x", x}};
    layer->forward({.stream = stream}, weights, {}, bundle, saved);
    y = bundle.front().tensor;
  }

  Stream stream{Device{}};
  std::shared_ptr<const Layer> layer;
  std::vector<Tensor> weights;
  Tensor x = normal_tensor(stream, 1, {2, 4, kWidth});
  Saved saved;
  Tensor y;
};

MixtureOptions options() {
  return {.length = 4, .width = kWidth, .experts = 1, .chosen = 1, .hidden = kHidden};
}

/// Whether all of a position's outputs are 0.
bool is_empty(const Tensor& y, std::int64_t position) {
  const Values row = to_host(y.view(position * kWidth, {kWidth}));
  return std::all_of(row.begin(), row.end(), [](double value) { return value == 0; });
}

}  // namespace

TEST_CASE("one expert is its network", "[runtime][model]") {
  Passed mixture(options());
  Stream& stream = mixture.stream;
  const Tensor rows = mixture.x.reshape({8, kWidth});
  const Tensor hidden = stream.allocate({8, 2 * kHidden});
  const Tensor inner = stream.allocate({8, kHidden});
  const Tensor y = stream.allocate({8, kWidth});
  matmul(stream, rows, mixture.weights[1], hidden, {.transpose_b = true});
  gate_forward(stream, ActivationKind::silu, hidden, inner);
  matmul(stream, inner, mixture.weights[2], y, {.transpose_b = true});
  CHECK(to_host(mixture.y) == to_host(y));
  // The balance of one expert has no gradient, and neither has its router.
  Bundle error{{"x", normal_tensor(stream, 2, {2, 4, kWidth})}};
  mixture.layer->input_gradient({.stream = stream}, mixture.weights, mixture.saved, error, true);
  std::vector<Gradient> g;
  for (const Tensor& w : mixture.weights) {
    g.push_back({stream.allocate(w.shape())});
  }
  mixture.layer->weight_gradient(stream, mixture.saved, g);
  CHECK(to_host(g[0].to) == Values(kWidth, 0.0));
  const Values once = to_host(g[1].to);
  for (Gradient& one : g) {
    one.accumulate = true;
  }
  mixture.layer->weight_gradient(stream, mixture.saved, g);
  Values twice = once;
  for (double& value : twice) {
    value *= 2;
  }
  check_close("added", to_host(g[1].to), twice, {1e-6, 1e-6});
}

TEST_CASE("an expert takes as many positions as it has room for, the first ones",
          "[runtime][model]") {
  MixtureOptions half = options();
  half.capacity = 0.5;
  const Passed mixture(half);
  const Passed all(options());
  for (std::int64_t position = 0; position < 8; ++position) {
    INFO(position);
    CHECK(is_empty(mixture.y, position) == (position >= 4));
  }
  CHECK(to_host(mixture.y.view(0, {4 * kWidth})) == to_host(all.y.view(0, {4 * kWidth})));
}

TEST_CASE("first choices come before second ones", "[runtime][model]") {
  MixtureOptions two = options();
  two.experts = 2;
  two.chosen = 2;
  two.capacity = 0.5;  // 4 of the 8 positions that each expert is chosen by
  const Passed mixture(two);
  // Whoever is nobody's first choice as often as it has room serves second choices: no row of outputs is left over.
  const Tensor& places = mixture.saved[5];
  CHECK(places.elements() == 8);
  std::int64_t first_choices = 0;
  for (const std::int32_t place : places.span<std::int32_t>()) {
    first_choices += place % 2 == 0 ? 1 : 0;
  }
  CHECK(first_choices >= 4);
}

}  // namespace mixture_test
