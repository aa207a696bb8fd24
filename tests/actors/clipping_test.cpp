// By what a gradient is clipped, and the shares of tied parameters that come before.
#include "actors/clipping.hpp"
#include "messages/optimizer.hpp"
#include "messages/weights.hpp"

#include "actors/tied_shares.hpp"
#include "runtime/schemes/optimizer_step.hpp"
#include "tests/support/machines.hpp"

namespace clipping_test {

using namespace troupe;
using namespace troupe::test;

namespace {

constexpr Ref<ShardRole> kShards[] = {{10}, {11}, {12}};
constexpr Ref<OptimizerRole> kOptimizer{2};

Clipping clipping(double norm, bool globally) {
  return Clipping({.self = kShards[0],
                   .optimizer = kOptimizer,
                   .norm = norm,
                   .globally = globally,
                   .shards = {kShards[0], kShards[1], kShards[2]}});
}

Norms norms(std::int32_t chunk, std::int64_t batch, std::vector<double> squares) {
  return {kShards[chunk], {.chunk = chunk, .batch = batch}, std::move(squares)};
}

TiedPush share(std::int32_t chunk, std::int64_t batch, std::size_t slice, float value) {
  return {.from = {7},
          .stamp = {.chunk = chunk, .batch = batch},
          .sequence = 1,
          .slice = slice,
          .gradient = filled(value)};
}

}  // namespace

TEST_CASE("a norm is measured beforehand where it is all chunks', or the gradient travels",
          "[actors]") {
  for (const bool globally : {false, true}) {
    for (const bool travels : {false, true}) {
      INFO(globally << travels);
      const Clipping c = clipping(2, globally);
      CHECK(c.beforehand(travels) == (globally || travels));
      CHECK(c.in_job(travels) == (globally || travels ? 0 : 2));
      CHECK_FALSE(clipping(0, globally).beforehand(travels));
      CHECK(clipping(0, globally).in_job(travels) == 0);
    }
  }
}

TEST_CASE("the optimizer measures the gradient with the shares of other chunks", "[actors]") {
  Clipping c = clipping(2, false);
  Effects fx;
  c.measure({.batch = 4}, {filled(3)}, {{0, filled(5)}}, fx);
  const auto asked = sent_to<MeasureNorms>(kOptimizer.id, fx);
  REQUIRE(asked.size() == 1);
  CHECK(asked[0].from.id == kShards[0].id);
  CHECK(asked[0].stamp.batch == 4);
  CHECK(first_of(asked[0].gradient.at(0)) == 3);
  CHECK(first_of(asked[0].tied.at(0).second) == 5);
}

TEST_CASE("a shard that clips by its own norm has the factor at once", "[actors]") {
  Clipping c = clipping(2, false);
  Effects fx;
  const auto factor = c.measured({}, {9, 16}, fx);  // a norm of 5
  REQUIRE(factor);
  CHECK(*factor == Approx(2.0 / 5).epsilon(1e-5));
  CHECK(*factor * 5 <= 2);
  CHECK(*c.measured({}, {1, 1}, fx) == 1);  // it is short enough
  CHECK(fx.sends.empty());
}

TEST_CASE("squares of all chunks are added in layer order, whatever order they come in",
          "[actors]") {
  // No other order makes 4 of these: 1e16 swallows the 1.
  const std::vector<std::vector<double>> squares{{1e16}, {1}, {-1e16, 4}};
  for (const std::vector<std::int32_t>& order :
       std::vector<std::vector<std::int32_t>>{{0, 1, 2}, {2, 1, 0}, {1, 0, 2}, {1, 2, 0}}) {
    Clipping c = clipping(0.5, true);
    Effects fx;
    CHECK_FALSE(c.measured({.batch = 6}, {1}, fx));  // it goes to chunk 0
    CHECK(sent_to<Norms>(kShards[0].id, fx).size() == 1);
    fx.clear();
    for (const std::int32_t chunk : order) {
      CHECK(fx.sends.empty());
      c.add(norms(chunk, 6, squares[static_cast<std::size_t>(chunk)]), fx);
      if (chunk == 1) {
        c.add(norms(chunk, 7, {100}), fx);  // a mini-batch that is not complete
      }
    }
    for (const auto& shard : kShards) {
      const auto told = sent_to<Decide>(shard.id, fx);
      REQUIRE(told.size() == 1);
      CHECK(told[0].batch == 6);
      CHECK(told[0].gradient_scale == clip_factor(0.5, 4));
    }
    CHECK(clip_factor(0.5, 4) != clip_factor(0.5, 5));
  }
}

TEST_CASE("tied shares are taken once, in the order of slices and chunks", "[actors]") {
  TiedShares shares(3);
  shares.keep(share(5, 0, 1, 51));
  shares.keep(share(2, 0, 1, 21));
  CHECK_FALSE(shares.complete(0));
  shares.keep(share(2, 0, 1, 21));  // the same share
  CHECK_FALSE(shares.complete(0));
  shares.keep(share(2, 1, 0, 99));  // of the next mini-batch
  CHECK_FALSE(shares.complete(0));
  shares.keep(share(2, 0, 0, 20));
  CHECK(shares.complete(0));
  CHECK_FALSE(shares.complete(1));
  const TiedGradients taken = shares.take(0);
  REQUIRE(taken.size() == 3);
  CHECK(taken[0].first == 0);
  CHECK(first_of(taken[0].second) == 20);
  CHECK(taken[1].first == 1);
  CHECK(first_of(taken[1].second) == 21);
  CHECK(first_of(taken[2].second) == 51);
  CHECK(shares.take(0).empty());
  CHECK(first_of(shares.take(1).at(0).second) == 99);
  CHECK(TiedShares(0).complete(0));  // nobody shares a parameter
}

}  // namespace clipping_test
