#include "runtime/data/sharding.hpp"

#include "kernels/stream.hpp"
#include "runtime/data/batch.hpp"

#include <algorithm>
#include <numeric>

namespace troupe {

std::vector<std::vector<std::int64_t>> blocks_by_label(const Dataset& data, std::int64_t blocks) {
  constexpr std::int64_t kAtOnce = 1000;  // samples; only their labels are kept
  const std::int64_t n = data.size(Split::train);
  std::vector<std::int64_t> order(static_cast<std::size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  Stream stream(Device{});
  std::vector<std::int32_t> labels;
  for (std::int64_t first = 0; first < n; first += kAtOnce) {
    const auto begin = static_cast<std::size_t>(first);
    const auto count = static_cast<std::size_t>(std::min(kAtOnce, n - first));
    const Batch batch =
        gather_batch(stream, data, Split::train, std::span(order).subspan(begin, count), 0);
    const std::span<const std::int32_t> some = batch.target.span<std::int32_t>();
    labels.insert(labels.end(), some.begin(), some.end());
  }
  std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
    return labels[static_cast<std::size_t>(a)] < labels[static_cast<std::size_t>(b)];
  });
  std::vector<std::vector<std::int64_t>> dealt;
  const std::int64_t each = n / blocks;
  for (std::int64_t block = 0; block < blocks; ++block) {
    const auto begin = order.begin() + static_cast<std::ptrdiff_t>(block * each);
    dealt.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(each));
  }
  return dealt;
}

}  // namespace troupe
