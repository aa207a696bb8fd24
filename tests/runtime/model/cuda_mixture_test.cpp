// The layer of a mixture of experts on a GPU against itself on the CPU, forward and backward, and against itself: a repetition gives the
// same bits. Skipped where there is no GPU.
#include "runtime/model/layers.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/reference.hpp"
#include "tests/support/skip.hpp"

#include <string>
#include <vector>

namespace cuda_mixture_test {

using namespace troupe;
using namespace troupe::test;

namespace {

constexpr std::int64_t kBatch = 3;
constexpr std::int64_t kLength = 11;

struct Results {
  Values y;
  Values dx{};
  std::vector<Values> gradients{};  // by parameter, twice what the layer adds once
};

/// A part of the layer, or all of it, forward and backward.
Results passed(Stream& stream, const Layer& layer, std::int64_t width) {
  std::vector<Tensor> w;
  for (const ParameterSpec& spec : layer.parameters()) {
    w.push_back(normal_tensor(stream, 10 + w.size(), spec.shape));
  }
  const Shape shape{kBatch, kLength, width};
  Saved saved;
  Bundle bundle{{"x", normal_tensor(stream, 1, shape)}};
  layer.forward({.stream = stream}, w, {}, bundle, saved);
  Results results{.y = to_host(bundle.front().tensor)};
  Bundle error{{"x", normal_tensor(stream, 2, shape)}};
  layer.input_gradient({.stream = stream}, w, saved, error, true);
  results.dx = to_host(error.front().tensor);
  std::vector<Gradient> g;
  for (const Tensor& parameter : w) {
    g.push_back({stream.allocate(parameter.shape())});
  }
  for (const bool accumulate : {false, true}) {
    for (Gradient& one : g) {
      one.accumulate = accumulate;
    }
    layer.weight_gradient(stream, saved, g);
  }
  for (const Gradient& one : g) {
    results.gradients.push_back(to_host(one.to));
  }
  return results;
}

MixtureOptions options(std::int64_t experts, std::int64_t chosen, double capacity = 0) {
  return {.length = kLength,
          .width = 6,
          .experts = experts,
          .chosen = chosen,
          .hidden = 5,
          .capacity = capacity,
          .balance = 0.3};
}

}  // namespace

TEST_CASE("a mixture on a GPU gives what the CPU gives, and again", "[gpu]") {
  if (!gpu()) {
    return skip("no GPU");
  }
  Stream cpu{Device{}};
  Stream there{kGpu};
  std::vector<MixtureOptions> all{options(1, 1),
                                  options(4, 1),         // no sum of gates
                                  options(3, 3),         // all of them
                                  options(4, 2, 0.5),    // more than an expert has room for
                                  options(4, 2, 1.25),   // rooms that are not full
                                  options(36, 2),        // experts without a position
                                  options(36, 1, 2.5)};  // likewise, with room
  all.push_back(all[3]);
  all.back().activation = ActivationKind::gelu;
  for (const MixtureOptions& o : all) {
    for (std::int64_t rank = -1; rank < (o.experts % 2 == 0 ? 2 : 0); ++rank) {
      INFO(o.chosen << " of " << o.experts << ", capacity " << o.capacity << ", part " << rank);
      const auto whole = mixture_layer("m", o);
      std::shared_ptr<const Layer> layer = whole;
      if (rank >= 0) {
        const auto part = whole->part({.whole = {kLength, o.width}}, {.rank = rank, .parts = 2});
        REQUIRE(part);
        layer = part->layer;
      }
      const Results here = passed(cpu, *layer, o.width);
      const Results got = passed(there, *layer, o.width);
      // Sums of some six products of normal numbers, a few on top of each other; values up to a hundred.
      check_close("y", got.y, here.y, {5e-5, 1e-5});
      check_close("dx", got.dx, here.dx, {5e-4, 1e-5});
      for (std::size_t i = 0; i < here.gradients.size(); ++i) {
        check_close(layer->parameters()[i].name, got.gradients[i], here.gradients[i], {1e-3, 1e-5});
      }
      const Results again = passed(there, *layer, o.width);
      CHECK(again.y == got.y);
      CHECK(again.dx == got.dx);
      CHECK(again.gradients == got.gradients);
    }
  }
}

}  // namespace cuda_mixture_test
