// The built-in sparse task: rows with few numbers that are not 0, labelled by a planted vector.
//
// The j-th of a row's k numbers stands at a uniform place of the j-th of k equal parts of the
// features, and is normal with variance 1/k. The planted vector is normal with deviation 4, so that
// its products with rows are; a row's label is 1 with the probability that the logistic function of
// that product gives. All of it is a function of (seed, split, index).
#pragma once

#include "kernels/result.hpp"
#include "kernels/sparse.hpp"
#include "messages/proto.hpp"
#include "runtime/data/dataset.hpp"

#include <cstdint>
#include <memory>

namespace troupe {

class SparseData final : public Dataset {
 public:
  SparseData(const proto::Sparse& options, std::uint64_t seed);

  const SparseRows& rows(Split split) const { return split == Split::train ? train_ : test_; }

  std::int64_t size(Split split) const override { return rows(split).size(); }

  Shape sample_shape() const override { return {features_}; }

  int classes() const override { return 2; }

  /// Dense, zeros and all.
  void gather(Split split,
              std::span<const std::int64_t> indices,
              std::int64_t epoch,
              const Samples& to) const override;

 private:
  SparseRows make(Split split, std::int64_t count, std::int64_t nonzeros, std::uint64_t seed) const;

  std::int64_t features_;
  SparseRows train_;
  SparseRows test_;
};

/// Error (usage) where a row has more numbers than features, or the rows would not fit into some
/// GiB.
Result<std::shared_ptr<const Dataset>> make_sparse(const proto::Sparse& options,
                                                   std::uint64_t seed);

}  // namespace troupe
