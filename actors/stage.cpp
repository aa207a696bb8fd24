#include "actors/stage.hpp"

#include "actors/stage/jobs.hpp"
#include "messages/bad_sender.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace troupe {
namespace {

// Actions behind the end of the run, one after the other: a sequence has no end of its own.
constexpr std::int64_t kBeyondMax = 1'000'000;

/// Every chunk of the stage has an entry, though it may have no buffers.
std::map<std::int32_t, std::vector<Tensor>> buffers_of(Stage::Config& config) {
  std::map<std::int32_t, std::vector<Tensor>> buffers = std::move(config.buffers);
  for (const auto& chunk : config.chunks) {
    if (config.schedule->stage_of(chunk->index()) == config.stage) {
      buffers.try_emplace(chunk->index());
    }
  }
  return buffers;
}

}  // namespace

Stage::Stage(Config config)
    : c_(std::move(config)),
      cursor_(c_.schedule, c_.stage),
      shards_(
          {.self = c_.self, .replica = c_.replica, .chunks = c_.chunks, .shard_of = c_.shard_of}),
      in_hand_(shards_),
      arrivals_(static_cast<std::size_t>(c_.buffer)),
      stashes_(c_.keep, c_.stage),
      statistics_({.replica = c_.replica,
                   .served = c_.served,
                   .evaluation = c_.evaluation,
                   .director = c_.director,
                   .initial = buffers_of(c_)}),
      evaluations_(c_.chunks, shards_),
      wait_(c_.self.id),
      absent_(c_.returns) {}

void Stage::handle(Start, double now, Effects& fx) {
  advance(now, fx);
}

/// It is for predictors.
void Stage::handle(Credit m, double, Effects&) {
  throw BadSender(concat("a credit of chunk ", m.chunk, ", for which it has nothing"));
}

void Stage::handle(Activation m, double now, Effects& fx) {
  TROUPE_BELIEVE(!m.bundle.empty(), "an activation that is none");
  arrivals_.keep(std::move(m));
  advance(now, fx);
}

void Stage::handle(Labels m, double now, Effects& fx) {
  arrivals_.keep(std::move(m));
  advance(now, fx);
}

void Stage::handle(ErrorSignal m, double now, Effects& fx) {
  TROUPE_BELIEVE(!m.bundle.empty(), "an error signal that is none");
  arrivals_.keep(std::move(m));
  advance(now, fx);
}

void Stage::handle(PullReply m, double now, Effects& fx) {
  if (evaluations_.came(m)) {
    evaluate(now, fx);
  } else if (in_hand_.came(m)) {
    advance(now, fx);
  }  // else: an answer to no open question
}

// -- the sequence ----------------------------------------------------------------------------------

void Stage::advance(double now, Effects& fx) {
  std::int64_t beyond = 0;
  while (!running_ && !finished_ && !absent_) {
    const Action a = cursor_.action();
    if (cursor_.beyond_end(a)) {
      TROUPE_CHECK(++beyond < kBeyondMax, "stage ", c_.stage, " finds no end of its sequence");
      cursor_.pass();
    } else if (beyond_halt(a)) {
      if (!passing_over_) {
        break;
      }
      pass_over(a, now, fx);
      cursor_.pass();
    } else if (a.act == Act::update) {
      push(a, fx);
      cursor_.pass();
    } else if (start(a, now, fx)) {
      wait_.end(now, fx);
      running_ = true;
    } else {
      wait_.begin(want(a), now, fx);
      break;
    }
  }
  evaluate(now, fx);
}

bool Stage::start(const Action& a, double now, Effects& fx) {
  switch (a.act) {
    case Act::forward:
      return start_forward(a, now, fx);
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

/// What the next action lacks; if several things are missing, one that the stage cannot pull itself.
Want Stage::want(const Action& a) const {
  return arrivals_.missing(a, needs(a.chunk)).value_or(Want::weights);
}

/// The action whose job has come back; the next one may start.
Action Stage::finished_action() {
  running_ = false;
  return cursor_.pass();
}

std::int64_t Stage::first_sample(const Action& a, std::int64_t rows) const {
  const std::int64_t place =  // as the Source
      c_.passed + (first_ + a.batch) * c_.replicas + c_.replica;
  return c_.sizes.samples_before(place) + a.micro_batch * rows;
}

// -- forward ---------------------------------------------------------------------------------------

bool Stage::start_forward(const Action& a, double now, Effects& fx) {
  const View view = c_.view->forward(a);
  // Weights are asked for before the activation has come.
  if (!gather_weights(a, view, fx) || arrivals_.missing(a, needs(a.chunk))) {
    return false;
  }
  sums_.open_read(a, view, forward_weights_.front().version, now);
  draw_input(a, fx);
  Arrivals::ForwardInput in = arrivals_.input(a);
  const std::int64_t rows = in.bundle.front().tensor.shape()[0];
  run(fx,
      job(a, Work::forward),
      ForwardJob{.chunk = chunk(a.chunk),
                 .weights = forward_weights_,
                 .buffers = statistics_.newest(a.chunk),
                 .input = std::move(in.bundle),
                 .labels = std::move(in.labels),
                 .seed = c_.seed,
                 .first_sample = first_sample(a, rows),
                 // Where it is recomputed later, nothing of this pass is kept but its input.
                 .keep = c_.keep != KeepActivations::recompute,
                 .influence = c_.influence && a.chunk > 0});
  ask_ahead(a, fx);
  return true;
}

/// The weights of the forward `a`: its chunk's own, then its borrowed slices. False: some are still on
/// their way.
bool Stage::gather_weights(const Action& a, const View& view, Effects& fx) {
  const Weights* own = in_hand_.find_or_ask({a.chunk, 0}, view, fx);
  bool complete = own != nullptr;
  forward_weights_ = own ? *own : Weights{};
  for (std::size_t i = 0; i < chunk(a.chunk)->borrowed().size(); ++i) {
    const Weights* slice = in_hand_.find_or_ask({a.chunk, i + 1}, borrowed_view(a, i), fx);
    complete = complete && slice;
    if (complete) {
      forward_weights_.push_back(slice->front());
    }
  }
  return complete;
}

/// A tied parameter is read as its owner reads it for the same micro-batch, so that all its readers
/// see one version.
View Stage::borrowed_view(const Action& a, std::size_t borrowed) const {
  return c_.view->forward(
      c_.schedule->forward_of(chunk(a.chunk)->borrowed()[borrowed].owner, a.batch, a.micro_batch));
}

/// The forward `a` has just read tied parameters; asks for the slices of them that the next forward of
/// its chunk will read. Their shard is on another stage's thread. If it were asked only when they are
/// needed, it would answer after that stage's next job, and the two stages would take turns.
void Stage::ask_ahead(const Action& a, Effects& fx) {
  const std::size_t borrowed = chunk(a.chunk)->borrowed().size();
  if (borrowed == 0) {
    return;
  }
  const Action next = cursor_.next_forward(a.chunk);
  for (std::size_t i = 0; i < borrowed; ++i) {
    if (cursor_.beyond_end(next)) {
      in_hand_.drop({a.chunk, i + 1});
    } else if (const View view = borrowed_view(next, i); view != borrowed_view(a, i)) {
      in_hand_.ask({a.chunk, i + 1}, view, fx);
    }
  }
}

void Stage::handle(Ran<ForwardPass> m, double now, Effects& fx) {
  if (m.lane == Lane::mark) {
    finish_evaluation_batch(std::move(m.made), now, fx);
    return;
  }
  finish_forward(finished_action(), std::move(m.made), fx);
  advance(now, fx);
}

void Stage::finish_forward(const Action& a, ForwardPass out, Effects& fx) {
  const bool head = is_head(a.chunk);
  Arrivals::ForwardInput in = arrivals_.take_input(a);
  TROUPE_CHECK(!in.bundle.empty() && in.bundle.front().tensor, "a forward of no samples has ended");
  const std::int64_t samples = in.bundle.front().tensor.shape()[0];
  const std::int64_t rows =
      head && in.labels.type() == DType::int32 ? in.labels.elements() : samples;
  const Tensor labels = in.labels;
  tell_of_forward(a, out, fx);
  keep_for_backward(a, std::move(in), out, fx);
  statistics_.set(a.chunk, std::move(out.buffers));
  if (last_micro_batch(a)) {
    statistics_.finish_batch(a.chunk, a.batch, fx);
  }
  give_credit(a, fx);
  if (head) {
    fx.record(LossRecord{
        .stamp = in_run(a), .samples = samples, .rows = rows, .result = std::move(out.result)});
  } else {
    send_output(a, std::move(out.y), labels, fx);
  }
}

void Stage::keep_for_backward(const Action& a,
                              Arrivals::ForwardInput in,
                              ForwardPass& out,
                              Effects& fx) {
  KeptForward kept;
  kept.first_sample = first_sample(a, in.bundle.front().tensor.shape()[0]);
  Weights read = std::exchange(forward_weights_, {});
  const auto borrowed = read.end() - static_cast<std::ptrdiff_t>(chunk(a.chunk)->borrowed().size());
  kept.borrowed.assign(borrowed, read.end());
  read.erase(borrowed, read.end());
  if (a.micro_batch == 0 && c_.gap_every > 0 && (a.batch + 1) % c_.gap_every == 0) {
    sums_.keep_forward(a, read);
  }
  tell_probe(a, in, read, fx);
  if (c_.view->stashes()) {
    kept.weights = std::move(read);  // the backward will use what this forward read
  }
  if (c_.keep == KeepActivations::recompute) {
    kept.input = std::move(in.bundle);
    kept.labels = std::move(in.labels);
  } else {
    kept.stash = std::move(out.stash);
  }
  if (makes_error(a.chunk)) {
    kept.output = out.y.front().tensor;
    kept.labels = std::move(in.labels);
  }
  stashes_.keep(a, std::move(kept));
}

// -- backward --------------------------------------------------------------------------------------

bool Stage::start_backward(const Action& a, Effects& fx) {
  const auto view = c_.view->backward(a, sums_.forward_natural(a));
  const Weights* weights =
      view ? in_hand_.find_or_ask({a.chunk, 0}, *view, fx) : &stashes_.weights(a);
  if (!weights || arrivals_.missing(a, needs(a.chunk))) {
    return false;
  }
  sums_.begin_backward(view, weights->front().version);
  Weights read = *weights;  // a copy, because the stash that they may stand in is taken now
  KeptForward kept = stashes_.take(a);
  std::move(kept.borrowed.begin(), kept.borrowed.end(), std::back_inserter(read));
  kept.weights = std::move(read);
  kept.borrowed.clear();
  InputGradientJob input_gradient{.chunk = chunk(a.chunk),
                                  .kept = std::move(kept),
                                  .error = arrivals_.take_error(a),
                                  .recompute = c_.keep == KeepActivations::recompute,
                                  .buffers = statistics_.newest(a.chunk),
                                  .seed = c_.seed,
                                  .signal = signal(a.chunk),
                                  .makes_error = makes_error(a.chunk)};
  if (a.act == Act::input_gradient) {
    run(fx, job(a, Work::input_gradient), std::move(input_gradient));
  } else {
    run(fx,
        job(a, Work::backward),
        BackwardJob{std::move(input_gradient), sums_.take(a.chunk), divide_by(a)});
  }
  return true;
}

void Stage::run_weight_gradient(const Action& a, Effects& fx) {
  run(fx,
      job(a, Work::weight_gradient),
      WeightGradientJob{
          chunk(a.chunk), stashes_.take_deltas(a), sums_.take(a.chunk), divide_by(a)});
}

/// The last micro-batch makes the sum a mean.
std::int32_t Stage::divide_by(const Action& a) const {
  return last_micro_batch(a) ? c_.schedule->options.micro_batches : 1;
}

void Stage::handle(Ran<BackwardPass> m, double now, Effects& fx) {
  const Action a = finished_action();
  finish_input_gradient(a, std::move(m.made.dx), fx);
  sums_.put(a.chunk, std::move(m.made.gradient));
  advance(now, fx);
}

void Stage::handle(Ran<InputGradient> m, double now, Effects& fx) {
  const Action a = finished_action();
  stashes_.keep_deltas(a, std::move(m.made.deltas));
  finish_input_gradient(a, std::move(m.made.dx), fx);
  advance(now, fx);
}

void Stage::handle(Ran<WeightGradient> m, double now, Effects& fx) {
  sums_.put(finished_action().chunk, std::move(m.made.gradient));
  advance(now, fx);
}

// -- evaluations -----------------------------------------------------------------------------------

void Stage::handle(MarkBatch m, double now, Effects& fx) {
  evaluations_.add(std::move(m));
  evaluate(now, fx);
}

void Stage::evaluate(double now, Effects& fx) {
  if (absent_ || !evaluations_.ready(fx)) {
    return;
  }
  wait_.pause(now, fx);
  evaluations_.begin();
  const MarkBatch& batch = evaluations_.first();
  run(fx,
      {.lane = Lane::mark, .stage = c_.stage, .stamp = {c_.replica, batch.chunk, batch.step, 0}},
      ForwardJob{.chunk = chunk(batch.chunk),
                 .weights = evaluations_.weights(),
                 .buffers = statistics_.at(batch.chunk, batch.step),
                 .input = batch.bundle,
                 .labels = batch.labels,
                 .training = false});
}

void Stage::finish_evaluation_batch(ForwardPass made, double now, Effects& fx) {
  MarkBatch batch = evaluations_.finish();
  if (is_head(batch.chunk)) {
    fx.send(c_.source, MarkResult{batch.step, batch.index, std::move(made.result)});
  } else {
    batch.bundle = std::move(made.y);
    ++batch.chunk;
    fx.send(stage_of(batch.chunk), std::move(batch));
  }
  wait_.resume(now);
  evaluate(now, fx);
}

std::string Stage::waits_for() const {
  if (running_) {
    return "its own kernel";
  }
  if (finished_) {
    return "";
  }
  const Action a = cursor_.action();
  const auto missing = arrivals_.missing(a, needs(a.chunk));
  return to_string(a) + " needs " +
         (missing ? arrivals_.describe(*missing, a, *c_.schedule) : in_hand_.waits_for(a.chunk));
}

}  // namespace troupe
