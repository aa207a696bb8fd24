#include "runtime/record/histogram.hpp"

#include "tests/support/catch.hpp"

namespace histogram_test {

using namespace troupe;

TEST_CASE("counts, mean, median and largest of what was seen", "[record]") {
  const Histogram seen{{0, 2}, {3, 1}, {10, 1}};
  CHECK(total(seen) == 4);
  CHECK(mean(seen) == 3.25);
  CHECK(median(seen) == 0);
  CHECK(median({{0, 1}, {3, 1}, {10, 1}}) == 3);
  CHECK(largest(seen) == 10);
}

TEST_CASE("of nothing all of them are 0", "[record]") {
  CHECK(total({}) == 0);
  CHECK(mean({}) == 0);
  CHECK(median({}) == 0);
  CHECK(largest({}) == 0);
}

TEST_CASE("merged histograms count together", "[record]") {
  Histogram all{{1, 2}};
  merge(all, {{1, 1}, {4, 5}});
  CHECK(all == Histogram{{1, 3}, {4, 5}});
}

TEST_CASE("counts that cannot be are told apart", "[record]") {
  constexpr std::int64_t most = std::int64_t{1} << 60;
  CHECK(countable({}));
  CHECK(countable({{-3, 2}, {7, most - 2}}));
  CHECK(median({{-3, 2}, {7, most - 2}}) == 7);
  CHECK_FALSE(countable({{0, -1}}));
  CHECK_FALSE(countable({{0, most + 1}}));
  CHECK_FALSE(countable({{0, most}, {1, 1}}));
}

}  // namespace histogram_test
