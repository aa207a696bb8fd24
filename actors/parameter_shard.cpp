#include "actors/parameter_shard.hpp"

#include "runtime/schemes/optimizer_step.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace troupe {
namespace {

double sum(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

}  // namespace

ParameterShard::ParameterShard(Config config) : c_(std::move(config)) {
  Kept first;
  for (Tensor& slice : c_.initial) {
    first.base.push_back({.values = std::move(slice), .rate = c_.rule.rate(0)});
  }
  c_.initial.clear();
  if (c_.link) {
    TROUPE_CHECK(c_.servers.size() == first.base.size(), "a shard needs a server for each slice");
    lines_.resize(first.base.size());
    for (std::size_t s = 0; s < lines_.size(); ++s) {
      lines_[s].merged.rate = first.base[s].rate;
      if (c_.link->travel == Travel::change) {
        lines_[s].since = first.base[s].values;
      }
    }
    seen_[0].assign(lines_.size(), lines_.front().merged);
    period_ = c_.link->push_every;
  }
  if (c_.reduction) {
    sum_.emplace(GradientSum::Config{.self = c_.self,
                                     .optimizer = c_.optimizer,
                                     .how = *c_.reduction,
                                     .replica = c_.replica,
                                     .peers = c_.peers});
  }
  kept_[0] = std::move(first);
}

double ParameterShard::rate(std::int64_t step) const {
  if (c_.shared) {  // the run's steps are the buffer's updates
    return c_.rule.rate(version_ + step - step_);
  }
  return c_.rule.rate(c_.link ? step * c_.link->rate_stride + ahead_ : step);
}

void ParameterShard::handle(Pull m, double, Effects& fx) {
  if (!answer(m, fx)) {
    waiting_.push_back(std::move(m));
  }
}

bool ParameterShard::answer(const Pull& pull, Effects& fx) {
  if (c_.link && pull.pinned) {
    pull_pinned(pull, fx);
    return true;
  }
  if (pull.pinned) {
    return answer_pinned(pull, fx);
  }
  if (pull.view.step > step_) {
    return false;
  }
  Weights weights;
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
    const auto found = std::find_if(predictions.begin(), predictions.end(), [&](const Weights& w) {
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
  reply(pull, std::move(weights), fx);
  return true;
}

bool ParameterShard::answer_pinned(const Pull& pull, Effects& fx) {
  const auto pinned = pins_.find(pull.view.step);
  if (c_.shared && pinned == pins_.end()) {
    read_shared(pull.view.step, fx);
    return false;
  }
  if (pull.view.step > step_ && !c_.shared) {
    return false;
  }
  TROUPE_CHECK(
      pinned != pins_.end(), "shard ", c_.chunk, ": step ", pull.view.step, " is not pinned");
  reply(pull, pinned->second, fx);
  return true;
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

bool ParameterShard::is_new(Ref<StageRole> from, std::uint64_t sequence) {
  std::uint64_t& last = last_sequence_[from.id];
  if (sequence <= last) {
    return false;
  }
  last = sequence;
  return true;
}

void ParameterShard::handle(TiedPush m, double now, Effects& fx) {
  if (is_new(m.from, m.sequence)) {
    tied_[m.stamp.batch][{m.slice, m.stamp.chunk}] = std::move(m.gradient);
    next(now, fx);
  }
}

void ParameterShard::handle(Push m, double now, Effects& fx) {
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
  next(now, fx);
}

void ParameterShard::next(double now, Effects& fx) {
  if (applying_ || queue_.empty() ||
      (c_.tied > 0 && tied_[queue_.front().stamp.batch].size() < c_.tied)) {
    return;
  }
  if (lacks_fragment()) {
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
  if (sum_) {
    sum_->begin(applying_->stamp,
                std::exchange(applying_->gradient, {}),
                take_tied(applying_->stamp.batch),
                fx);
    return;
  }
  decide(now, fx);
}

/// Whether what is due after the next mini-batch has yet to come (streams).
bool ParameterShard::lacks_fragment() const {
  return !queue_.empty() && std::any_of(lines_.begin(), lines_.end(), [&](const Line& line) {
    return line.due == queue_.front().stamp.batch + 1 && !line.answer;
  });
}

/// The gradient is complete but for what chunks share: by how much is it clipped?
void ParameterShard::decide(double now, Effects& fx) {
  if (c_.clip_norm > 0 && clips_beforehand()) {
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
  apply(1, now, fx);
}

/// By a factor that is known before the optimizer's job: of all chunks, or where the gradient itself
/// travels.
bool ParameterShard::clips_beforehand() const {
  return c_.clip_globally || (c_.link && (!c_.link->steps || c_.link->travel == Travel::gradient));
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

void ParameterShard::apply(double gradient_scale, double now, Effects& fx) {
  const Stamp stamp = applying_->stamp;
  const std::int64_t n = stamp.batch + 1;
  Outbound outbound;
  bool steps = true;
  if (c_.link) {
    const Link& link = *c_.link;
    note_reads(*applying_);
    factor_ = gradient_scale;
    steps = link.steps;
    const bool sends = due(0, n) || link.streams;
    outbound = {.made = sends && link.travel != Travel::weights,
                .accrue = link.travel == Travel::gradient && link.push_every > 1,
                .travel = link.travel,
                .since = {},
                .moments = sends && link.moments};
    if (outbound.made && link.travel == Travel::change) {
      for (std::size_t s = 0; s < lines_.size(); ++s) {
        outbound.since.push_back({.values = due(s, n) ? lines_[s].since : Tensor{}});
      }
    }
    if (!steps && !outbound.accrue && link.travel == Travel::gradient && c_.tied == 0) {
      exchange({}, std::exchange(applying_->gradient, {}), {}, now, fx);  // as it is
      return;
    }
  }
  Kept& newest = kept_.at(step_);
  // Where nobody can ask for this step again, the optimizer gets the last handle and may write in
  // place.
  const bool last_use = steps && c_.plan.keep == 1 && !pins_.contains(step_);
  Weights base = last_use ? std::exchange(newest.base, {}) : newest.base;
  Inbound in = c_.link ? inbound(n) : Inbound{};
  const double sender_rate = c_.link ? seen_rate_ : 0;
  fx.send(
      c_.optimizer,
      Apply{.from = c_.self,
            .stamp = stamp,
            .base = std::move(base),
            .gradient = std::exchange(applying_->gradient, {}),
            .tied = take_tied(stamp.batch),
            .forward = c_.link ? Weights{} : std::exchange(applying_->forward, {}),
            .inbound = std::move(in),
            .outbound = std::move(outbound),
            .decision = {.kind = steps ? Decision::Kind::step : Decision::Kind::collect,
                         .gradient_scale = gradient_scale,
                         .clip_norm = clips_beforehand() ? 0 : c_.clip_norm,
                         .rate = steps ? rate(step_) : sender_rate,
                         .next_rate = rate(step_ + 1),
                         .reaches = steps ? c_.plan.reaches(step_ + 1) : std::vector<Reach>{}}});
}

void ParameterShard::handle(Applied m, double now, Effects& fx) {
  TROUPE_CHECK(m.kind == Decision::Kind::read ? reading_.has_value() : applying_.has_value(),
               "shard ",
               c_.chunk,
               ": an Applied that nobody asked for");
  if (m.kind == Decision::Kind::sum || m.kind == Decision::Kind::gather) {
    if (sum_->applied(m, fx)) {
      applying_->gradient = std::move(m.gradient);
      decide(now, fx);
    }
    return;
  }
  if (m.kind == Decision::Kind::norms) {
    applying_->gradient = std::move(m.gradient);
    if (c_.clip_globally) {
      fx.send(c_.shards.front(), Norms{c_.self, applying_->stamp, std::move(m.norms)});
    } else {
      apply(clip_factor(c_.clip_norm, sum(m.norms)), now, fx);
    }
    return;
  }
  if (m.kind == Decision::Kind::read) {
    was_read(std::move(m), fx);
    return;
  }
  if (m.kind == Decision::Kind::follow) {
    Kept made = std::move(*following_);
    following_.reset();
    made.predictions = std::move(m.predictions);
    install(std::move(made), now, fx);
    return;
  }
  Kept next{std::move(m.next), std::move(m.predictions)};
  if (c_.link) {
    exchange(std::move(next), std::move(m.outgoing), std::move(m.moments), now, fx);
    return;
  }
  const std::int64_t mini_batches = !sum_             ? 1
                                    : c_.replica == 0 ? static_cast<std::int64_t>(c_.peers.size())
                                                      : 0;
  fx.record(AppliedRecord{.stamp = applying_->stamp,
                          .applied_to = c_.shared ? m.applied_to : step_,
                          .rate = rate(step_),
                          .seconds = now - applying_->read_time,
                          .gap = m.gap,
                          .reads = std::move(applying_->reads),
                          .mini_batches = mini_batches});
  version_ = m.version;
  install(std::move(next), now, fx);
  if (c_.shared) {
    came(m.applied_to + 1, fx);
  }
}

/// `made` are the weights of the next step; its mini-batch has been dealt with.
void ParameterShard::install(Kept made, double now, Effects& fx) {
  applying_.reset();
  ++step_;
  const auto label = [&](Weights& weights) {
    for (std::size_t s = 0; s < weights.size(); ++s) {
      weights[s].step = step_;
      // Of a cache of the servers' weights it is theirs.
      const bool theirs = c_.link && !c_.link->steps;
      weights[s].version = theirs ? lines_[s].merged.version : c_.shared ? version_ : step_;
      weights[s].rate = theirs ? lines_[s].merged.rate : rate(step_);
    }
  };
  label(made.base);
  for (Weights& prediction : made.predictions) {
    label(prediction);
  }
  if (c_.link) {
    for (const Line& line : lines_) {
      seen_[step_].push_back(line.merged);
    }
  }
  kept_[step_] = std::move(made);
  while (static_cast<std::int64_t>(kept_.size()) > c_.plan.keep) {
    kept_.erase(kept_.begin());
  }
  if (!c_.link && !c_.shared &&
      ((c_.evaluate_every > 0 && step_ % c_.evaluate_every == 0) || (end_ && step_ == *end_))) {
    pin(step_);
  }
  serve(fx);
  conclude(fx);
  next(now, fx);
}

// -- the Link ------------------------------------------------------------------------------------

/// Whether slice `slice` is sent after the first n mini-batches.
bool ParameterShard::due(std::size_t slice, std::int64_t n) const {
  const Link& link = *c_.link;
  return link.dynamic ? n >= lines_[slice].pushed + period_ : link.pushes(n, slice, lines_.size());
}

bool ParameterShard::waits_for_fetch(std::int64_t n) const {
  const Link& link = *c_.link;
  if (link.streams) {
    return false;
  }
  if (link.bound >= 0) {
    std::int64_t clock = lines_.front().clock;
    for (const Line& line : lines_) {
      clock = std::min(clock, line.clock);
    }
    return due(0, n) && clock < n - link.bound;
  }
  return link.steps && link.travel != Travel::gradient ? due(0, n) : n % link.fetch_every == 0;
}

/// What the mini-batch had read of the servers' versions.
void ParameterShard::note_reads(const Push& push) {
  std::int64_t oldest = push.stamp.batch;
  for (const Read& read : push.reads) {
    oldest = std::min(oldest, read.forward.step);
  }
  seen_.erase(seen_.begin(), seen_.lower_bound(oldest));  // a later mini-batch reads no older step
  const std::vector<Seen>& seen = seen_.at(oldest);
  for (std::size_t s = 0; s < lines_.size(); ++s) {
    Line& line = lines_[s];
    if (line.read_version < 0) {
      line.read_version = seen[s].version;
      line.read_time = push.read_time;
    }
    if (c_.link->of_reads()) {
      const auto version = [&](std::int64_t step, std::int64_t otherwise) {
        const auto found = seen_.find(step);
        return found != seen_.end() ? found->second[s].version : otherwise;
      };
      for (Read read : push.reads) {
        read.forward_version = version(read.forward.step, read.forward_version);
        read.backward_version = version(read.backward.step, read.backward_version);
        line.reads.push_back(read);
      }
    }
  }
  seen_rate_ = seen.front().rate;
}

/// What came from the servers and is worked in with mini-batch n.
Inbound ParameterShard::inbound(std::int64_t n) {
  Inbound in{.theirs = {},
             .mix = c_.link->mix,
             .own = {},
             .moments = std::exchange(moments_, {}),
             .reset_moments = std::exchange(reset_moments_, false)};
  const bool any = std::any_of(lines_.begin(), lines_.end(), [&](const Line& line) {
    return line.answer && (line.due == 0 || line.due == n);
  });
  if (!any || next_) {
    return in;
  }
  in.theirs.resize(lines_.size());
  in.own.resize(lines_.size());
  for (std::size_t s = 0; s < lines_.size(); ++s) {
    Line& line = lines_[s];
    if (!line.answer || (line.due != 0 && line.due != n)) {
      continue;
    }
    std::erase_if(line.own, [&](const auto& change) { return change.first <= line.answer->holds; });
    for (const auto& [sequence, change] : line.own) {
      in.own[s].push_back(change);
    }
    follow_run(s, *line.answer, n - 1);
    const Slice& theirs = line.answer->weights.front();
    in.theirs[s] = theirs.values;
    line.merged = {theirs.version, theirs.rate};
    line.clock = line.answer->clock;
    line.due = 0;
    if (c_.link->streams) {
      line.since = theirs.values;  // the next movement counts from the shared fragment
    }
    line.answer.reset();
  }
  return in;
}

/// After n of its own mini-batches the replica hears how far the run is.
void ParameterShard::follow_run(std::size_t slice, const Answer& answer, std::int64_t n) {
  if (c_.link->run_rate && slice == 0) {
    ahead_ = answer.step - n * c_.link->rate_stride;
  }
}

/// The mini-batch's own work is done: `made` are the replica's next weights (empty where only an
/// answer makes them), `outgoing` what is to be sent, by slice.
void ParameterShard::exchange(Kept made,
                              std::vector<Tensor> outgoing,
                              std::vector<std::vector<Tensor>> moments,
                              double now,
                              Effects& fx) {
  const Link& link = *c_.link;
  const std::int64_t n = applying_->stamp.batch + 1;
  const bool wait = waits_for_fetch(n);
  for (std::size_t s = 0; s < lines_.size(); ++s) {
    const bool sends = due(s, n);
    Line& line = lines_[s];
    if (sends) {
      Tensor values =
          link.travel == Travel::weights ? made.base.at(s).values : std::move(outgoing.at(s));
      if (link.eager && !wait) {
        line.own.emplace_back(line.sequence + 1, values);
      }
      upload(s,
             std::move(values),
             s < moments.size() ? std::move(moments[s]) : std::vector<Tensor>{},
             wait,
             fx);
    } else if (wait) {
      upload(s, {}, {}, true, fx);
    }
    if (sends && link.travel == Travel::change && !link.streams) {
      line.since = made.base.at(s).values;  // unless an answer replaces it
    }
  }
  if (!wait) {
    install(std::move(made), now, fx);
    return;
  }
  next_ = std::move(made);
  merge(now, fx);
}

void ParameterShard::upload(
    std::size_t slice, Tensor values, std::vector<Tensor> moments, bool wait, Effects& fx) {
  const Link& link = *c_.link;
  const Push& push = *applying_;
  const std::int64_t n = push.stamp.batch + 1;
  Line& line = lines_[slice];
  Upload m{.stamp = {c_.replica, c_.chunk, push.stamp.batch, 0},
           .sequence = ++line.sequence,
           .slice = slice,
           .answer = wait || link.streams,
           .clock = wait && link.bound >= 0 ? std::max<std::int64_t>(0, n - link.bound) : 0,
           .contribution = {},
           .read_version = link.of_reads() ? line.read_version : line.merged.version,
           .read_time = line.read_time,
           .reads = {}};
  if (values) {
    m.contribution.mini_batches = n - line.pushed;
    m.contribution.rate = link.steps ? rate(step_) : seen_rate_;
    // Elsewhere clipping is in what the replica's own optimizer has made, or in the sum.
    m.contribution.factor = link.travel == Travel::gradient && link.push_every == 1 ? factor_ : 1;
    m.contribution.values.push_back(std::move(values));
    for (Tensor& moment : moments) {
      m.contribution.values.push_back(std::move(moment));
    }
    if (link.of_reads()) {
      m.reads = std::exchange(line.reads, {});
    } else {
      m.reads.push_back({.forward_version = m.read_version, .backward_version = m.read_version});
    }
    line.pushed = n;
    line.read_version = -1;
    line.due = link.streams ? n + link.overlap : 0;
  }
  line.awaited = wait;
  fx.send(c_.servers[slice], std::move(m));
}

void ParameterShard::handle(Answer m, double now, Effects& fx) {
  if (m.pinned) {
    pinned_came(std::move(m), fx);
    return;
  }
  Line& line = lines_.at(m.slice);
  const bool open = line.awaited || line.due > 0;
  if (m.request != 0 && (m.request != line.sequence || !open)) {
    return;  // to no open question
  }
  const std::int64_t version = m.weights.front().version;
  if (m.request == 0 && (version < line.merged.version ||
                         (line.answer && version < line.answer->weights.front().version))) {
    return;  // overtaken by a newer one
  }
  if (line.awaited && m.request == 0 && line.answer && line.answer->request == line.sequence) {
    m.request = line.sequence;  // newer than the answer that is waited with
  }
  line.answer = std::move(m);
  if (next_) {
    merge(now, fx);
  } else {
    next(now, fx);
  }
}

/// The next step, once all answers that it waits for have come.
void ParameterShard::merge(double now, Effects& fx) {
  for (const Line& line : lines_) {
    if (line.awaited && (!line.answer || line.answer->request != line.sequence)) {
      return;
    }
  }
  Kept made = std::move(*next_);
  next_.reset();
  Weights own = made.base;  // and what it alone has predicted
  std::vector<Weights> predicted = std::exchange(made.predictions, {});
  made.base.resize(lines_.size());
  for (std::size_t s = 0; s < lines_.size(); ++s) {
    Line& line = lines_[s];
    Answer answer = std::move(*line.answer);
    line.answer.reset();
    line.awaited = false;
    line.own.clear();  // it holds them all: a question is answered when its own push is decided
    line.merged = {answer.weights.front().version, answer.weights.front().rate};
    line.clock = answer.clock;
    follow_run(s, answer, applying_->stamp.batch + 1);
    if (c_.link->travel == Travel::change) {
      line.since = answer.weights.front().values;
    }
    made.predictions.resize(answer.weights.size() - 1);
    for (std::size_t p = 0; p < made.predictions.size(); ++p) {
      made.predictions[p].resize(lines_.size());
      made.predictions[p][s] = answer.weights[1 + p];
    }
    made.base[s] = std::move(answer.weights.front());
    if (!answer.moments.empty()) {
      moments_.resize(lines_.size());
      moments_[s] = std::move(answer.moments);
    }
    if (answer.period > 0 && s == 0) {
      period_ = answer.period;
    }
  }
  reset_moments_ = c_.link->reset_moments;
  if (made.predictions.empty() && !predicted.empty()) {
    Inbound in;
    for (const Slice& slice : made.base) {
      in.theirs.push_back(slice.values);
    }
    following_ = std::move(made);
    fx.send(c_.optimizer,
            Apply{.from = c_.self,
                  .stamp = applying_->stamp,
                  .base = std::move(own),
                  .gradient = {},
                  .tied = {},
                  .forward = {},
                  .predictions = std::move(predicted),
                  .inbound = std::move(in),
                  .decision = {.kind = Decision::Kind::follow, .reaches = {}}});
    return;
  }
  install(std::move(made), now, fx);
}

void ParameterShard::pull_pinned(const Pull& pull, Effects& fx) {
  const std::uint64_t request = ++pinned_requests_;
  pinned_reads_[request] = {.pull = pull};
  for (std::size_t s = 0; s < lines_.size(); ++s) {
    if (!pull.slice || *pull.slice == s) {
      fx.send(c_.servers[s], PinnedPull{c_.self, request, pull.view.step});
    }
  }
}

void ParameterShard::pinned_came(Answer m, Effects& fx) {
  const auto found = pinned_reads_.find(m.request);
  if (found == pinned_reads_.end()) {
    return;
  }
  PinnedRead& read = found->second;
  read.came[m.slice] = std::move(m.weights.front());
  if (read.came.size() < (read.pull.slice ? 1 : lines_.size())) {
    return;
  }
  PullReply reply{read.pull.request, c_.chunk, {}};
  for (auto& [slice, values] : read.came) {
    reply.weights.push_back(std::move(values));
  }
  fx.send(read.pull.from, std::move(reply));
  pinned_reads_.erase(found);
}

void ParameterShard::handle(GradientPart m, double, Effects& fx) {
  TROUPE_CHECK(sum_, "shard ", c_.chunk, ": a GradientPart, and nothing is summed");
  sum_->came(std::move(m), fx);
}

// -- hogwild -------------------------------------------------------------------------------------

/// The shared buffer as it is now stands for step `step` of the run.
void ParameterShard::read_shared(std::int64_t step, Effects& fx) {
  to_read_.insert(step);
  read_next(fx);
}

void ParameterShard::read_next(Effects& fx) {
  if (to_read_.empty() || reading_) {
    return;
  }
  reading_ = *to_read_.begin();
  fx.send(c_.optimizer,
          Apply{.from = c_.self,
                .stamp = {c_.replica, c_.chunk, *reading_, 0},
                .base = {},
                .gradient = {},
                .tied = {},
                .forward = {},
                .decision = {.kind = Decision::Kind::read, .reaches = {}}});
}

void ParameterShard::was_read(Applied m, Effects& fx) {
  for (Slice& slice : m.next) {
    slice.step = *reading_;
    slice.version = m.version;
  }
  pins_[*reading_] = std::move(m.next);
  to_read_.erase(*reading_);
  reading_.reset();
  serve(fx);
  conclude(fx);
  read_next(fx);
}

/// The buffer has had so many updates, this replica's newest among them.
void ParameterShard::came(std::int64_t updates, Effects& fx) {
  const std::int64_t every = c_.evaluate_every;
  if (c_.chunk == 0 && every > 0 && updates / every > updates_ / every) {
    const std::int64_t step = updates / every * every;
    if (c_.updates == 0 || step < c_.updates) {  // at the end of all there is one anyway
      fx.send(c_.director, MarkDue{.step = step});
    }
  }
  updates_ = updates;
  finish(fx);
}

void ParameterShard::finish(Effects& fx) {
  if (end_ && step_ >= *end_ && !std::exchange(finished_, true)) {
    fx.send(c_.director, Finished{c_.replica, c_.chunk, updates_});
  }
}

// -- clipping ------------------------------------------------------------------------------------

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
  const double scale = clip_factor(c_.clip_norm, sum);
  for (const auto& shard : c_.shards) {
    fx.send(shard, Decide{m.stamp.batch, scale});
  }
}

void ParameterShard::handle(Decide m, double now, Effects& fx) {
  TROUPE_CHECK(applying_ && applying_->stamp.batch == m.batch,
               "shard ",
               c_.chunk,
               ": a Decide for mini-batch ",
               m.batch);
  apply(m.gradient_scale, now, fx);
}

void ParameterShard::handle(End m, double, Effects& fx) {
  end_ = m.batches;
  if (c_.shared) {
    finish(fx);
    return;
  }
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
  } else if (c_.shared || !end_ ||
             m.step != *end_) {  // an end brought forward to this very step still needs it
    pins_.erase(m.step);
  }
}

void ParameterShard::conclude(Effects& fx) {
  if (!conclude_at_) {
    return;
  }
  if (!pins_.contains(*conclude_at_)) {
    if (c_.shared) {
      read_shared(*conclude_at_, fx);
    }
    return;
  }
  fx.send(c_.director, Concluded{c_.chunk, 0, pins_.at(*conclude_at_)});
  conclude_at_.reset();
}

std::string ParameterShard::waits_for() const {
  if (next_) {
    return "the servers' answer after mini-batch " + std::to_string(applying_->stamp.batch);
  }
  if (sum_ && sum_->active()) {
    return sum_->waits_for();
  }
  if (applying_) {
    return c_.clip_globally && applying_->gradient.empty()
               ? "its optimizer or the other shards' norms"
               : "its optimizer";
  }
  if (end_ && step_ >= *end_) {
    return "";
  }
  if (lacks_fragment()) {
    return "the servers' answer that is due after mini-batch " + std::to_string(step_);
  }
  return "the gradient of mini-batch " + std::to_string(step_) +
         (queue_.empty() ? " of its stage" : " of a stage that shares a parameter");
}

}  // namespace troupe
