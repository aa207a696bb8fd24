// Data in memory, and data sets of one's own.
#include "runtime/data/memory.hpp"

#include "experiment.pb.h"
#include "messages/experiment.hpp"
#include "runtime/data/registry.hpp"
#include "tests/support/catch.hpp"

#include <array>
#include <limits>

namespace memory_test {

using namespace troupe;
using troupe::test::says;

namespace {

MemoryData points() {
  return {.sample = {2},
          .classes = 3,
          .train = {.x = {1, 2, 3, 4, 5, 6}, .labels = {0, 1, 2}},
          .test = {.x = {7, 8}, .labels = {1}}};
}

std::string refusal(const MemoryData& data) {
  const auto made = memory_dataset(data);
  return made ? std::string() : made.error().message;
}

Result<std::shared_ptr<const Dataset>> opened(const std::vector<std::string>& assignments) {
  proto::Experiment e;
  REQUIRE(set_value(e, "data.batch_size=1"));
  for (const std::string& assignment : assignments) {
    REQUIRE(set_value(e, assignment));
  }
  REQUIRE(resolve(e));
  return open_dataset(e.data(), 3);
}

void register_all() {
  static const bool made = [] {
    const auto add = [](const char* name, decltype(DatasetScheme::open) open) {
      return static_cast<bool>(register_dataset(
          {.info = {.name = name,
                    .summary = "for the test",
                    .options = {{.name = "classes", .number = 3, .at_least = 0, .at_most = 9}}},
           .open = std::move(open)}));
    };
    const bool points_added = add("points", [](const DatasetContext& c) {
      MemoryData data = points();
      data.classes = static_cast<int>(c.values.number("classes"));
      data.train.x[0] = static_cast<float>(c.seed);
      return memory_dataset(data);
    });
    return points_added && add("null", [](const DatasetContext&) {
             return Result<std::shared_ptr<const Dataset>>(std::shared_ptr<const Dataset>());
           });
  }();
  REQUIRE(made);
}

}  // namespace

TEST_CASE("samples in memory are gathered by index", "[runtime][data]") {
  const auto data = memory_dataset(points());
  REQUIRE(data);
  CHECK((*data)->size(Split::train) == 3);
  CHECK((*data)->size(Split::test) == 1);
  CHECK((*data)->sample_shape() == Shape{2});
  CHECK((*data)->classes() == 3);
  std::array<float, 4> x{};
  std::array<std::int32_t, 2> labels{};
  const std::array<std::int64_t, 2> indices{2, 0};
  (*data)->gather(
      Split::train, indices, 0, {.x = x, .tokens = {}, .labels = labels, .targets = {}});
  CHECK(x == std::array<float, 4>{5, 6, 1, 2});
  CHECK(labels == std::array<std::int32_t, 2>{2, 0});
  const std::array<std::int64_t, 2> outside{0, 3};
  CHECK_THROWS_AS(
      (*data)->gather(
          Split::train, outside, 0, {.x = x, .tokens = {}, .labels = labels, .targets = {}}),
      ContractError);
}

TEST_CASE("targets in memory may be values", "[runtime][data]") {
  const auto data = memory_dataset({.sample = {1},
                                    .values = 2,
                                    .train = {.x = {1, 2}, .values = {10, 11, 20, 21}},
                                    .test = {.x = {3}, .values = {30, 31}}});
  REQUIRE(data);
  CHECK((*data)->classes() == 0);
  CHECK((*data)->values() == 2);
  std::array<float, 1> x{};
  std::array<float, 2> targets{};
  const std::array<std::int64_t, 1> second{1};
  (*data)->gather(
      Split::train, second, 0, {.x = x, .tokens = {}, .labels = {}, .targets = targets});
  CHECK(x[0] == 2);
  CHECK(targets == std::array<float, 2>{20, 21});
}

TEST_CASE("numbers that make no samples are refused", "[runtime][data]") {
  CHECK(refusal(points()).empty());
  MemoryData data = points();
  data.train.x.pop_back();
  CHECK(refusal(data) ==
        "memory_dataset: train: x has 5 numbers, which is no whole number of samples (2), or none");
  data = points();
  data.test.labels = {1, 1};
  CHECK(refusal(data) ==
        "memory_dataset: test: 1 samples need 1 labels and 0 values; there are 2 and 0");
  data = points();
  data.train.labels[1] = 3;
  CHECK(refusal(data) == "memory_dataset: train: a label is 3; expected 0 to 2");
  data = points();
  data.train.x[3] = std::numeric_limits<float>::quiet_NaN();
  CHECK(refusal(data) == "memory_dataset: train: a number is infinite or no number");
  data = points();
  data.values = 1;
  CHECK_THAT(refusal(data), says("either labels of some classes or some values"));
  data = points();
  data.sample = {};
  CHECK_THAT(refusal(data), says("the shape of a sample"));
  data = points();
  data.test = {};
  CHECK_THAT(refusal(data), says("memory_dataset: test: x has 0 numbers"));
}

TEST_CASE("a data set of one's own is opened by name with options and seed", "[runtime][data]") {
  register_all();
  const auto data = opened({"data.custom.name=points", "data.custom.values.classes=4"});
  REQUIRE(data);
  CHECK((*data)->classes() == 4);
  std::array<float, 2> x{};
  std::array<std::int32_t, 1> labels{};
  const std::array<std::int64_t, 1> first{0};
  (*data)->gather(Split::train, first, 0, {.x = x, .tokens = {}, .labels = labels, .targets = {}});
  CHECK(x[0] == 3);  // the seed
}

TEST_CASE("what a data set of one's own does wrong is refused with a sentence", "[runtime][data]") {
  register_all();
  const auto message = [](const std::vector<std::string>& assignments) {
    const auto made = opened(assignments);
    return made ? std::string() : made.error().message;
  };
  CHECK(message({"data.custom.name=null"}) ==
        "data: null has opened nothing: its function returned null");
  CHECK(message({"data.custom.name=points", "data.custom.values.classes=0"})
            .starts_with("memory_dataset: targets are either labels"));
  CHECK(message({"data.custom.name=point"})
            .starts_with("data.custom.name: \"point\" has not been registered, did you mean "
                         "\"points\"?"));
  CHECK(message({"data.custom.name=glyphs"}) ==
        "data.custom.name: glyphs is built in; choose it by data=glyphs");
  CHECK(message({"data.custom.name=points", "data.batch_size=4"}) ==
        "data.batch_size is 4, but there are only 3 training samples: --set data.batch_size=3");
  CHECK(register_dataset({.info = {.name = "x", .summary = ""}}).error().message ==
        "register_dataset: \"x\" has no function open");
}

}  // namespace memory_test
