#include "runtime/data/dataset.hpp"

#include "kernels/random.hpp"
#include "runtime/data/cifar.hpp"
#include "runtime/data/gather.hpp"
#include "runtime/data/glyphs.hpp"
#include "runtime/data/idx.hpp"
#include "runtime/data/sparse.hpp"
#include "runtime/data/teacher.hpp"
#include "runtime/schemes/registry.hpp"
#include "runtime/data/text.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace troupe {
namespace {

/// For objectives that look at no data: zeros, and enough of them that an epoch is long.
class NoData final : public Dataset {
 public:
  std::int64_t size(Split split) const override { return split == Split::train ? 1 << 20 : 1; }

  Shape sample_shape() const override { return {1}; }

  int classes() const override { return 0; }

  std::int64_t values() const override { return 1; }

  void gather(Split split,
              std::span<const std::int64_t> indices,
              std::int64_t /*epoch*/,
              const Samples& to) const override {
    check_gather(*this, split, indices, to);
    std::fill(to.x.begin(), to.x.end(), 0.0f);
    std::fill(to.targets.begin(), to.targets.end(), 0.0f);
  }
};

Result<std::shared_ptr<const Dataset>> open_kind(const proto::Data& data, std::uint64_t seed) {
  switch (data.kind_case()) {
    case proto::Data::kGlyphs:
      return make_glyphs(data.glyphs(), seed);
    case proto::Data::kTeacher:
      return make_teacher(data.teacher(), seed);
    case proto::Data::kMnist:
      return open_idx(kMnist, data.mnist());
    case proto::Data::kFashionMnist:
      return open_idx(kFashionMnist, data.fashion_mnist());
    case proto::Data::kCifar10:
      return open_cifar(kCifar10, data.cifar10(), seed);
    case proto::Data::kCifar100:
      return open_cifar(kCifar100, data.cifar100(), seed);
    case proto::Data::kText:
      return open_text(data.text(), seed);
    case proto::Data::kSparse:
      return make_sparse(data.sparse(), seed);
    case proto::Data::kNone:
      return std::shared_ptr<const Dataset>(std::make_shared<NoData>());
    case proto::Data::kCustom:
      return not_registered("data", data.custom().name(), {});
    case proto::Data::KIND_NOT_SET:
      break;
  }
  contract_failed("data.kind_case()",
                  "[open_dataset] the experiment is not resolved: no data set is chosen");
}

}  // namespace

Result<std::shared_ptr<const Dataset>> open_dataset(const proto::Data& data, std::uint64_t seed) {
  Result<std::shared_ptr<const Dataset>> dataset = open_kind(data, seed);
  if (!dataset) {
    return dataset;
  }
  const std::int64_t samples = (*dataset)->size(Split::train);
  if (data.batch_size() > samples) {
    return Error{ErrorKind::usage,
                 concat("data.batch_size is ",
                        data.batch_size(),
                        ", but there are only ",
                        samples,
                        " training samples")};
  }
  return dataset;
}

BatchOrder::BatchOrder(std::int64_t samples, BatchSizes sizes, std::uint64_t seed)
    : sizes_(std::move(sizes)), seed_(seed), order_(static_cast<std::size_t>(samples)) {}

std::span<const std::int64_t> BatchOrder::indices(std::int64_t batch,
                                                  std::int64_t part,
                                                  std::int64_t parts) {
  const std::int64_t size = sizes_.size(batch);
  TROUPE_CHECK(part >= 0 && part < parts && size % parts == 0,
               "[BatchOrder] part ",
               part,
               " of ",
               parts,
               " of batch ",
               batch,
               " of ",
               size,
               " samples");
  const std::int64_t wanted = epoch(batch);
  if (wanted != shuffled_epoch_) {
    // Fisher & Yates, from the order 0, 1, ... and not from the epoch before, so that an epoch's
    // order does not depend on which was asked for first.
    const RandomStream stream(seed_, Purpose::shuffle, static_cast<std::uint64_t>(wanted));
    std::iota(order_.begin(), order_.end(), 0);
    for (std::size_t i = order_.size() - 1; i > 0; --i) {
      std::swap(order_[i], order_[stream.below(i, i + 1)]);
    }
    shuffled_epoch_ = wanted;
  }
  const std::int64_t count = size / parts;
  const std::int64_t begin = sizes_.offset(batch) + part * count;
  return std::span(order_).subspan(static_cast<std::size_t>(begin),
                                   static_cast<std::size_t>(count));
}

}  // namespace troupe
