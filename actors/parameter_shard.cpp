#include "actors/parameter_shard.hpp"

#include "messages/archive.hpp"
#include "messages/bad_sender.hpp"

#include <algorithm>
#include <utility>

namespace troupe {

ParameterShard::ParameterShard(Config config)
    : c_(std::move(config)),
      clipping_({.self = c_.self,
                 .optimizer = c_.optimizer,
                 .norm = c_.clip_norm,
                 .globally = c_.clip_globally,
                 .shards = c_.shards}),
      tied_(c_.tied),
      step_(c_.returns ? -1 : 0) {
  StepWeights first;
  for (Tensor& slice : c_.initial) {
    first.base.push_back({.values = std::move(slice)});
  }
  c_.initial.clear();
  slices_ = first.base.size();
  c_.exchange->join(*this, first.base);
  for (Slice& slice : first.base) {
    slice.rate = c_.exchange->rate(0);
  }
  kept_[step_] = std::move(first);
}

void ParameterShard::handle(Rejoin m, double, Effects& fx) {
  c_.exchange->rejoin(m.batch, fx);
}

// -- pulls -----------------------------------------------------------------------------------------

void ParameterShard::handle(Pull m, double, Effects& fx) {
  TROUPE_BELIEVE(!m.slice || *m.slice < kept_.begin()->second.base.size() || m.pinned,
                 "a pull of slice ",
                 *m.slice,
                 ", which there is none of");
  if (!answer(m, fx)) {
    waiting_.push_back(std::move(m));
  }
}

bool ParameterShard::answer(const Pull& pull, Effects& fx) {
  if (pull.pinned) {
    return answer_pinned(pull, fx);
  }
  if (pull.view.step > step_) {
    return false;
  }
  reply(pull, weights_of(pull.view), fx);
  return true;
}

bool ParameterShard::answer_pinned(const Pull& pull, Effects& fx) {
  if (c_.exchange->fetch_pinned(pull, fx)) {
    return true;
  }
  const std::int64_t step = pull.view.step;
  if (const auto pinned = pins_.find(step); pinned != pins_.end()) {
    reply(pull, pinned->second, fx);
    return true;
  }
  TROUPE_CHECK(step > step_ || !c_.exchange->pins_steps(),
               "shard ",
               c_.chunk,
               ": step ",
               step,
               " is not pinned");
  c_.exchange->make_pin(step, fx);
  return false;
}

Weights ParameterShard::weights_of(const View& view) const {
  const auto kept = kept_.find(view.step);
  TROUPE_CHECK(kept != kept_.end() && !kept->second.base.empty(),
               "shard ",
               c_.chunk,
               ": step ",
               view.step,
               " is no longer kept; the newest is ",
               step_);
  if (view.reach.kind == ReachKind::none) {
    return kept->second.base;
  }
  const auto& predictions = kept->second.predictions;
  if (view.step == 0 && predictions.empty()) {  // nothing has moved yet: each is the slice itself
    Weights weights = kept->second.base;
    for (Slice& slice : weights) {
      slice.reach = view.reach;
    }
    return weights;
  }
  const auto found = std::find_if(predictions.begin(), predictions.end(), [&](const Weights& w) {
    return w.front().reach == view.reach;
  });
  TROUPE_CHECK(found != predictions.end(),
               "shard ",
               c_.chunk,
               ": a View that was not announced, step ",
               view.step,
               " horizon ",
               view.reach.horizon);
  return *found;
}

void ParameterShard::reply(const Pull& pull, Weights weights, Effects& fx) {
  if (pull.slice) {
    weights = {weights.at(*pull.slice)};
  }
  fx.send(pull.from, PullReply{pull.request, c_.chunk, std::move(weights)});
}

void ParameterShard::serve(Effects& fx) {
  std::erase_if(waiting_, [&](const Pull& pull) { return answer(pull, fx); });
}

// -- pushes ----------------------------------------------------------------------------------------

bool ParameterShard::is_new(Ref<LearnerRole> from, std::uint64_t sequence) {
  std::uint64_t& last = last_sequence_[from.id];
  if (sequence <= last) {
    return false;
  }
  last = sequence;
  return true;
}

void ParameterShard::handle(TiedPush m, double now, Effects& fx) {
  if (is_new(m.from, m.sequence)) {
    tied_.keep(std::move(m));
    next(now, fx);
  }
}

void ParameterShard::handle(Push m, double now, Effects& fx) {
  if (!is_new(m.from, m.sequence)) {
    return;
  }
  TROUPE_CHECK(
      m.gradient.empty() || m.gradient.size() == kept_.begin()->second.base.size() || applying_,
      "shard ",
      c_.chunk,
      ": a push of ",
      m.gradient.size(),
      " slices");
  queue_.push_back(std::move(m));
  next(now, fx);
}

/// Takes the next pushes, as long as nothing is in their way. A push that moves nothing is done at once, and calls this
/// again: many such may wait.
void ParameterShard::next(double now, Effects& fx) {
  if (taking_) {
    return;
  }
  taking_ = true;
  while (takes_next(now, fx)) {
  }
  taking_ = false;
}

bool ParameterShard::takes_next(double now, Effects& fx) {
  if (applying_ || queue_.empty() || !tied_.complete(queue_.front().stamp.batch) ||
      !c_.exchange->ready(queue_.front().stamp.batch)) {
    return false;
  }
  applying_ = std::move(queue_.front());
  queue_.pop_front();
  c_.exchange->begin();
  const std::int64_t batch = applying_->stamp.batch;
  TROUPE_CHECK(batch == step_,
               "shard ",
               c_.chunk,
               ": the gradient of mini-batch ",
               batch,
               " came at step ",
               step_);
  if (applying_->gradient.empty()) {  // an update that is left out: a step that moves nothing
    const StepWeights& kept = kept_.at(step_);
    c_.exchange->applied({.next = kept.base, .predictions = kept.predictions}, now, fx);
  } else if (c_.exchange->sums()) {
    c_.exchange->sum(std::exchange(applying_->gradient, {}), tied_.take(batch), fx);
  } else {
    clip(now, fx);
  }
  return true;
}

void ParameterShard::summed(std::vector<Tensor> gradient, double now, Effects& fx) {
  applying_->gradient = std::move(gradient);
  clip(now, fx);
}

/// The gradient is complete but for what chunks share: by how much is it clipped?
void ParameterShard::clip(double now, Effects& fx) {
  if (clipping_.beforehand(c_.exchange->gradient_travels())) {
    clipping_.measure(applying_->stamp,
                      std::exchange(applying_->gradient, {}),
                      tied_.take(applying_->stamp.batch),
                      fx);
  } else {
    apply(1, now, fx);
  }
}

void ParameterShard::handle(NormsMeasured m, double now, Effects& fx) {
  TROUPE_CHECK(applying_, "shard ", c_.chunk, ": a NormsMeasured that nobody asked for");
  applying_->gradient = std::move(m.gradient);
  if (const auto factor = clipping_.measured(applying_->stamp, std::move(m.norms), fx)) {
    apply(*factor, now, fx);
  }
}

void ParameterShard::handle(Norms m, double, Effects& fx) {
  clipping_.add(std::move(m), fx);
}

void ParameterShard::handle(Decide m, double now, Effects& fx) {
  TROUPE_BELIEVE(applying_ && applying_->stamp.batch == m.batch,
                 "shard ",
                 c_.chunk,
                 ": a Decide for mini-batch ",
                 m.batch);
  apply(m.gradient_scale, now, fx);
}

void ParameterShard::apply(double gradient_scale, double now, Effects& fx) {
  Apply job{.from = c_.self,
            .stamp = applying_->stamp,
            .base = {},
            .gradient = std::exchange(applying_->gradient, {}),
            .tied = tied_.take(applying_->stamp.batch),
            .forward = std::exchange(applying_->forward, {}),
            .gradient_scale = gradient_scale,
            .clip_norm = clipping_.in_job(c_.exchange->gradient_travels())};
  if (!c_.exchange->prepare(job, now, fx)) {
    return;
  }
  if (job.steps) {
    job.reaches = c_.plan.reaches(step_ + 1);
  }
  // Where nobody can ask for this step again, the optimizer gets the last handle and may write in
  // place.
  Weights& newest = kept_.at(step_).base;
  const bool last_use = job.steps && c_.plan.keep == 1 && !pins_.contains(step_);
  const Weights theirs = std::exchange(job.base, last_use ? std::exchange(newest, {}) : newest);
  for (std::size_t s = 0; s < theirs.size(); ++s) {
    job.base[s].values = theirs[s].values ? theirs[s].values : job.base[s].values;
  }
  fx.send(c_.optimizer, std::move(job));
}

void ParameterShard::handle(Applied m, double now, Effects& fx) {
  TROUPE_CHECK(applying_, "shard ", c_.chunk, ": an Applied that nobody asked for");
  c_.exchange->applied(std::move(m), now, fx);
}

/// What the exchange says of the newest step stands on each of its slices.
void ParameterShard::label(StepWeights& made) const {
  const auto mark = [&](Weights& weights) {
    for (std::size_t s = 0; s < weights.size(); ++s) {
      const Exchange::Label label = c_.exchange->label(s);
      weights[s].step = step_;
      weights[s].version = label.version;
      weights[s].rate = label.rate;
    }
  };
  mark(made.base);
  for (Weights& prediction : made.predictions) {
    mark(prediction);
  }
}

void ParameterShard::install(StepWeights made, double now, Effects& fx) {
  applying_.reset();
  ++step_;
  label(made);
  c_.exchange->installed();
  kept_[step_] = std::move(made);
  while (static_cast<std::int64_t>(kept_.size()) > c_.plan.keep) {
    kept_.erase(kept_.begin());
  }
  if (c_.exchange->pins_steps() && (c_.evaluation.due(step_) || (end_ && step_ == *end_))) {
    pins_[step_] = kept_.at(step_).base;
  }
  serve(fx);
  conclude(fx);
  next(now, fx);
}

// -- messages that are the exchange's --------------------------------------------------------------

void ParameterShard::handle(Summed m, double now, Effects& fx) {
  c_.exchange->did(std::move(m), now, fx);
}

void ParameterShard::handle(Followed m, double now, Effects& fx) {
  c_.exchange->did(std::move(m), now, fx);
}

void ParameterShard::handle(SharedRead m, double now, Effects& fx) {
  c_.exchange->did(std::move(m), now, fx);
}

void ParameterShard::handle(Ran<Computed> m, double now, Effects& fx) {
  c_.exchange->did(std::move(m.made), now, fx);
}

void ParameterShard::handle(Answer m, double now, Effects& fx) {
  c_.exchange->answered(std::move(m), now, fx);
}

void ParameterShard::handle(GradientPart m, double now, Effects& fx) {
  c_.exchange->came(std::move(m), now, fx);
}

void ParameterShard::handle(Note m, double now, Effects& fx) {
  c_.exchange->came(std::move(m), now, fx);
}

void ParameterShard::handle(Membership m, double now, Effects& fx) {
  c_.exchange->membership(m, now, fx);
}

void ParameterShard::handle(ScaleRate m, double, Effects&) {
  c_.exchange->scale_rate(m.factor);
}

}  // namespace troupe
