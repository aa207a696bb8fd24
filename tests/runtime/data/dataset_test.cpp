#include "runtime/data/dataset.hpp"

#include "experiment/data.pb.h"
#include "kernels/check.hpp"
#include "runtime/data/foreign.hpp"
#include "tests/runtime/data/files.hpp"
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

TEST_CASE("data that is named as what it is not is named with its own key", "[runtime][data]") {
  const TemporaryFolder folder;
  folder.write("idx/train-images-idx3-ubyte", "");
  folder.write("idx/train-labels-idx1-ubyte", "");
  folder.write("tables/a.csv", "x,y\n1,2\n");
  folder.write("classes/cat/1.png", "");
  folder.write("arrays/x.npy", "");
  CHECK(data_key(folder / "idx") == "--set data.mnist.path=" + (folder / "idx"));
  CHECK(data_key(folder / "idx/train-images-idx3-ubyte") ==
        "--set data.mnist.path=" + (folder / "idx"));
  CHECK(data_key(folder / "tables") == "--set data.csv.path=" + (folder / "tables/a.csv"));
  CHECK(data_key(folder / "classes") == "--set data.folder.path=" + (folder / "classes"));
  CHECK(data_key(folder / "arrays") == "--set data.arrays.path=" + (folder / "arrays"));
  CHECK(data_key(folder / "none").empty());
  CHECK(data_key("").empty());

  const auto refused = [](const proto::Data& data) {
    const auto opened = open_dataset(data, 1);
    REQUIRE_FALSE(opened);
    return opened.error().message;
  };
  proto::Data data;
  data.mutable_arrays()->set_path(folder / "idx");
  CHECK_THAT(refused(data),
             says("; what is there is read by --set data.mnist.path=" + (folder / "idx")));
  data.mutable_arrays()->set_path(folder / "arrays");
  CHECK_THAT(refused(data), !says("what is there"));  // the key is the right one
  folder.write("t.txt", "x y\n1 2\n3\n");
  data.mutable_csv()->set_path(folder / "t.txt");
  CHECK_THAT(refused(data), !says("what is there"));  // a table in a file of that name is one, too
  data.mutable_csv()->set_path(folder / "tables");
  CHECK_THAT(refused(data), says("--set data.csv.path=" + (folder / "tables/a.csv")));
  data.mutable_folder()->set_path(folder / "tables");
  CHECK_THAT(refused(data), says("--set data.csv.path=" + (folder / "tables/a.csv")));
}

}  // namespace dataset_test
