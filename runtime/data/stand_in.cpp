#include "runtime/data/stand_in.hpp"

#include "experiment.pb.h"
#include "runtime/data/cifar.hpp"
#include "runtime/data/gather.hpp"

#include <algorithm>

namespace troupe {
namespace {

class StandIn final : public Dataset {
 public:
  StandIn(Shape sample, int classes, std::int64_t train, std::int64_t limit)
      : sample_(sample), classes_(classes), train_(limit > 0 ? std::min(limit, train) : train) {}

  std::int64_t size(Split split) const override {
    constexpr std::int64_t kTest = 10'000;  // of each of these data sets
    return split == Split::train ? train_ : kTest;
  }

  Shape sample_shape() const override { return sample_; }

  int classes() const override { return classes_; }

  void gather(Split split,
              std::span<const std::int64_t> indices,
              std::int64_t /*epoch*/,
              const Samples& to) const override {
    check_gather(*this, split, indices, to);
    std::fill(to.x.begin(), to.x.end(), 0.0f);
    std::fill(to.labels.begin(), to.labels.end(), 0);
  }

 private:
  Shape sample_;
  int classes_;
  std::int64_t train_;
};

std::shared_ptr<const Dataset> digits(const proto::Idx& options) {
  constexpr std::int64_t kSide = 28;
  constexpr std::int64_t kTrain = 60'000;
  const std::int64_t pool = std::max<std::int64_t>(1, options.pool());
  if (kSide % pool != 0) {
    return nullptr;  // which is refused where the data is here
  }
  return std::make_shared<StandIn>(
      Shape{kSide / pool, kSide / pool, 1}, 10, kTrain, options.limit());
}

std::shared_ptr<const Dataset> photos(const CifarFamily& family, const proto::Cifar& options) {
  constexpr std::int64_t kTrain = 50'000;
  return std::make_shared<StandIn>(Shape{32, 32, 3}, family.classes, kTrain, options.limit());
}

}  // namespace

std::shared_ptr<const Dataset> stand_in_for(const proto::Data& data) {
  return data.has_mnist()           ? digits(data.mnist())
         : data.has_fashion_mnist() ? digits(data.fashion_mnist())
         : data.has_cifar10()       ? photos(kCifar10, data.cifar10())
         : data.has_cifar100()      ? photos(kCifar100, data.cifar100())
                                    : nullptr;
}

}  // namespace troupe
