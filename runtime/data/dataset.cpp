#include "runtime/data/dataset.hpp"

#include "experiment/data.pb.h"
#include "kernels/random.hpp"
#include "kernels/wording.hpp"
#include "runtime/data/foreign.hpp"
#include "runtime/data/gather.hpp"
#include "runtime/data/registry.hpp"

#include <algorithm>
#include <numeric>

namespace troupe {
namespace {

/// That a data set which a program of one's own has opened can be trained on.
Result<void> check_opened(const Dataset* dataset, const std::string& name) {
  const auto refuse = [&](const std::string& why) {
    return Error{ErrorKind::data, concat("data: ", name, " ", why)};
  };
  if (!dataset) {
    return refuse("has opened nothing: its function returned null");
  }
  if (dataset->size(Split::train) < 1 || dataset->size(Split::test) < 1) {
    return refuse(fill_in("has {} training and {} test samples; expected at least 1 of each",
                          dataset->size(Split::train),
                          dataset->size(Split::test)));
  }
  const Shape sample = dataset->sample_shape();
  if (sample.dimensions() == 0 || sample.elements() < 1) {
    return refuse(concat("has samples of shape ", sample, ", which hold no number"));
  }
  if (dataset->classes() < 0 || dataset->values() < 0 ||
      (dataset->classes() > 0) == (dataset->values() > 0)) {
    return refuse(fill_in("has {} classes and {} values; one of the two is 0, the other is not",
                          dataset->classes(),
                          dataset->values()));
  }
  return {};
}

}  // namespace

Result<std::shared_ptr<const Dataset>> open_dataset(const proto::Data& data,
                                                    std::uint64_t seed,
                                                    const Preparation* prepared) {
  const auto scheme = dataset_scheme(data);
  TROUPE_TRY(scheme);
  const SchemeInfo& info = (*scheme)->info;
  auto dataset = (*scheme)->open({data, OptionValues(info.options, data.custom()), seed, prepared});
  if (!dataset) {
    Error error = dataset.error();
    const std::string key = key_of_what_is_there(data);
    if (error.kind == ErrorKind::data && error.message.find(key) == error.message.npos) {
      error.message += "; what is there is read by " + key;
    }
    return error;
  }
  TROUPE_TRY(check_opened(dataset->get(), info.name));
  TROUPE_TRY(check_batch(data, (*dataset)->size(Split::train)));
  if ((*dataset)->contiguous() && !data.growth().at().empty()) {
    return Error{ErrorKind::usage,
                 "data.growth: mini-batches that grow would break off the streams of "
                 "data.text.contiguous; choose one of the two"};
  }
  return dataset;
}

std::shared_ptr<const Shuffles::Order> Shuffles::of(std::int64_t epoch) {
  const std::lock_guard lock(mutex_);
  if (auto known = orders_[epoch].lock()) {
    return known;
  }
  std::erase_if(orders_, [](const auto& order) { return order.second.expired(); });
  // Fisher & Yates, from the order 0, 1, ... and not from the epoch before, so that an epoch's
  // order does not depend on which was asked for first.
  const RandomStream stream(seed_, Purpose::shuffle, static_cast<std::uint64_t>(epoch));
  auto order = std::make_shared<Order>(static_cast<std::size_t>(samples_));
  std::iota(order->begin(), order->end(), 0);
  for (std::size_t i = order->size() - 1; i > 0; --i) {
    std::swap((*order)[i], (*order)[stream.below(i, i + 1)]);
  }
  orders_[epoch] = order;
  return order;
}

std::span<const std::int64_t> BatchOrder::indices(std::int64_t batch,
                                                  std::int64_t part,
                                                  std::int64_t parts) {
  const std::int64_t size = sizes_.size(batch);
  TROUPE_CHECK(
      part >= 0 && part < parts && size % parts == 0,
      fill_in("[BatchOrder] part {} of {} of batch {} of {} samples", part, parts, batch, size));
  const std::int64_t wanted = epoch(batch);
  if (!shuffles_) {
    next_.clear();
    for (std::int64_t i = part * (size / parts); i < (part + 1) * (size / parts); ++i) {
      next_.push_back((wanted + i) % size * batches_per_epoch() + sizes_.offset(batch) / size);
    }
    return next_;
  }
  if (wanted != shuffled_epoch_) {
    order_.reset();  // before the next is made
    order_ = shuffles_->of(wanted);
    shuffled_epoch_ = wanted;
  }
  const std::int64_t count = size / parts;
  const std::int64_t begin = sizes_.offset(batch) + part * count;
  return std::span(*order_).subspan(static_cast<std::size_t>(begin),
                                    static_cast<std::size_t>(count));
}

}  // namespace troupe
