// By what a gradient is clipped, and what several senders have for one mini-batch.
#include "actors/pipeline/clipping.hpp"

#include "actors/exchange/fan_in.hpp"
#include "runtime/schemes/optimizers/optimizer_step.hpp"
#include "tests/support/machines.hpp"

namespace clipping_test {

using namespace troupe;
using namespace troupe::test;

namespace {

constexpr Ref<ShardRole> kShards[] = {{10}, {11}, {12}};

Clipping clipping(double norm, bool globally, bool gradient_travels = false) {
  return Clipping(
      {.self = kShards[0],
       .layout = {.pieces = {{0, 0, {2}, false}, {0, 2, {6}, false}}, .slice_sizes = {8}},
       .norm = norm,
       .when = globally           ? Clipping::When::together
               : gradient_travels ? Clipping::When::before
                                  : Clipping::When::in_job,
       .shards = {kShards[0], kShards[1], kShards[2]}});
}

Norms norms(std::int32_t chunk, std::int64_t batch, std::vector<double> squares) {
  return {kShards[chunk], {.chunk = chunk, .batch = batch}, std::move(squares)};
}

}  // namespace

TEST_CASE("a norm is measured beforehand where it is all chunks', or the gradient travels",
          "[actors]") {
  for (const bool globally : {false, true}) {
    for (const bool travels : {false, true}) {
      INFO(globally << travels);
      const Clipping c = clipping(2, globally, travels);
      CHECK(c.beforehand() == (globally || travels));
      CHECK(c.in_job() == (globally || travels ? 0 : 2));
      CHECK_FALSE(clipping(0, globally, travels).beforehand());
      CHECK(clipping(0, globally, travels).in_job() == 0);
    }
  }
}

TEST_CASE("a job measures the gradient with the shares of other chunks", "[actors]") {
  const Clipping c = clipping(2, false);
  Effects fx;
  c.measure({.batch = 4}, {filled(3)}, {{0, filled(5)}}, fx);
  REQUIRE(fx.runs.size() == 1);
  CHECK(fx.runs[0].stamp.batch == 4);
  Stream stream(Device{});
  const Computed made = get<Ran<Computed>>(fx.runs[0].job(stream)).made;
  CHECK(made.what == Clipping::kNorms);
  CHECK(first_of(made.tensors.at(0)) == 8);
  CHECK(made.numbers == std::vector<double>{2 * 64, 6 * 64});
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

TEST_CASE("what several senders have is complete with the last, and taken once, in their order",
          "[actors]") {
  using Key = std::pair<std::size_t, std::int32_t>;  // as of tied shares: slice and chunk
  FanIn<Key, int> shares(3);
  shares.keep(0, {1, 5}, 51);
  shares.keep(0, {1, 2}, 21);
  CHECK_FALSE(shares.complete(0));
  shares.keep(0, {1, 2}, 22);  // the same share once more
  CHECK_FALSE(shares.complete(0));
  shares.keep(1, {0, 2}, 99);  // of the next mini-batch
  CHECK_FALSE(shares.complete(0));
  CHECK_FALSE(shares.has(0, {0, 2}));
  shares.keep(0, {0, 2}, 20);
  CHECK(shares.has(0, {0, 2}));
  CHECK(shares.complete(0));
  CHECK_FALSE(shares.complete(1));
  std::vector<int> taken;
  for (const auto& [key, value] : shares.take(0)) {
    taken.push_back(value);
  }
  CHECK(taken == std::vector<int>{20, 21, 51});
  CHECK(shares.take(0).empty());
  CHECK(shares.take(1).at({0, 2}) == 99);
  CHECK(FanIn<Key, int>(0).complete(0));  // there are no senders
}

}  // namespace clipping_test
