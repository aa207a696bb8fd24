#include "runtime/data/batch_sizes.hpp"

#include "experiment/data.pb.h"
#include "experiment/pipeline.pb.h"
#include "experiment/run.pb.h"
#include "kernels/check.hpp"
#include "kernels/wording.hpp"
#include "messages/sections.hpp"
#include "runtime/data/gather.hpp"

#include <algorithm>
#include <cmath>

namespace troupe {
namespace {

constexpr double kRounding = 1e-9;  // mini-batches: 0.6 * 2500 is 1500 of them
constexpr double kSizeMax = 1e15;   // no data set has so many samples

}  // namespace

BatchSizes::BatchSizes(std::int64_t samples, std::int64_t batch_size) : samples_(samples) {
  TROUPE_CHECK(batch_size >= 1 && batch_size <= samples,
               fill_in("[BatchSizes] batches of {} from {} samples", batch_size, samples));
  segments_.push_back({.size = batch_size});
}

void BatchSizes::grow(double epochs, std::int64_t batch_size) {
  TROUPE_CHECK(batch_size >= 1 && batch_size <= samples_,
               fill_in("[BatchSizes] batches of {} from {} samples", batch_size, samples_));
  const std::int64_t first = std::max(batches(epochs), segments_.back().first);
  const Place at = place(segments_.back(), first);
  Segment next{.first = first,
               .size = batch_size,
               .epoch = at.epoch,
               .offset = at.offset,
               .epochs = at.offset > 0 ? this->epochs(first) : static_cast<double>(at.epoch),
               .before = samples_before(first)};
  if (next.offset > 0 && head(next) == 0) {  // the rest of the epoch is too short
    ++next.epoch;
    next.offset = 0;
    next.epochs = static_cast<double>(next.epoch);
  }
  if (segments_.back().first == first) {
    segments_.back() = next;
  } else {
    segments_.push_back(next);
  }
}

const BatchSizes::Segment& BatchSizes::of(std::int64_t batch) const {
  TROUPE_CHECK(batch >= 0, "[BatchSizes] mini-batch ", batch);
  auto s = segments_.end() - 1;
  while (s->first > batch) {
    --s;
  }
  return *s;
}

/// Mini-batches that end the epoch within which the segment begins; 0 where it begins with one.
std::int64_t BatchSizes::head(const Segment& s) const {
  return s.offset > 0 ? (samples_ - s.offset) / s.size : 0;
}

BatchSizes::Place BatchSizes::place(const Segment& s, std::int64_t batch) const {
  const std::int64_t k = batch - s.first;
  const std::int64_t in_head = head(s);
  if (k < in_head) {
    return {s.epoch, s.offset + k * s.size};
  }
  const std::int64_t per_epoch = samples_ / s.size;
  return {s.epoch + (s.offset > 0 ? 1 : 0) + (k - in_head) / per_epoch,
          (k - in_head) % per_epoch * s.size};
}

std::int64_t BatchSizes::samples_before(std::int64_t batch) const {
  const Segment& s = of(batch);
  return s.before + (batch - s.first) * s.size;
}

double BatchSizes::epochs(std::int64_t batches) const {
  const Segment& s = of(batches);
  const std::int64_t k = batches - s.first;
  const std::int64_t in_head = head(s);
  const auto next = static_cast<double>(s.epoch + 1);  // where the head ends
  if (k < in_head) {
    return s.epochs + (next - s.epochs) * static_cast<double>(k) / static_cast<double>(in_head);
  }
  return (s.offset > 0 ? next : s.epochs) +
         static_cast<double>(k - in_head) / static_cast<double>(samples_ / s.size);
}

std::int64_t BatchSizes::batches(double epochs) const {
  auto s = segments_.end() - 1;
  while (s != segments_.begin() && s->epochs > epochs) {
    --s;
  }
  const std::int64_t in_head = head(*s);
  const auto next = static_cast<double>(s->epoch + 1);
  double k = 0;
  if (in_head > 0 && epochs <= next) {
    k = (epochs - s->epochs) / (next - s->epochs) * static_cast<double>(in_head);
  } else {
    k = static_cast<double>(in_head) +
        (epochs - (in_head > 0 ? next : s->epochs)) * static_cast<double>(samples_ / s->size);
  }
  k = std::clamp(std::ceil(k - kRounding), 0.0, 9007199254740992.0);
  const std::int64_t found = s->first + static_cast<std::int64_t>(k);
  return s + 1 == segments_.end() ? found : std::min(found, (s + 1)->first);
}

Result<void> check_growth(const proto::Experiment& e) {
  const proto::Growth& growth = sections::data(e).growth();
  if (!growth.at().empty() && sections::stop(e).epochs() == 0) {
    return Error{
        ErrorKind::usage,
        "data.growth: its points are shares of the run's epochs, so stop.epochs must be set"};
  }
  auto size = static_cast<double>(sections::data(e).batch_size());
  double last = 0;
  for (const double at : growth.at()) {
    size *= growth.factor();
    if (at <= last) {
      return usage_error("data.growth.at: the points must ascend, and {} follows {}", at, last);
    }
    last = at;
    if (size > kSizeMax) {
      return {};  // batch_sizes() compares it with what there is
    }
    const std::int64_t whole = std::llround(size);
    if (whole % sections::pipeline(e).micro_batches() != 0) {
      return Error{ErrorKind::usage,
                   fill_in("pipeline.micro_batches: {} does not divide the mini-batches of {} "
                           "samples that data.growth makes from {} of the run on",
                           sections::pipeline(e).micro_batches(),
                           whole,
                           at)};
    }
  }
  return {};
}

Result<void> check_batch(const proto::Data& data, std::int64_t samples) {
  if (data.batch_size() > samples) {
    return usage_error(
        "data.batch_size is {}, but there are only {} training samples: --set "
        "data.batch_size={}",
        data.batch_size(),
        samples,
        samples);
  }
  return {};
}

Result<BatchSizes> batch_sizes(const proto::Experiment& e, std::int64_t samples) {
  TROUPE_TRY(check_batch(sections::data(e), samples));
  TROUPE_TRY(check_growth(e));
  BatchSizes sizes(samples, sections::data(e).batch_size());
  const double run = sections::stop(e).epochs();
  if (run * static_cast<double>(sizes.batches_per_epoch()) > 1e12) {  // as stop.updates
    return Error{ErrorKind::usage, concat("stop.epochs: ", run, " is more than can be counted")};
  }
  auto size = static_cast<double>(sections::data(e).batch_size());
  for (const double at : sections::data(e).growth().at()) {
    size *= sections::data(e).growth().factor();
    if (std::round(size) > static_cast<double>(samples)) {
      return Error{ErrorKind::usage,
                   fill_in("data.growth: from {} of the run on a mini-batch would have {} samples, "
                           "and there are only {}",
                           at,
                           std::round(size),
                           samples)};
    }
    sizes.grow(at * run, std::llround(size));
  }
  return sizes;
}

}  // namespace troupe
