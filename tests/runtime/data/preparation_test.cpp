// What data of one's own goes through: held-out rows, means and deviations.
#include "runtime/data/preparation.hpp"

#include "tests/support/catch.hpp"

#include <cmath>
#include <set>

using namespace troupe;

TEST_CASE("the held-out rows are a share of all, drawn by seed", "[runtime][data]") {
  for (const std::int64_t rows : {2, 3, 10, 1000}) {
    for (const double share : {0.0001, 0.1, 0.5, 0.9}) {
      CAPTURE(rows, share);
      const HeldOut parts = hold_out(rows, share, 7);
      std::set<std::int64_t> all(parts.train.begin(), parts.train.end());
      all.insert(parts.test.begin(), parts.test.end());
      CHECK(static_cast<std::int64_t>(all.size()) == rows);
      CHECK(*all.begin() == 0);
      CHECK(*all.rbegin() == rows - 1);
      CHECK(static_cast<std::int64_t>(parts.train.size() + parts.test.size()) == rows);
      CHECK_FALSE(parts.train.empty());
      CHECK_FALSE(parts.test.empty());
      CHECK(std::abs(static_cast<double>(parts.test.size()) - static_cast<double>(rows) * share) <=
            1);
      CHECK(parts.test == hold_out(rows, share, 7).test);
    }
  }
  CHECK(hold_out(1000, 0.1, 1).test != hold_out(1000, 0.1, 2).test);
  CHECK(hold_out(1, 0.5, 1).train.size() == 1);
}

TEST_CASE("every row is held out as often as any other", "[runtime][data]") {
  constexpr int kSeeds = 4000;
  std::vector<int> times(10);
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    for (const std::int64_t row : hold_out(10, 0.3, seed).test) {
      ++times[static_cast<std::size_t>(row)];
    }
  }
  const double deviation = std::sqrt(kSeeds * 0.3 * 0.7);
  for (const int count : times) {
    CHECK(std::abs(count - kSeeds * 0.3) < 5 * deviation);
  }
}

TEST_CASE("scales make the mean 0 and the mean square 1", "[runtime][data]") {
  ColumnMoments moments(3);
  for (int i = 0; i < 1000; ++i) {
    moments.add(0, 1e9 + i);  // far from 0, where sums of squares would lose it
    moments.add(1, 0.1);
  }
  const auto scales = moments.scales();
  double sum = 0;
  double squares = 0;
  for (int i = 0; i < 1000; ++i) {
    const double x = scales[0](1e9 + i);
    sum += x;
    squares += x * x;
  }
  CHECK(std::abs(sum / 1000) < 1e-6);
  CHECK(squares / 1000 == Approx(1));
  CHECK(scales[1](0.1) == 0);  // all the same
  CHECK(scales[1](1.1) == 1.0f);
  CHECK(scales[2](5.5) == 5.5f);  // nothing was added
}
