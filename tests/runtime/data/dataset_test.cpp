#include "runtime/data/dataset.hpp"

#include "experiment/data.pb.h"
#include "kernels/check.hpp"
#include "tests/runtime/data/samples.hpp"
#include "tests/support/catch.hpp"

#include <cstdint>
#include <vector>

namespace dataset_test {

using namespace troupe;
using namespace troupe::test;

TEST_CASE("each choice of data opens its set", "[runtime][data]") {
  proto::Data data;
  SECTION("glyphs") {
    data.mutable_glyphs();
    const auto dataset = open_dataset(data, 1);
    REQUIRE(dataset);
    CHECK((*dataset)->size(Split::train) == 60000);
    CHECK((*dataset)->size(Split::test) == 10000);
    CHECK((*dataset)->sample_shape() == Shape{28, 28, 1});
    CHECK((*dataset)->classes() == 10);
    CHECK((*dataset)->values() == 0);
  }
  SECTION("teacher") {
    data.mutable_teacher();
    const auto dataset = open_dataset(data, 1);
    REQUIRE(dataset);
    CHECK((*dataset)->size(Split::train) == 20000);
    CHECK((*dataset)->size(Split::test) == 2000);
    CHECK((*dataset)->sample_shape() == Shape{64});
    CHECK((*dataset)->classes() == 10);
  }
  SECTION("none") {
    data.mutable_none();
    const auto dataset = open_dataset(data, 1);
    REQUIRE(dataset);
    CHECK((*dataset)->size(Split::train) == 1 << 20);
    CHECK((*dataset)->size(Split::test) == 1);
    CHECK((*dataset)->sample_shape() == Shape{1});
    CHECK((*dataset)->classes() == 0);
    CHECK((*dataset)->values() == 1);
    const Gathered samples = gather(**dataset, Split::train, std::vector<std::int64_t>{5, 0});
    CHECK(samples.x == std::vector<float>{0, 0});
    CHECK(samples.targets == std::vector<float>{0, 0});
  }
}

TEST_CASE("a batch larger than the training data is the user's mistake", "[runtime][data]") {
  proto::Data data;
  data.mutable_glyphs()->set_limit(100);
  data.set_batch_size(100);
  CHECK(open_dataset(data, 1));
  data.set_batch_size(101);
  const auto dataset = open_dataset(data, 1);
  REQUIRE_FALSE(dataset);
  CHECK(dataset.error().kind == ErrorKind::usage);
  CHECK(
      dataset.error().message ==
      "data.batch_size is 101, but there are only 100 training samples: --set data.batch_size=100");
}

TEST_CASE("an experiment that is not resolved is our mistake", "[runtime][data]") {
  CHECK_THROWS_AS(open_dataset(proto::Data(), 1), ContractError);
}

TEST_CASE("gather refuses wrong spans and indices", "[runtime][data]") {
  proto::Data data;
  data.mutable_glyphs();
  const auto dataset = *open_dataset(data, 1);
  std::vector<float> x(2 * 784);
  std::vector<std::int32_t> labels(2);
  std::vector<float> targets(2);
  const auto gather_at = [&](std::vector<std::int64_t> indices) {
    dataset->gather(Split::test, indices, 0, {x, {}, labels, {}});
  };
  CHECK_NOTHROW(gather_at({0, 9999}));
  CHECK_THROWS_AS(gather_at({0}), ContractError);
  CHECK_THROWS_AS(gather_at({0, 10000}), ContractError);
  CHECK_THROWS_AS(gather_at({-1, 0}), ContractError);
  CHECK_THROWS_AS(dataset->gather(Split::test, range(0, 2), 0, {x, {}, {}, {}}), ContractError);
  CHECK_THROWS_AS(dataset->gather(Split::test, range(0, 2), 0, {x, {}, labels, targets}),
                  ContractError);
  CHECK_THROWS_AS(dataset->gather(Split::test, range(0, 2), 0, {{}, labels, labels, {}}),
                  ContractError);
}

}  // namespace dataset_test
