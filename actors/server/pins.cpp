#include "actors/server/pins.hpp"

#include "messages/evaluation.hpp"

#include <algorithm>
#include <utility>

namespace troupe {

void Pins::pin_due(std::int64_t before,
                   const Tensor& weights,
                   const RunPosition& run,
                   std::int64_t version,
                   Effects& fx) {
  if (c_.evaluation.every == 0) {
    return;
  }
  const std::int64_t last = run.end().value_or(run.step() + 1);
  for (std::int64_t due = c_.evaluation.next(before); due <= run.step() && due < last;
       due = c_.evaluation.next(due)) {
    pin(due, weights, run, version, fx);
  }
}

void Pins::announce(std::int64_t step, const RunPosition& run, Effects& fx) {
  const bool last = run.end() == step;
  // An end that was found on the way may lie within what a push stands for; the run has no more updates than it
  // was to have.
  const bool found = last && step != c_.updates;
  const std::int64_t reached = c_.updates > 0 ? std::min(run.step(), c_.updates) : run.step();
  fx.send(c_.director, MarkDue{.step = found ? reached : step, .last = last});
}

void Pins::pin(std::int64_t step,
               const Tensor& weights,
               const RunPosition& run,
               std::int64_t version,
               Effects& fx) {
  if (c_.announces) {
    announce(step, run, fx);
  }
  const auto pinned = pins_.try_emplace(step, weights).first;
  std::erase_if(pulls_, [&](const PinnedPull& pull) {
    const bool here = run.up_to_end(pull.step) == step;
    if (here) {
      answer(pull, pinned->second, version, fx);
    }
    return here;
  });
  conclude_when_pinned(run, version, fx);
}

void Pins::pull(const PinnedPull& pull, const RunPosition& run, std::int64_t version, Effects& fx) {
  if (const auto pinned = pins_.find(run.up_to_end(pull.step)); pinned != pins_.end()) {
    answer(pull, pinned->second, version, fx);
  } else {
    pulls_.push_back(pull);
  }
}

void Pins::answer(const PinnedPull& pull,
                  const Tensor& weights,
                  std::int64_t version,
                  Effects& fx) {
  Answer reply{.request = pull.request, .chunk = c_.chunk, .slice = c_.slice, .pinned = true};
  reply.weights.push_back({.values = weights, .step = pull.step, .version = version});
  fx.send(pull.from, std::move(reply));
}

void Pins::release(std::int64_t step, const RunPosition& run) {
  forget_released(run);  // what waited for it would be forgotten
  released_ = step;
  forget_released(run);
}

/// While the server stands at the step that was evaluated, the run may yet be ended there.
void Pins::forget_released(const RunPosition& run) {
  if (released_ && *released_ < run.step() && released_ != run.end()) {
    pins_.erase(*std::exchange(released_, std::nullopt));
  }
}

void Pins::conclude(std::int64_t step, const RunPosition& run, std::int64_t version, Effects& fx) {
  conclude_at_ = step;
  conclude_when_pinned(run, version, fx);
}

void Pins::conclude_when_pinned(const RunPosition& run, std::int64_t version, Effects& fx) {
  const auto pinned = conclude_at_ ? pins_.find(run.up_to_end(*conclude_at_)) : pins_.end();
  if (pinned == pins_.end()) {
    return;
  }
  Concluded last{.chunk = c_.chunk, .slice = c_.slice, .weights = {}};
  last.weights.push_back({.values = pinned->second, .step = *conclude_at_, .version = version});
  fx.send(c_.director, std::move(last));
  conclude_at_.reset();
}

}  // namespace troupe
