#include "runtime/data/sparse.hpp"

#include "experiment/data.pb.h"
#include "kernels/random.hpp"
#include "kernels/wording.hpp"
#include "runtime/data/gather.hpp"

#include <algorithm>
#include <cmath>

namespace troupe {
namespace {

constexpr double kNonzerosMax = 1 << 28;  // of all rows of a split: 2 GiB
constexpr double kSignal = 4;             // deviation of the planted vector

}  // namespace

SparseData::SparseData(const proto::Sparse& options, std::uint64_t seed)
    : features_(options.features()),
      train_(make(Split::train, options.rows(), options.nonzeros(), seed)),
      test_(make(Split::test, options.test(), options.nonzeros(), seed)) {}

SparseRows SparseData::make(Split split,
                            std::int64_t count,
                            std::int64_t nonzeros,
                            std::uint64_t seed) const {
  SparseRows made{.nonzeros = nonzeros};
  made.features.reserve(static_cast<std::size_t>(count * nonzeros));
  made.values.reserve(static_cast<std::size_t>(count * nonzeros));
  made.labels.reserve(static_cast<std::size_t>(count));
  const RandomStream planted(seed, Purpose::teacher);
  const double deviation = 1 / std::sqrt(static_cast<double>(nonzeros));
  for (std::int64_t r = 0; r < count; ++r) {
    const std::uint64_t name = 2 * static_cast<std::uint64_t>(r) + (split == Split::test);
    const RandomStream random(seed, Purpose::dataset, name);
    double product = 0;
    for (std::int64_t j = 0; j < nonzeros; ++j) {
      const std::int64_t begin = j * features_ / nonzeros;
      const std::int64_t end = (j + 1) * features_ / nonzeros;
      const auto counter = 4 * static_cast<std::uint64_t>(j);
      const auto feature = static_cast<std::uint64_t>(begin) +
                           random.below(counter, static_cast<std::uint64_t>(end - begin));
      const auto value = static_cast<float>(deviation * random.normal(counter / 2 + 1));
      made.features.push_back(static_cast<std::int32_t>(feature));
      made.values.push_back(value);
      product += kSignal * planted.normal(feature) * static_cast<double>(value);
    }
    const double chance = 1 / (1 + std::exp(-product));
    made.labels.push_back(random.uniform(1) < chance);
  }
  return made;
}

void SparseData::gather(Split split,
                        std::span<const std::int64_t> indices,
                        std::int64_t /*epoch*/,
                        const Samples& to) const {
  check_gather(*this, split, indices, to);
  const SparseRows& from = rows(split);
  std::fill(to.x.begin(), to.x.end(), 0.0f);
  for (std::size_t i = 0; i < indices.size(); ++i) {
    for (std::int64_t j = indices[i] * from.nonzeros; j < (indices[i] + 1) * from.nonzeros; ++j) {
      const auto at = static_cast<std::size_t>(j);
      to.x[i * static_cast<std::size_t>(features_) + static_cast<std::size_t>(from.features[at])] =
          from.values[at];
    }
    to.labels[i] = from.labels[static_cast<std::size_t>(indices[i])];
  }
}

Result<std::shared_ptr<const Dataset>> make_sparse(const proto::Sparse& options,
                                                   std::uint64_t seed) {
  if (options.nonzeros() > options.features()) {
    return usage_error("data.sparse.nonzeros: {} is more than data.sparse.features {}",
                       options.nonzeros(),
                       options.features());
  }
  const double nonzeros = static_cast<double>(std::max(options.rows(), options.test())) *
                          static_cast<double>(options.nonzeros());
  if (nonzeros > kNonzerosMax) {
    return usage_error(
        "data.sparse is too large: its rows would have {} numbers, and at most {} are kept",
        nonzeros,
        kNonzerosMax);
  }
  return std::shared_ptr<const Dataset>(std::make_shared<SparseData>(options, seed));
}

}  // namespace troupe
