#include "runtime/data/preparation.hpp"

#include "kernels/random.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace troupe {

HeldOut hold_out(std::int64_t rows, double share, std::uint64_t seed) {
  // Fisher & Yates, as far as the test samples go.
  const RandomStream random(seed, Purpose::dataset, name_key("held out", 8));
  std::vector<std::int64_t> order(static_cast<std::size_t>(rows));
  std::iota(order.begin(), order.end(), 0);
  const auto asked = std::llround(static_cast<double>(rows) * share);
  const std::int64_t most = std::max<std::int64_t>(0, rows - 1);
  const std::int64_t tests = std::clamp<std::int64_t>(asked, std::min<std::int64_t>(1, most), most);
  for (std::int64_t i = 0; i < tests; ++i) {
    const auto left = static_cast<std::uint64_t>(rows - i);
    const auto drawn =
        i + static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(i), left));
    std::swap(order[static_cast<std::size_t>(i)], order[static_cast<std::size_t>(drawn)]);
  }
  HeldOut parts;
  parts.test.assign(order.begin(), order.begin() + tests);
  parts.train.assign(order.begin() + tests, order.end());
  std::sort(parts.test.begin(), parts.test.end());
  std::sort(parts.train.begin(), parts.train.end());
  return parts;
}

std::vector<ColumnScale> ColumnMoments::scales() const {
  std::vector<ColumnScale> scales;
  for (const Column& c : columns_) {
    scales.push_back({c.mean, c.squares > 0 ? std::sqrt(c.count / c.squares) : 1});
  }
  return scales;
}

}  // namespace troupe
