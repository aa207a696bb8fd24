#include "actors/stage.hpp"

#include <algorithm>
#include <utility>

namespace troupe {

Stage::Stage(Config config) : c_(std::move(config)) {
  for (std::size_t chunk = 0; chunk < c_.chunks.size(); ++chunk) {
    chunks_here_ += c_.schedule->stage_of(static_cast<std::int32_t>(chunk)) == c_.stage;
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
  note_finished(fx);
  advance(now, fx);
}

void Stage::handle(PullReply m, double now, Effects& fx) {
  if (mark_request_ != 0 && m.request == mark_request_) {
    mark_request_ = 0;
    mark_weights_[m.chunk] = {m.weights.front().step, std::move(m.weights)};
    mark(fx);
  } else if (pulling_ && m.request == pulling_request_) {
    const auto [chunk, view] = *pulling_;
    TROUPE_CHECK(chunk == m.chunk && m.weights.front().step == view.step &&
                     m.weights.front().reach == view.reach,
                 "stage ",
                 c_.stage,
                 " asked chunk ",
                 chunk,
                 " for step ",
                 view.step,
                 " and got step ",
                 m.weights.front().step);
    pulling_.reset();
    held_[chunk] = {view, std::move(m.weights)};
    advance(now, fx);
  }  // else: an answer to no open question
}

/// The weights of `view`, or nothing while they are on their way.
const Weights* Stage::weights_for(std::int32_t chunk, const View& view, Effects& fx) {
  if (const auto held = held_.find(chunk); held != held_.end() && held->second.view == view) {
    return &held->second.weights;
  }
  if (!pulling_) {
    held_.erase(chunk);
    pulling_ = {chunk, view};
    pulling_request_ = ++request_;
    fx.send(shard_of(chunk), Pull{c_.self, pulling_request_, view});
  }
  return nullptr;
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
      break;
    }
    running_ = true;
  }
  mark(fx);
}

bool Stage::start(const Action& a, double now, Effects& fx) {
  switch (a.act) {
    case Act::forward: {
      const View view = c_.view.forward(a);
      const Weights* weights =
          weights_for(a.chunk, view, fx);  // asked for before the activation has come
      if (!weights || !inputs_.contains(key(a)) ||
          (is_head(a.chunk) && !labels_.contains(key(a)))) {
        return false;
      }
      open_reads_[key(a)] = {view, weights->front().version, a.natural, now};
      run_forward(a, fx);
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

void Stage::run_forward(const Action& a, Effects& fx) {
  Run run = job(a, Work::forward);
  const bool recompute = c_.keep == KeepActivations::recompute;
  run.job = [chunk = c_.chunks[static_cast<std::size_t>(a.chunk)],
             weights = held_.at(a.chunk).weights,
             input = inputs_.at(key(a)),
             labels = is_head(a.chunk) ? labels_.at(key(a)) : Tensor{},
             recompute](Stream& stream) {
    // Recomputed later: nothing of this pass is kept but its input.
    return recompute ? chunk->infer(stream, weights, input, labels)
                     : chunk->forward(stream, weights, input, labels);
  };
  fx.run(std::move(run));
}

void Stage::finish_forward(const Action& a, Outputs out, Effects& fx) {
  const bool head = is_head(a.chunk);
  const std::int64_t rows = inputs_.at(key(a)).front().tensor.shape()[0];
  Kept& kept = kept_[stash_key(a)];
  kept = {};
  if (c_.view.stashes()) {
    kept.weights = held_.at(a.chunk).weights;  // the backward will use what this forward read
  }
  if (c_.keep == KeepActivations::recompute) {
    kept.input = std::move(inputs_.at(key(a)));
    kept.labels = head ? std::move(labels_.at(key(a))) : Tensor{};
  } else {
    kept.stash = std::move(out.stash);
  }
  stashes_max_ = std::max(stashes_max_, static_cast<std::int64_t>(kept_.size() + deltas_.size()));
  if (a.micro_batch == 0 && c_.gap_every > 0 && a.batch % c_.gap_every == 0) {
    gap_weights_[{a.chunk, a.batch}] = held_.at(a.chunk).weights;
  }
  inputs_.erase(key(a));
  labels_.erase(key(a));
  if (a.chunk == 0) {
    fx.send(c_.source, Credit{});
  }
  if (head) {
    fx.record(
        LossRecord{{c_.replica, a.chunk, a.batch, a.micro_batch}, rows, std::move(out.result)});
  } else {
    fx.send(stage_of(a.chunk + 1),
            Activation{{c_.replica, a.chunk + 1, a.batch, a.micro_batch}, std::move(out.bundle)});
  }
}

bool Stage::start_backward(const Action& a, Effects& fx) {
  const OpenRead& read = open_reads_.at(key(a));
  const auto view = c_.view.backward(a, read.natural);
  const Weights* weights = view ? weights_for(a.chunk, *view, fx) : &kept_.at(stash_key(a)).weights;
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
  kept.weights = std::move(at);
  std::vector<Tensor> gradient =
      fused(a) ? std::move(sums_[a.chunk].gradient) : std::vector<Tensor>{};
  const std::int32_t divide_by =
      a.micro_batch + 1 == c_.schedule->options.micro_batches ? a.micro_batch + 1 : 1;
  run.job = [chunk = c_.chunks[static_cast<std::size_t>(a.chunk)],
             kept = std::move(kept),
             error = std::move(error),
             gradient = std::move(gradient),
             recompute = c_.keep == KeepActivations::recompute,
             weight_gradient = fused(a),
             divide_by](Stream& stream) mutable {
    if (recompute) {
      kept.stash = chunk->forward(stream, kept.weights, kept.input, kept.labels).stash;
    }
    Outputs out =
        chunk->input_gradient(stream, kept.weights, std::move(kept.stash), std::move(error));
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
  held_.erase(
      a.chunk);  // so that the shard's is the only handle and the update may be made in place
  Weights gap_weights;
  if (auto kept = gap_weights_.extract({a.chunk, a.batch}); !kept.empty()) {
    gap_weights = std::move(kept.mapped());
  }
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
    fx.record(StageRecord{c_.stage, stashes_max_});
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
    mark(fx);
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

void Stage::handle(MarkBatch m, double, Effects& fx) {
  marks_.push_back(std::move(m));
  mark(fx);
}

void Stage::mark(Effects& fx) {
  if (mark_running_ || mark_request_ != 0 || marks_.empty()) {
    return;
  }
  const MarkBatch& batch = marks_.front();
  const auto weights = mark_weights_.find(batch.chunk);
  if (weights == mark_weights_.end() || weights->second.first != batch.step) {
    mark_weights_.erase(batch.chunk);
    mark_request_ = ++request_;
    fx.send(shard_of(batch.chunk), Pull{c_.self, mark_request_, {batch.step, {}}, true});
    return;
  }
  mark_running_ = true;
  fx.run({.lane = Lane::mark,
          .stage = c_.stage,
          .stamp = {c_.replica, batch.chunk, batch.step, 0},
          .job = [chunk = c_.chunks[static_cast<std::size_t>(batch.chunk)],
                  weights = weights->second.second,
                  bundle = batch.bundle,
                  labels = batch.labels](Stream& stream) {
            return chunk->infer(stream, weights, bundle, labels);
          }});
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
  if (pulling_) {
    return me + "step " + std::to_string(std::get<1>(*pulling_).step) + " of shard " +
           std::to_string(std::get<0>(*pulling_));
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
