#include "runtime/data/stand_in.hpp"

#include "experiment/data.pb.h"
#include "kernels/wording.hpp"
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

using Made = Result<std::shared_ptr<const Dataset>>;

Made make(
    const char* name, const Shape& sample, int classes, std::int64_t train, std::int64_t limit) {
  if (limit > train) {
    return data_error("data.{}.limit is {}, but there are {} training samples", name, limit, train);
  }
  return Made(std::make_shared<StandIn>(sample, classes, train, limit));
}

Made digits(const char* name, const proto::Idx& options) {
  constexpr std::int64_t kSide = 28;
  constexpr std::int64_t kTrain = 60'000;
  const std::int64_t pool = std::max<std::int64_t>(1, options.pool());
  if (kSide % pool != 0) {
    return Made(nullptr);  // which is refused where the data is here
  }
  return make(name, Shape{kSide / pool, kSide / pool, 1}, 10, kTrain, options.limit());
}

Made photos(const char* name, const CifarFamily& family, const proto::Cifar& options) {
  constexpr std::int64_t kTrain = 50'000;
  return make(name, Shape{32, 32, 3}, family.classes, kTrain, options.limit());
}

}  // namespace

Result<std::shared_ptr<const Dataset>> stand_in_for(const proto::Data& data) {
  return data.has_mnist()           ? digits("mnist", data.mnist())
         : data.has_fashion_mnist() ? digits("fashion_mnist", data.fashion_mnist())
         : data.has_cifar10()       ? photos("cifar10", kCifar10, data.cifar10())
         : data.has_cifar100()      ? photos("cifar100", kCifar100, data.cifar100())
                                    : Made(nullptr);
}

}  // namespace troupe
