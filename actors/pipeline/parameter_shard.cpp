#include "actors/pipeline/parameter_shard.hpp"

#include "kernels/wording.hpp"
#include "messages/archive.hpp"
#include "messages/archive_sized.hpp"
#include "messages/bad_sender.hpp"

namespace troupe {

ParameterShard::ParameterShard(Config config)
    : c_(std::move(config)),
      clipping_({.self = c_.self,
                 .layout = c_.layout,
                 .norm = c_.clip_norm,
                 .when = !c_.clip_with.empty()                   ? Clipping::When::together
                         : c_.exchange->facts().gradient_travels ? Clipping::When::before
                                                                 : Clipping::When::in_job,
                 .shards = c_.clip_with}),
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

// -- pulls -----------------------------------------------------------------------------------------

void ParameterShard::handle(Pull&& m, double, Effects& fx) {
  TROUPE_BELIEVE(!m.slice || *m.slice < kept_.begin()->second.base.size() || m.pinned,
                 fill_in("a pull of slice {}, which does not exist", *m.slice));
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
  if (is_pinned(step)) {
    reply(pull, pins_.at(step), fx);
    return true;
  }
  TROUPE_CHECK(step > step_ || !c_.exchange->facts().pins_steps,
               fill_in("shard {}: step {} is not pinned", c_.chunk, step));
  c_.exchange->make_pin(step, fx);
  return false;
}

/// The newest step is pinned by whoever asks for it, too: where the run ends with it, the End, which others have sent, may come
/// later than the question.
bool ParameterShard::is_pinned(std::int64_t step) {
  const auto newest = step == step_ ? kept_.find(step) : kept_.end();
  if (newest != kept_.end() && c_.exchange->facts().pins_steps && !newest->second.base.empty()) {
    pins_.try_emplace(step, newest->second.base);
  }
  return pins_.contains(step);
}

Weights ParameterShard::weights_of(const View& view) const {
  const auto kept = kept_.find(view.step);
  TROUPE_CHECK(
      kept != kept_.end() && !kept->second.base.empty(),
      fill_in("shard {}: step {} is no longer kept; the newest is {}", c_.chunk, view.step, step_));
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
  const auto found = std::ranges::find_if(
      predictions, [&](const Weights& w) { return w.front().reach == view.reach; });
  TROUPE_CHECK(found != predictions.end(),
               fill_in("shard {}: a View that was not announced, step {} horizon {}",
                       c_.chunk,
                       view.step,
                       view.reach.horizon));
  return *found;
}

void ParameterShard::reply(const Pull& pull, Weights weights, Effects& fx) {
  if (pull.slice) {
    weights = {weights.at(*pull.slice)};
  }
  fx.send(pull.from, PullReply{pull.request, c_.chunk, std::move(weights)});
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

void ParameterShard::handle(TiedPush&& m, double now, Effects& fx) {
  if (is_new(m.from, m.sequence)) {
    keep_share(std::move(m));
    next(now, fx);
  }
}

void ParameterShard::handle(Push&& m, double now, Effects& fx) {
  if (!is_new(m.from, m.sequence)) {
    return;
  }
  TROUPE_CHECK(
      m.gradient.empty() || m.gradient.size() == kept_.begin()->second.base.size() || applying_,
      fill_in("shard {}: a push of {} slices", c_.chunk, m.gradient.size()));
  enqueue(std::move(m));
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
  if (applying_ || queue_.empty() || !is_whole(queue_.front())) {
    return false;
  }
  applying_ = std::move(queue_.front());
  queue_.pop_front();
  c_.exchange->begin();
  const std::int64_t batch = applying_->stamp.batch;
  TROUPE_CHECK(
      batch == step_,
      fill_in("shard {}: the gradient of mini-batch {} came at step {}", c_.chunk, batch, step_));
  if (applying_->gradient.empty()) {  // an update that is left out: a step that moves nothing
    const StepWeights& kept = kept_.at(step_);
    c_.exchange->applied({.next = kept.base, .predictions = kept.predictions}, now, fx);
  } else if (c_.exchange->sums()) {
    c_.exchange->sum(std::exchange(applying_->gradient, {}), take_tied(), fx);
  } else {
    clip(now, fx);
  }
  return true;
}

/// Of the push that is applied, in the order of slices and chunks; empty where they have been taken already.
TiedGradients ParameterShard::take_tied() {
  TiedGradients all;
  for (auto& [key, gradient] : tied_.take(applying_->stamp.batch)) {
    all.emplace_back(key.first, std::move(gradient));
  }
  return all;
}

/// The gradient is complete but for what chunks share: by how much is it clipped?
void ParameterShard::clip(double now, Effects& fx) {
  if (clipping_.beforehand()) {
    clipping_.measure(applying_->stamp, std::exchange(applying_->gradient, {}), take_tied(), fx);
  } else {
    apply(1, now, fx);
  }
}

void ParameterShard::measured(Computed made, double now, Effects& fx) {
  TROUPE_CHECK(applying_, "shard ", c_.chunk, ": norms that nobody asked for");
  applying_->gradient = std::move(made.tensors);
  if (const auto factor = clipping_.measured(applying_->stamp, std::move(made.numbers), fx)) {
    apply(*factor, now, fx);
  }
}

void ParameterShard::handle(Decide m, double now, Effects& fx) {
  TROUPE_BELIEVE(applying_ && applying_->stamp.batch == m.batch,
                 fill_in("shard {}: a Decide for mini-batch {}", c_.chunk, m.batch));
  apply(m.gradient_scale, now, fx);
}

void ParameterShard::apply(double gradient_scale, double now, Effects& fx) {
  Apply job{.from = c_.self,
            .stamp = applying_->stamp,
            .base = {},
            .gradient = std::exchange(applying_->gradient, {}),
            .tied = take_tied(),
            .forward = std::exchange(applying_->forward, {}),
            .gradient_scale = gradient_scale,
            .clip_norm = clipping_.in_job()};
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
  const Weights theirs = std::exchange(job.base, last_use ? std::move(newest) : newest);
  for (std::size_t s = 0; s < theirs.size(); ++s) {
    job.base[s].values = theirs[s].values ? theirs[s].values : job.base[s].values;
  }
  fx.send(c_.optimizer, std::move(job));
}

void ParameterShard::handle(Applied&& m, double now, Effects& fx) {
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
  kept_[step_] = std::move(made);
  while (static_cast<std::int64_t>(kept_.size()) > c_.plan.keep) {
    kept_.erase(kept_.begin());
  }
  if (c_.exchange->facts().pins_steps && (c_.evaluation.due(step_) || (end_ && step_ == *end_))) {
    pins_[step_] = kept_.at(step_).base;
  }
  serve(fx);
  conclude(fx);
  next(now, fx);
}

void ParameterShard::handle(Ran<Computed>&& m, double now, Effects& fx) {
  if (m.made.what == Clipping::kNorms) {
    measured(std::move(m.made), now, fx);
  } else {
    c_.exchange->job_done(std::move(m.made), now, fx);
  }
}

// -- evaluations and the end -----------------------------------------------------------------------

void ParameterShard::pin(std::int64_t step, Weights weights, Effects& fx) {
  pins_[step] = std::move(weights);
  serve(fx);
  conclude(fx);
}

void ParameterShard::handle(End m, double, Effects& fx) {
  end_ = m.batches;
  c_.exchange->ended(m.batches, fx);
  if (c_.exchange->facts().pins_steps && step_ == *end_) {
    pins_[step_] = kept_.at(step_).base;
  }
  conclude(fx);
}

void ParameterShard::handle(Release m, double, Effects& fx) {
  if (m.passed_over) {
    c_.exchange->passed_over(m.step);
  } else if (m.conclude) {
    conclude_at_ = m.step;
    conclude(fx);
  } else if (!c_.exchange->facts().pins_steps || !end_ || m.step != *end_) {
    pins_.erase(m.step);  // an end brought forward to this very step would still need it
  }
}

void ParameterShard::conclude(Effects& fx) {
  if (!conclude_at_) {
    return;
  }
  if (!is_pinned(*conclude_at_)) {
    c_.exchange->make_pin(*conclude_at_, fx);
    return;
  }
  fx.send(c_.director, Concluded{c_.chunk, 0, pins_.at(*conclude_at_)});
  conclude_at_.reset();
}

Remains ParameterShard::remains() const {
  if (!c_.exchange->of_network()) {
    return {};
  }
  const Weights& kept = kept_.at(step_).base;
  const Weights newest = kept.empty() ? c_.exchange->newest() : kept;
  return newest.empty() ? Remains{} : Remains{.weights = {{c_.chunk, 0, newest}}, .buffers = {}};
}

std::string ParameterShard::waits_for() const {
  if (applying_ || !queue_.empty()) {  // else its stage's turn comes first
    if (const std::string what = c_.exchange->waits_for(); !what.empty()) {
      return what;
    }
  }
  if (applying_) {
    return clipping_.globally() && applying_->gradient.empty()
               ? "its optimizer or the other shards' norms"
               : "its optimizer";
  }
  if (end_ && step_ >= *end_) {
    return "";
  }
  return "the gradient of mini-batch " + std::to_string(step_) +
         (queue_.empty() ? " of its stage" : " of a stage that shares a parameter");
}

/// What was read may be of a file that somebody else has made. ArchiveError.
void ParameterShard::expect_sound() const {
  expect_archived(kept_.contains(step_), "the state has no weights of the newest step");
  const auto whole = [this](const Weights& weights) {
    return weights.empty() || weights.size() == slices_;
  };
  bool sound = true;
  for (const auto& [step, made] : kept_) {
    sound = sound && whole(made.base);
    for (const Weights& predicted : made.predictions) {
      sound = sound && predicted.size() == slices_;
    }
  }
  for (const auto& [step, pinned] : pins_) {
    sound = sound && pinned.size() == slices_;
  }
  expect_archived(sound, "the state has other slices than this run");
}

void ParameterShard::archive(Archive& a) {
  c_.exchange->archive(a);
  a(clipping_,
    tied_,
    step_,
    kept_,
    pins_,
    waiting_,
    queue_,
    applying_,
    last_sequence_,
    end_,
    conclude_at_);
  if (a.reading()) {
    expect_sound();
  }
}

}  // namespace troupe
