#include "runtime/data/teacher.hpp"

#include "experiment/data.pb.h"
#include "tests/runtime/data/samples.hpp"
#include "tests/support/catch.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <thread>
#include <vector>

namespace teacher_test {

using namespace troupe;
using namespace troupe::test;

namespace {

std::shared_ptr<const Dataset> teacher(std::uint64_t seed, const proto::Teacher& options = {}) {
  return *make_teacher(options, seed);
}

proto::Teacher with_values() {
  proto::Teacher options;
  options.set_values(true);
  options.set_inputs(8);
  options.set_outputs(3);
  options.set_hidden(16);
  return options;
}

struct Moments {
  double mean;
  double deviation;
};

Moments moments(const std::vector<float>& values) {
  double sum = 0;
  double squares = 0;
  for (const float value : values) {
    sum += value;
    squares += double{value} * double{value};
  }
  const auto count = static_cast<double>(values.size());
  return {sum / count, std::sqrt(squares / count)};
}

}  // namespace

TEST_CASE("a teacher's sample is a function of seed, split and index", "[runtime][data]") {
  const auto once = teacher(1);
  const Gathered samples = gather(*once, Split::train, range(0, 300));
  CHECK(gather(*once, Split::train, range(0, 300)) == samples);
  proto::Teacher fewer;
  fewer.set_train(300);
  const auto again = teacher(1, fewer);
  gather(*again, Split::train, range(100, 200));
  CHECK(gather(*again, Split::train, range(0, 300)) == samples);

  CHECK(gather(*once, Split::test, range(0, 300)).x != samples.x);
  CHECK(gather(*teacher(2), Split::train, range(0, 300)).x != samples.x);
}

TEST_CASE("a teacher's inputs are standard normal", "[runtime][data]") {
  // 128,000 numbers: the mean's deviation is 0.0028, that of the deviation 0.002.
  const Moments m = moments(gather(*teacher(1), Split::test, range(0, 2000)).x);
  CHECK(m.mean == Approx(0).margin(0.015));
  CHECK(m.deviation == Approx(1).margin(0.01));
}

TEST_CASE("no class of a teacher is much likelier than another", "[runtime][data]") {
  const std::uint64_t seed = GENERATE(1u, 2u, 3u);
  CAPTURE(seed);
  const Gathered samples = gather(*teacher(seed), Split::test, range(0, 2000));
  for (int label = 0; label < 10; ++label) {
    const auto count = std::count(samples.labels.begin(), samples.labels.end(), label);
    CHECK(count > 100);
    CHECK(count < 400);
  }
}

TEST_CASE("a teacher's values are centred, of one scale, and answer the inputs",
          "[runtime][data]") {
  const auto dataset = teacher(1, with_values());
  CHECK(dataset->classes() == 0);
  CHECK(dataset->values() == 3);
  CHECK(dataset->sample_shape() == Shape{8});
  const Gathered samples = gather(*dataset, Split::train, range(0, 5000));
  REQUIRE(samples.targets.size() == 15000);
  const Moments m = moments(samples.targets);
  CHECK(m.mean == Approx(0).margin(0.05));
  CHECK(m.deviation == Approx(1).margin(0.1));  // the scale is that of 256 other samples
}

TEST_CASE("a teacher's label is the index of its largest value", "[runtime][data]") {
  proto::Teacher options = with_values();
  const auto values = gather(*teacher(1, options), Split::test, range(0, 500));
  options.set_values(false);
  const auto labels = gather(*teacher(1, options), Split::test, range(0, 500));
  CHECK(values.x == labels.x);
  for (std::size_t i = 0; i < 500; ++i) {
    const auto first = values.targets.begin() + static_cast<std::ptrdiff_t>(3 * i);
    CHECK(std::max_element(first, first + 3) - first == labels.labels[i]);
  }
}

TEST_CASE("threads that gather from a fresh teacher get the same as one thread",
          "[runtime][data]") {
  const auto shared = teacher(1, with_values());
  std::vector<Gathered> got(4);
  std::vector<std::thread> threads;
  for (Gathered& samples : got) {
    threads.emplace_back(
        [&samples, &shared] { samples = gather(*shared, Split::train, range(0, 500)); });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  const Gathered expected = gather(*teacher(1, with_values()), Split::train, range(0, 500));
  for (const Gathered& samples : got) {
    CHECK(samples == expected);
  }
}

TEST_CASE("a teacher that would not fit into memory is refused", "[runtime][data]") {
  constexpr std::int64_t kHuge = std::int64_t{1} << 62;
  proto::Teacher options;
  SECTION("inputs") {
    options.set_inputs(kHuge);
  }
  SECTION("hidden") {
    options.set_hidden(kHuge);
  }
  SECTION("outputs") {
    options.set_outputs(kHuge);
  }
  SECTION("train") {
    options.set_train(kHuge);
  }
  SECTION("test") {
    options.set_test(kHuge);
  }
  const auto dataset = make_teacher(options, 1);
  REQUIRE_FALSE(dataset);
  CHECK(dataset.error().kind == ErrorKind::usage);
  CHECK(dataset.error().message.find("data.teacher is too large") == 0);
}

}  // namespace teacher_test
