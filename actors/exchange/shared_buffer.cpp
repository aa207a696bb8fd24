#include "actors/exchange/shared_buffer.hpp"

#include "actors/pipeline/shard_jobs.hpp"
#include "messages/archive.hpp"
#include "messages/evaluation.hpp"
#include "messages/optimizer.hpp"
#include "messages/peers.hpp"

#include <algorithm>
#include <atomic>
#include <utility>

namespace troupe {
namespace {

constexpr const char* kRead = "read";

}  // namespace

/// The run's steps are the buffer's updates.
double SharedBufferExchange::planned_rate(std::int64_t step) const {
  return c_.rule.rate(version_ + step - host().step());
}

Exchange::Label SharedBufferExchange::label(std::size_t /*slice*/) const {
  return {version_, rate(host().step())};
}

void SharedBufferExchange::applied(Applied&& made, double now, Effects& fx) {
  AppliedRecord record = record_of(host().push(), made, made.applied_to, now);
  record.rate = rate(host().step());
  fx.record(std::move(record));
  version_ = made.version;
  host().install({std::move(made.next), std::move(made.predictions)}, now, fx);
  count(made.applied_to + 1, fx);
}

/// The buffer as it is when the optimizer gets to it stands for step `step` of the run.
void SharedBufferExchange::make_pin(std::int64_t step, Effects& fx) {
  to_read_.insert(step);
  read_next(fx);
}

void SharedBufferExchange::read_next(Effects& fx) {
  if (to_read_.empty() || reading_) {
    return;
  }
  reading_ = *to_read_.begin();
  run_computed(
      fx,
      {c_.replica, c_.chunk, *reading_, 0},
      kRead,
      [shared = c_.shared](Stream& stream) {
        SharedCopy copy = copied(stream, *shared);
        Computed made{.numbers = {static_cast<double>(copy.version)}};
        for (Slice& slice : copy.weights) {
          made.tensors.push_back(std::move(slice.values));
        }
        return made;
      },
      Lane::mark);
}

void SharedBufferExchange::job_done(Computed m, double /*now*/, Effects& fx) {
  TROUPE_CHECK(reading_, "shard ", c_.chunk, ": a copy of the buffer that nobody asked for");
  const std::int64_t step = *std::exchange(reading_, {});
  Weights weights;
  for (Tensor& values : m.tensors) {
    weights.push_back({.values = std::move(values),
                       .step = step,
                       .version = static_cast<std::int64_t>(m.numbers.at(0))});
  }
  to_read_.erase(step);
  host().pin(step, std::move(weights), fx);
  read_next(fx);
}

/// The buffer has had so many updates, this replica's newest among them.
void SharedBufferExchange::count(std::int64_t updates, Effects& fx) {
  const std::int64_t step = c_.chunk == 0 ? c_.evaluation.passed(updates_, updates) : 0;
  if (step > 0 &&
      (c_.updates == 0 || step < c_.updates)) {  // at the end of all there is one anyway
    fx.send(c_.director, MarkDue{.step = step});
  }
  updates_ = updates;
  finish(fx);
}

void SharedBufferExchange::ended(std::int64_t batches, Effects& fx) {
  end_ = batches;
  finish(fx);
}

void SharedBufferExchange::finish(Effects& fx) {
  if (end_ && host().step() >= *end_ && !std::exchange(finished_, true)) {
    // Two replicas may each have made the last update before they saw the other's. Of the two that ask here the second
    // sees both.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    const auto all = static_cast<std::int64_t>(c_.shared->slices.front()->updates());
    fx.send(c_.director, Finished{c_.replica, c_.chunk, std::max(updates_, all)});
  }
}

void SharedBufferExchange::archive(Archive& a) {
  Exchange::archive(a);
  a(version_, updates_, to_read_, reading_, end_, finished_);
}

}  // namespace troupe
