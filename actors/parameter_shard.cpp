#include "actors/parameter_shard.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace troupe {

ParameterShard::ParameterShard(Config config) : c_(std::move(config)) {
  Kept first;
  for (Tensor& slice : c_.initial) {
    first.base.push_back({.values = std::move(slice), .rate = c_.rule.rate(0)});
  }
  c_.initial.clear();
  kept_[0] = std::move(first);
}

void ParameterShard::handle(Pull m, double, Effects& fx) {
  if (!answer(m, fx)) {
    waiting_.push_back(std::move(m));
  }
}

bool ParameterShard::answer(const Pull& pull, Effects& fx) {
  if (pull.view.step > step_) {
    return false;
  }
  Weights weights;
  if (pull.pinned) {
    const auto pinned = pins_.find(pull.view.step);
    TROUPE_CHECK(
        pinned != pins_.end(), "shard ", c_.chunk, ": step ", pull.view.step, " is not pinned");
    weights = pinned->second;
  } else {
    const auto kept = kept_.find(pull.view.step);
    TROUPE_CHECK(kept != kept_.end() && !kept->second.base.empty(),
                 "shard ",
                 c_.chunk,
                 ": step ",
                 pull.view.step,
                 " is no longer kept; the newest is ",
                 step_);
    const auto& predictions = kept->second.predictions;
    if (pull.view.reach.kind == ReachKind::none) {
      weights = kept->second.base;
    } else if (pull.view.step == 0) {
      weights = kept->second.base;  // nothing has moved yet: every prediction is the slice itself
      for (Slice& slice : weights) {
        slice.reach = pull.view.reach;
      }
    } else {
      const auto found =
          std::find_if(predictions.begin(), predictions.end(), [&](const Weights& w) {
            return w.front().reach == pull.view.reach;
          });
      TROUPE_CHECK(found != predictions.end(),
                   "shard ",
                   c_.chunk,
                   ": a View that was not announced, step ",
                   pull.view.step,
                   " horizon ",
                   pull.view.reach.horizon);
      weights = *found;
    }
  }
  if (pull.slice) {
    weights = {weights.at(*pull.slice)};
  }
  fx.send(pull.from, PullReply{pull.request, c_.chunk, std::move(weights)});
  return true;
}

void ParameterShard::serve(Effects& fx) {
  std::erase_if(waiting_, [&](const Pull& pull) { return answer(pull, fx); });
}

bool ParameterShard::is_new(Ref<StageRole> from, std::uint64_t sequence) {
  std::uint64_t& last = last_sequence_[from.id];
  if (sequence <= last) {
    return false;
  }
  last = sequence;
  return true;
}

void ParameterShard::handle(TiedPush m, double, Effects& fx) {
  if (is_new(m.from, m.sequence)) {
    tied_[m.stamp.batch][{m.slice, m.stamp.chunk}] = std::move(m.gradient);
    next(fx);
  }
}

void ParameterShard::handle(Push m, double, Effects& fx) {
  if (!is_new(m.from, m.sequence)) {
    return;
  }
  TROUPE_CHECK(m.gradient.size() == kept_.begin()->second.base.size() || applying_,
               "shard ",
               c_.chunk,
               ": a push of ",
               m.gradient.size(),
               " slices");
  queue_.push_back(std::move(m));
  next(fx);
}

void ParameterShard::next(Effects& fx) {
  if (applying_ || queue_.empty() ||
      (c_.tied > 0 && tied_[queue_.front().stamp.batch].size() < c_.tied)) {
    return;
  }
  applying_ = std::move(queue_.front());
  queue_.pop_front();
  TROUPE_CHECK(applying_->stamp.batch == step_,
               "shard ",
               c_.chunk,
               ": the gradient of mini-batch ",
               applying_->stamp.batch,
               " came at step ",
               step_);
  if (c_.clip_norm > 0 && c_.clip_globally) {
    fx.send(c_.optimizer,
            Apply{.from = c_.self,
                  .stamp = applying_->stamp,
                  .base = {},
                  .gradient = std::exchange(applying_->gradient, {}),
                  .tied = take_tied(applying_->stamp.batch),
                  .forward = {},
                  .decision = {.kind = Decision::Kind::norms, .reaches = {}}});
    return;
  }
  apply(1, fx);
}

/// In the order of slices and chunks; empty where they have been taken already.
std::vector<std::pair<std::size_t, Tensor>> ParameterShard::take_tied(std::int64_t batch) {
  std::vector<std::pair<std::size_t, Tensor>> all;
  if (auto of_batch = tied_.extract(batch); !of_batch.empty()) {
    for (auto& [key, gradient] : of_batch.mapped()) {
      all.emplace_back(key.first, std::move(gradient));
    }
  }
  return all;
}

void ParameterShard::apply(double gradient_scale, Effects& fx) {
  Kept& newest = kept_.at(step_);
  // Where nobody can ask for this step again, the optimizer gets the last handle and may write in
  // place.
  const bool last_use = c_.plan.keep == 1 && !pins_.contains(step_);
  Weights base = last_use ? std::exchange(newest.base, {}) : newest.base;
  fx.send(c_.optimizer,
          Apply{.from = c_.self,
                .stamp = applying_->stamp,
                .base = std::move(base),
                .gradient = std::exchange(applying_->gradient, {}),
                .tied = take_tied(applying_->stamp.batch),
                .forward = std::exchange(applying_->forward, {}),
                .decision = {.gradient_scale = gradient_scale,
                             .clip_norm = c_.clip_globally ? 0 : c_.clip_norm,
                             .rate = c_.rule.rate(step_),
                             .next_rate = c_.rule.rate(step_ + 1),
                             .reaches = c_.plan.reaches(step_ + 1)}});
}

void ParameterShard::handle(Applied m, double now, Effects& fx) {
  TROUPE_CHECK(applying_, "shard ", c_.chunk, ": an Applied that nobody asked for");
  if (m.next.empty()) {
    applying_->gradient = std::move(m.gradient);
    fx.send(c_.shards.front(), Norms{c_.self, applying_->stamp, std::move(m.norms)});
    return;
  }
  Push push = std::move(*applying_);
  applying_.reset();
  fx.record(AppliedRecord{.stamp = push.stamp,
                          .applied_to = step_,
                          .rate = c_.rule.rate(step_),
                          .seconds = now - push.read_time,
                          .gap = m.gap,
                          .reads = std::move(push.reads)});
  ++step_;
  const auto label = [&](Weights& weights) {
    for (Slice& slice : weights) {
      slice.step = step_;
      slice.version = step_;
      slice.rate = c_.rule.rate(step_);
    }
  };
  label(m.next);
  for (Weights& prediction : m.predictions) {
    label(prediction);
  }
  kept_[step_] = {std::move(m.next), std::move(m.predictions)};
  while (static_cast<std::int64_t>(kept_.size()) > c_.plan.keep) {
    kept_.erase(kept_.begin());
  }
  if ((c_.evaluate_every > 0 && step_ % c_.evaluate_every == 0) || (end_ && step_ == *end_)) {
    pin(step_);
  }
  serve(fx);
  conclude(fx);
  next(fx);
}

void ParameterShard::handle(Norms m, double, Effects& fx) {
  auto& of_batch = norms_[m.stamp.batch];
  of_batch[m.stamp.chunk] = std::move(m.norms);
  if (of_batch.size() < c_.shards.size()) {
    return;
  }
  double sum = 0;
  for (const auto& [chunk, by_tensor] : of_batch) {
    for (const double value : by_tensor) {
      sum += value;  // in layer order, so that the sum does not depend on the cut
    }
  }
  norms_.erase(m.stamp.batch);
  const double scale = std::min(1.0, c_.clip_norm / (std::sqrt(sum) + 1e-6));
  for (const auto& shard : c_.shards) {
    fx.send(shard, Decide{m.stamp.batch, scale});
  }
}

void ParameterShard::handle(Decide m, double, Effects& fx) {
  TROUPE_CHECK(applying_ && applying_->stamp.batch == m.batch,
               "shard ",
               c_.chunk,
               ": a Decide for mini-batch ",
               m.batch);
  apply(m.gradient_scale, fx);
}

void ParameterShard::handle(End m, double, Effects& fx) {
  end_ = m.batches;
  if (step_ == *end_) {
    pin(step_);
  }
  conclude(fx);
}

void ParameterShard::pin(std::int64_t step) {
  pins_[step] = kept_.at(step).base;
}

void ParameterShard::handle(Release m, double, Effects& fx) {
  if (m.conclude) {
    conclude_at_ = m.step;
    conclude(fx);
  } else if (!end_ || m.step != *end_) {  // an end brought forward to this very step still needs it
    pins_.erase(m.step);
  }
}

void ParameterShard::conclude(Effects& fx) {
  if (!conclude_at_ || !pins_.contains(*conclude_at_)) {
    return;
  }
  fx.send(c_.director, Concluded{c_.chunk, pins_.at(*conclude_at_)});
  conclude_at_.reset();
}

std::string ParameterShard::waits_for() const {
  if (applying_) {
    return c_.clip_globally && applying_->gradient.empty()
               ? "its optimizer or the other shards' norms"
               : "its optimizer";
  }
  if (end_ && step_ >= *end_) {
    return "";
  }
  return "the gradient of mini-batch " + std::to_string(step_) +
         (queue_.empty() ? " of its stage" : " of a stage that shares a parameter");
}

}  // namespace troupe
