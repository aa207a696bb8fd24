#include "actors/stage.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace troupe {

Stage::Stage(Config config) : c_(std::move(config)), buffers_(std::move(c_.buffers)) {
  for (std::size_t chunk = 0; chunk < c_.chunks.size(); ++chunk) {
    const auto index = static_cast<std::int32_t>(chunk);
    if (c_.schedule->stage_of(index) == c_.stage) {
      ++chunks_here_;
      buffers_.try_emplace(index);
      forwards_done_[index] = 0;
    }
  }
}

void Stage::handle(Start, double now, Effects& fx) {
  advance(now, fx);
}

void Stage::handle(Activation m, double now, Effects& fx) {
  inputs_[{m.stamp.chunk, m.stamp.batch, m.stamp.micro_batch}] = std::move(m.bundle);
  advance(now, fx);
}

void Stage::handle(Labels m, double now, Effects& fx) {
  labels_[{m.stamp.chunk, m.stamp.batch, m.stamp.micro_batch}] = std::move(m.labels);
  advance(now, fx);
}

void Stage::handle(ErrorSignal m, double now, Effects& fx) {
  errors_[{m.stamp.chunk, m.stamp.batch, m.stamp.micro_batch}] = std::move(m.bundle);
  advance(now, fx);
}

void Stage::handle(End m, double now, Effects& fx) {
  end_ = m.batches;
  tell_wait(now, fx);  // it may have nothing left to wait for
  note_finished(fx);
  advance(now, fx);
}

void Stage::handle(PullReply m, double now, Effects& fx) {
  if (mark_question_ && m.request == mark_question_->request) {
    MarkWeights& held = mark_weights_[mark_question_->chunk];
    mark_question_.reset();
    std::move(m.weights.begin(), m.weights.end(), std::back_inserter(held.weights));
    mark(now, fx);
  } else if (const auto asked = std::find_if(
                 pulling_.begin(),
                 pulling_.end(),
                 [&](const Question& question) { return question.request == m.request; });
             asked != pulling_.end()) {
    const Question question = *asked;
    TROUPE_CHECK(m.weights.front().step == question.view.step &&
                     m.weights.front().reach == question.view.reach,
                 "stage ",
                 c_.stage,
                 " asked for step ",
                 question.view.step,
                 " of chunk ",
                 m.chunk,
                 " and got step ",
                 m.weights.front().step);
    pulling_.erase(asked);
    held_[{question.chunk, question.part}] = {question.view, std::move(m.weights)};
    advance(now, fx);
  }  // else: an answer to no open question
}

void Stage::pull(const Question& question, bool pinned, Effects& fx) {
  const std::vector<BorrowedSlice>& borrowed = chunk(question.chunk).borrowed();
  Pull pull{.from = c_.self, .request = question.request, .view = question.view, .pinned = pinned};
  std::int32_t owner = question.chunk;
  if (question.part > 0) {
    owner = borrowed[question.part - 1].owner;
    pull.slice = borrowed[question.part - 1].slice;
  }
  fx.send(shard_of(owner), std::move(pull));
}

/// The weights of `view`, or nothing while they are on their way.
const Weights* Stage::weights_for(std::int32_t chunk,
                                  std::size_t part,
                                  const View& view,
                                  Effects& fx) {
  if (const auto held = held_.find({chunk, part});
      held != held_.end() && held->second.view == view) {
    return &held->second.weights;
  }
  const bool asked = std::any_of(pulling_.begin(), pulling_.end(), [&](const Question& question) {
    return question.chunk == chunk && question.part == part;
  });
  if (!asked) {
    ask(chunk, part, view, fx);
  }
  return nullptr;
}

void Stage::ask(std::int32_t chunk, std::size_t part, const View& view, Effects& fx) {
  held_.erase({chunk, part});
  pulling_.push_back({chunk, part, view, ++request_});
  pull(pulling_.back(), false, fx);
}

/// Of the tied parameters that the forward `a` has just read, the slices that the next forward of its
/// chunk will read. Their shard is on another stage's thread: asked only when they are needed, it
/// would answer behind that stage's next job, and the two stages would take turns.
void Stage::ask_ahead(const Action& a, Effects& fx) {
  const std::size_t borrowed = chunk(a.chunk).borrowed().size();
  if (borrowed == 0) {
    return;
  }
  const Sequence& sequence = c_.schedule->stages[static_cast<std::size_t>(c_.stage)];
  Action next;
  std::uint64_t at = pc_;
  do {
    next = sequence.at(++at);
  } while (next.act != Act::forward || next.chunk != a.chunk);
  const bool over = end_ && next.batch >= *end_;
  for (std::size_t i = 0; i < borrowed; ++i) {
    if (over) {
      held_.erase({a.chunk, i + 1});
    } else if (const View view = borrowed_view(next, i); view != borrowed_view(a, i)) {
      ask(a.chunk, i + 1, view, fx);
    }
  }
}

/// A tied parameter is read as its owner reads it for the same micro-batch, so that all its readers
/// see one version.
View Stage::borrowed_view(const Action& a, std::size_t borrowed) const {
  return c_.view->forward(
      c_.schedule->forward_of(chunk(a.chunk).borrowed()[borrowed].owner, a.batch, a.micro_batch));
}

void Stage::advance(double now, Effects& fx) {
  while (!running_ && !finished_) {
    const Action a = c_.schedule->stages[static_cast<std::size_t>(c_.stage)].at(pc_);
    if (end_ && a.batch >= *end_) {
      ++pc_;
      continue;
    }
    if (a.act == Act::update) {
      push(a, fx);
      ++pc_;
      continue;
    }
    if (!start(a, now, fx)) {
      if (const Want lacking = want(a); !wait_ || wait_->want != lacking) {
        tell_wait(now, fx);
        wait_ = {lacking, now};
      }
      break;
    }
    tell_wait(now, fx);
    running_ = true;
  }
  mark(now, fx);
}

/// What the next action lacks; of several things that which no question of this stage will bring.
Want Stage::want(const Action& a) const {
  if (a.act == Act::forward) {
    if (!inputs_.contains(key(a))) {
      return a.chunk == 0 ? Want::data : Want::activation;
    }
    return is_head(a.chunk) && !labels_.contains(key(a)) ? Want::data : Want::weights;
  }
  return !is_head(a.chunk) && !errors_.contains(key(a)) ? Want::error : Want::weights;
}

/// While an evaluation has the thread, nothing else keeps the sequence waiting.
void Stage::tell_wait(double now, Effects& fx) {
  if (wait_ && !mark_running_) {
    fx.record(
        WaitRecord{.actor = c_.self.id, .want = wait_->want, .start = wait_->since, .end = now});
  }
  wait_.reset();
}

bool Stage::start(const Action& a, double now, Effects& fx) {
  switch (a.act) {
    case Act::forward: {
      const View view = c_.view->forward(a);
      const Weights* own =
          weights_for(a.chunk, 0, view, fx);  // asked for before the activation has come
      bool complete = own != nullptr;
      forward_weights_.clear();
      if (own) {
        forward_weights_ = *own;
      }
      for (std::size_t i = 0; i < chunk(a.chunk).borrowed().size(); ++i) {
        const Weights* slice = weights_for(a.chunk, i + 1, borrowed_view(a, i), fx);
        complete = complete && slice;
        if (complete) {
          forward_weights_.push_back(slice->front());
        }
      }
      if (!complete || !inputs_.contains(key(a)) ||
          (is_head(a.chunk) && !labels_.contains(key(a)))) {
        return false;
      }
      open_reads_[key(a)] = {view, own->front().version, a.natural, now};
      run_forward(a, fx);
      ask_ahead(a, fx);
      return true;
    }
    case Act::backward:
    case Act::input_gradient:
      return start_backward(a, fx);
    case Act::weight_gradient:
      run_weight_gradient(a, fx);
      return true;
    case Act::update:
      break;
  }
  return false;
}

Run Stage::job(const Action& a, Work work) const {
  return {.work = work,
          .stage = c_.stage,
          .stamp = {c_.replica, a.chunk, a.batch, a.micro_batch},
          .job = {}};
}

std::int64_t Stage::first_sample(const Action& a, std::int64_t rows) const {
  const std::int64_t place = a.batch * c_.replicas + c_.replica;  // as the Source deals them
  return c_.sizes.samples_before(place) + a.micro_batch * rows;
}

void Stage::run_forward(const Action& a, Effects& fx) {
  Run run = job(a, Work::forward);
  const Bundle& input = inputs_.at(key(a));
  run.job = [chunk = c_.chunks[static_cast<std::size_t>(a.chunk)],
             weights = forward_weights_,
             buffers = buffers_.at(a.chunk),
             input = input,
             labels = is_head(a.chunk) ? labels_.at(key(a)) : Tensor{},
             seed = c_.seed,
             first_sample = first_sample(a, input.front().tensor.shape()[0]),
             keep = c_.keep != KeepActivations::recompute](Stream& stream) mutable {
    // Recomputed later: nothing of this pass is kept but its input.
    return chunk->forward({.stream = stream, .seed = seed, .first_sample = first_sample},
                          weights,
                          std::move(buffers),
                          input,
                          labels,
                          keep);
  };
  fx.run(std::move(run));
}

void Stage::finish_forward(const Action& a, Outputs out, Effects& fx) {
  const bool head = is_head(a.chunk);
  const std::int64_t samples = inputs_.at(key(a)).front().tensor.shape()[0];
  const std::int64_t rows =
      head && labels_.at(key(a)).type() == DType::int32 ? labels_.at(key(a)).elements() : samples;
  Weights read = std::exchange(forward_weights_, {});
  const auto own = read.end() - static_cast<std::ptrdiff_t>(chunk(a.chunk).borrowed().size());
  Kept& kept = kept_[stash_key(a)];
  kept = {};
  kept.borrowed.assign(own, read.end());
  read.erase(own, read.end());
  if (a.micro_batch == 0 && c_.gap_every > 0 && a.batch % c_.gap_every == 0) {
    gap_weights_[{a.chunk, a.batch}] = read;
  }
  if (c_.view->stashes()) {
    kept.weights = std::move(read);  // the backward will use what this forward read
  }
  kept.first_sample = first_sample(a, samples);
  if (c_.keep == KeepActivations::recompute) {
    kept.input = std::move(inputs_.at(key(a)));
    kept.labels = head ? std::move(labels_.at(key(a))) : Tensor{};
  } else {
    kept.stash = std::move(out.stash);
  }
  stashes_max_ = std::max(stashes_max_, static_cast<std::int64_t>(kept_.size() + deltas_.size()));
  inputs_.erase(key(a));
  labels_.erase(key(a));
  buffers_.at(a.chunk) = std::move(out.buffers);
  if (a.micro_batch + 1 == c_.schedule->options.micro_batches) {
    const std::int64_t step = forwards_done_.at(a.chunk) = a.batch + 1;
    if (!c_.served && c_.evaluate_every > 0 && step % c_.evaluate_every == 0) {
      mark_buffers_[{a.chunk, step}] = buffers_.at(a.chunk);
    }
    conclude(fx);
  }
  if (a.chunk == 0) {
    fx.send(c_.source, Credit{});
  }
  if (head) {
    fx.record(LossRecord{.stamp = {c_.replica, a.chunk, a.batch, a.micro_batch},
                         .samples = samples,
                         .rows = rows,
                         .result = std::move(out.result)});
  } else {
    fx.send(stage_of(a.chunk + 1),
            Activation{{c_.replica, a.chunk + 1, a.batch, a.micro_batch}, std::move(out.bundle)});
  }
}

bool Stage::start_backward(const Action& a, Effects& fx) {
  const OpenRead& read = open_reads_.at(key(a));
  const auto view = c_.view->backward(a, read.natural);
  const Weights* weights =
      view ? weights_for(a.chunk, 0, *view, fx) : &kept_.at(stash_key(a)).weights;
  if (!weights || (!is_head(a.chunk) && !errors_.contains(key(a)))) {
    return false;
  }
  backward_view_ = view;
  backward_version_ = weights->front().version;
  Weights at = *weights;  // before the entry that it may stand in goes
  Bundle error;
  if (const auto found = errors_.find(key(a)); found != errors_.end()) {
    error = std::move(found->second);
    errors_.erase(found);
  }
  Run run = job(a, fused(a) ? Work::backward : Work::input_gradient);
  Kept kept = kept_.at(stash_key(a));
  if (c_.keep != KeepActivations::overwrite) {
    kept_.erase(stash_key(a));
  }
  std::move(kept.borrowed.begin(), kept.borrowed.end(), std::back_inserter(at));
  kept.weights = std::move(at);
  kept.borrowed.clear();
  std::vector<Tensor> gradient =
      fused(a) ? std::move(sums_[a.chunk].gradient) : std::vector<Tensor>{};
  const std::int32_t divide_by =
      a.micro_batch + 1 == c_.schedule->options.micro_batches ? a.micro_batch + 1 : 1;
  run.job =
      [chunk = c_.chunks[static_cast<std::size_t>(a.chunk)],
       kept = std::move(kept),
       error = std::move(error),
       gradient = std::move(gradient),
       recompute = c_.keep == KeepActivations::recompute,
       // Any will do: a recomputed forward normalises by its micro-batch, and what it makes of
       // the buffers is dropped.
       buffers = buffers_.at(a.chunk),
       seed = c_.seed,
       weight_gradient = fused(a),
       divide_by](Stream& stream) mutable {
        const Pass pass{.stream = stream, .seed = seed, .first_sample = kept.first_sample};
        if (recompute) {
          kept.stash =
              chunk->forward(pass, kept.weights, std::move(buffers), kept.input, kept.labels, true)
                  .stash;
        }
        Outputs out =
            chunk->input_gradient(pass, kept.weights, std::move(kept.stash), std::move(error));
        kept = {};
        if (weight_gradient) {
          out.tensors =
              chunk->weight_gradient(stream, out.stash, std::move(gradient), divide_by).tensors;
          out.stash.clear();
        }
        return out;
      };
  fx.run(std::move(run));
  return true;
}

void Stage::run_weight_gradient(const Action& a, Effects& fx) {
  Run run = job(a, Work::weight_gradient);
  auto stash = deltas_.extract(key(a));
  const std::int32_t divide_by =
      a.micro_batch + 1 == c_.schedule->options.micro_batches ? a.micro_batch + 1 : 1;
  run.job = [chunk = c_.chunks[static_cast<std::size_t>(a.chunk)],
             stash = std::move(stash.mapped()),
             gradient = std::move(sums_[a.chunk].gradient),
             divide_by](Stream& stream) mutable {
    return chunk->weight_gradient(stream, stash, std::move(gradient), divide_by);
  };
  fx.run(std::move(run));
}

void Stage::finish_input_gradient(const Action& a, Bundle dx, Effects& fx) {
  auto open = open_reads_.extract(key(a));
  const OpenRead& read = open.mapped();
  Accumulation& sum = sums_[a.chunk];
  sum.read_time = sum.reads.empty() ? read.time : std::min(sum.read_time, read.time);
  sum.reads.push_back({.micro_batch = a.micro_batch,
                       .forward = read.forward,
                       .backward = backward_view_.value_or(read.forward),
                       .forward_version = read.forward_version,
                       .backward_version = backward_version_});
  if (a.chunk > 0) {
    fx.send(stage_of(a.chunk - 1),
            ErrorSignal{{c_.replica, a.chunk - 1, a.batch, a.micro_batch}, std::move(dx)});
  }
}

void Stage::finish_weight_gradient(const Action& a, Outputs out) {
  sums_[a.chunk].gradient = std::move(out.tensors);
}

void Stage::push(const Action& a, Effects& fx) {
  Accumulation sum = std::move(sums_.at(a.chunk));
  sums_.erase(a.chunk);
  const std::vector<BorrowedSlice>& borrowed = chunk(a.chunk).borrowed();
  // So that the shard's is the only handle and the update may be made in place.
  held_.erase({a.chunk, 0});
  Weights gap_weights;
  if (auto kept = gap_weights_.extract({a.chunk, a.batch}); !kept.empty()) {
    gap_weights = std::move(kept.mapped());
  }
  const std::size_t own = sum.gradient.size() - borrowed.size();
  for (std::size_t i = 0; i < borrowed.size(); ++i) {
    fx.send(shard_of(borrowed[i].owner),
            TiedPush{.from = c_.self,
                     .stamp = {c_.replica, a.chunk, a.batch, 0},
                     .sequence = ++pushes_,
                     .slice = borrowed[i].slice,
                     .gradient = std::move(sum.gradient[own + i])});
  }
  sum.gradient.resize(own);
  fx.send(shard_of(a.chunk),
          Push{.from = c_.self,
               .stamp = {c_.replica, a.chunk, a.batch, 0},
               .sequence = ++pushes_,
               .read_time = sum.read_time,
               .gradient = std::move(sum.gradient),
               .reads = std::move(sum.reads),
               .forward = std::move(gap_weights)});
  ++updates_;
  note_finished(fx);
}

void Stage::note_finished(Effects& fx) {
  if (!finished_ && end_ && updates_ == *end_ * chunks_here_) {
    finished_ = true;
    tell_stashes(fx);
  }
}

void Stage::tell_stashes(Effects& fx) {
  if (!std::exchange(told_, true)) {
    fx.record(StageRecord{.stage = c_.stage, .stashes_max = stashes_max_});
  }
}

void Stage::handle(Ran m, double now, Effects& fx) {
  if (m.lane == Lane::mark) {
    MarkBatch batch = std::move(marks_.front());
    marks_.pop_front();
    mark_running_ = false;
    if (is_head(batch.chunk)) {
      fx.send(c_.source, MarkResult{batch.step, batch.index, std::move(m.outputs.result)});
    } else {
      batch.bundle = std::move(m.outputs.bundle);
      ++batch.chunk;
      fx.send(stage_of(batch.chunk), std::move(batch));
    }
    if (wait_) {
      wait_->since = now;
    }
    mark(now, fx);
    return;
  }
  const Action a = c_.schedule->stages[static_cast<std::size_t>(c_.stage)].at(pc_);
  running_ = false;
  ++pc_;
  switch (a.act) {
    case Act::forward:
      finish_forward(a, std::move(m.outputs), fx);
      break;
    case Act::backward:
      finish_input_gradient(a, std::move(m.outputs.bundle), fx);
      finish_weight_gradient(a, std::move(m.outputs));
      break;
    case Act::input_gradient:
      deltas_[key(a)] = std::move(m.outputs.stash);
      finish_input_gradient(a, std::move(m.outputs.bundle), fx);
      break;
    case Act::weight_gradient:
      finish_weight_gradient(a, std::move(m.outputs));
      break;
    case Act::update:
      TROUPE_CHECK(false, "an update is no job of a stage");
  }
  advance(now, fx);
}

void Stage::handle(MarkBatch m, double now, Effects& fx) {
  marks_.push_back(std::move(m));
  mark(now, fx);
}

/// What the forwards before `step` have left; where it was not kept, no later one has run.
const std::vector<Tensor>& Stage::buffers_at(std::int32_t chunk, std::int64_t step) const {
  const auto kept = mark_buffers_.find({chunk, step});
  return kept != mark_buffers_.end() ? kept->second : buffers_.at(chunk);
}

void Stage::mark(double now, Effects& fx) {
  if (mark_running_ || mark_question_ || marks_.empty()) {
    return;
  }
  const MarkBatch& batch = marks_.front();
  const Chunk& of = chunk(batch.chunk);
  MarkWeights& held = mark_weights_[batch.chunk];
  if (held.step != batch.step) {
    held = {batch.step, {}};
  }
  const std::size_t own = of.layout().slice_sizes.size();
  if (held.weights.size() < own + of.borrowed().size()) {
    const std::size_t part = held.weights.empty() ? 0 : held.weights.size() - own + 1;
    mark_question_ = {batch.chunk, part, {batch.step, {}}, ++request_};
    pull(*mark_question_, true, fx);
    return;
  }
  if (const auto wait = wait_) {
    tell_wait(now, fx);
    wait_ = {wait->want, now};
  }
  mark_running_ = true;
  fx.run({.lane = Lane::mark,
          .stage = c_.stage,
          .stamp = {c_.replica, batch.chunk, batch.step, 0},
          .job = [chunk = c_.chunks[static_cast<std::size_t>(batch.chunk)],
                  weights = held.weights,
                  buffers = buffers_at(batch.chunk, batch.step),
                  bundle = batch.bundle,
                  labels = batch.labels](Stream& stream) {
            return chunk->forward(
                {.stream = stream, .training = false}, weights, buffers, bundle, labels, false);
          }});
}

void Stage::handle(Release m, double now, Effects& fx) {
  if (m.conclude) {
    if (c_.served) {  // its own sequence has no end
      tell_wait(now, fx);
      tell_stashes(fx);
    }
    conclude_at_ = m.step;
    conclude(fx);
  } else {
    std::erase_if(mark_buffers_, [&](const auto& kept) { return kept.first.second == m.step; });
    std::erase_if(mark_weights_, [&](const auto& held) { return held.second.step == m.step; });
  }
}

void Stage::conclude(Effects& fx) {
  if (!conclude_at_) {
    return;
  }
  for (const auto& [chunk, done] : forwards_done_) {
    if (!c_.served && done < *conclude_at_) {
      return;
    }
  }
  for (const auto& [chunk, done] : forwards_done_) {
    fx.send(c_.director, Buffers{c_.replica, chunk, buffers_at(chunk, *conclude_at_)});
  }
  conclude_at_.reset();
}

std::string Stage::waits_for() const {
  if (running_) {
    return "its own kernel";
  }
  if (finished_) {
    return "";
  }
  const Action a = c_.schedule->stages[static_cast<std::size_t>(c_.stage)].at(pc_);
  const std::string me = to_string(a) + " needs ";
  const std::string which =
      "(" + std::to_string(a.batch) + "," + std::to_string(a.micro_batch) + ")";
  if (want(a) == Want::weights && !pulling_.empty()) {
    const auto own = std::find_if(pulling_.begin(), pulling_.end(), [&](const Question& question) {
      return question.chunk == a.chunk && question.part == 0;
    });
    const Question& open = own != pulling_.end() ? *own : pulling_.front();
    const std::int32_t owner =
        open.part > 0 ? chunk(open.chunk).borrowed()[open.part - 1].owner : open.chunk;
    return me + "step " + std::to_string(open.view.step) + " of shard " + std::to_string(owner);
  }
  if (a.act == Act::forward && !inputs_.contains(key(a))) {
    return me + (a.chunk == 0 ? "data " + which + " of the source"
                              : "F" + which + " of stage " +
                                    std::to_string(c_.schedule->stage_of(a.chunk - 1)));
  }
  if (a.act == Act::forward) {
    return me + "labels " + which + " of the source";
  }
  return me + "B" + which + " of stage " + std::to_string(c_.schedule->stage_of(a.chunk + 1));
}

}  // namespace troupe
