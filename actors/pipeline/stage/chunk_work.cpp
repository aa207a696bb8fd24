#include "actors/pipeline/stage/chunk_work.hpp"

#include "actors/pipeline/stage/jobs.hpp"
#include "messages/archive.hpp"
#include "runtime/model/width.hpp"

#include <iterator>

namespace troupe {
namespace {

/// Every chunk of the stage has an entry, though it may have no buffers.
std::map<std::int32_t, std::vector<Tensor>> buffers_of(const StageConfig& config) {
  std::map<std::int32_t, std::vector<Tensor>> buffers = config.statistics.initial;
  for (const auto& chunk : config.chunks) {
    if (config.schedule->works_on(config.stage, chunk->index())) {
      buffers.try_emplace(chunk->index());
    }
  }
  return buffers;
}

/// What make(Stream&) returns, a T, comes back as Ran<T>.
template <class F>
void run_job(Effects& fx, Run how, F&& make) {
  how.job = [lane = how.lane, make = std::forward<F>(make)](Stream& stream) mutable {
    return ran(lane, make, stream);
  };
  fx.run(std::move(how));
}

}  // namespace

ChunkWork::ChunkWork(const StageConfig& config, const SequenceCursor& cursor)
    : c_(config),
      cursor_(cursor),
      shards_({.self = c_.company.self,
               .replica = c_.replica,
               .chunks = c_.chunks,
               .shard_of = c_.company.shard_of}),
      in_hand_(shards_),
      arrivals_(static_cast<std::size_t>(c_.modules ? c_.modules->buffer : 0), c_.schedule->width),
      stashes_(c_.keep, c_.stage),
      statistics_({.replica = c_.replica,
                   .served = c_.served || !c_.schedule->copies.empty(),
                   .evaluation = c_.statistics.evaluation,
                   .director = c_.company.director,
                   .initial = buffers_of(c_)}) {
  if (c_.modules) {
    modules_.emplace(*c_.modules);
    if (c_.modules->buffer > 0) {
      drawn_.emplace();
    }
  }
  if (c_.angle) {
    angle_.emplace(*c_.angle);
  }
}

std::string ChunkWork::waits_for(const Action& a) const {
  const auto lacks = missing(a);
  return lacks ? arrivals_.describe(*lacks, a, *c_.schedule) : in_hand_.waits_for(a.chunk);
}

// -- forward ---------------------------------------------------------------------------------------

bool ChunkWork::start(const Action& a, double now, Effects& fx) {
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

bool ChunkWork::start_forward(const Action& a, double now, Effects& fx) {
  const View view = c_.view->forward(a);
  // Weights are asked for before the activation has come.
  if (!gather_weights(a, view, fx) || arrivals_.missing(a, needs(a.chunk))) {
    return false;
  }
  sums_.open_read(a, view, forward_weights_.front().version, now);
  if (drawn_) {
    drawn_->begin(a, in_run(a), arrivals_, fx);
  }
  Arrivals::ForwardInput in = arrivals_.input(a);
  run_job(fx,
          job(a, Work::forward),
          ForwardJob{.chunk = chunk(a.chunk),
                     .weights = forward_weights_,
                     .buffers = statistics_.newest(a.chunk),
                     .input = std::move(in.bundle),
                     .labels = std::move(in.labels),
                     .seed = c_.samples.seed,
                     .first_sample = first_sample(a),
                     // Where it is recomputed later, nothing of this pass is kept but its input.
                     .keep = c_.keep != KeepActivations::recompute,
                     .influence = modules_ && modules_->has_influence(a.chunk)});
  ask_ahead(a, fx);
  return true;
}

/// False: some are still on their way.
bool ChunkWork::gather_weights(const Action& a, const View& view, Effects& fx) {
  const Weights* own = in_hand_.find_or_ask({a.chunk, 0}, view, fx);
  bool complete = own != nullptr;
  if (own) {
    forward_weights_ = *own;
  }
  for (std::size_t i = 0; i < shards_.borrowed(a.chunk).size(); ++i) {
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
View ChunkWork::borrowed_view(const Action& a, std::size_t borrowed) const {
  return c_.view->forward(
      c_.schedule->forward_of(shards_.borrowed(a.chunk)[borrowed].owner, a.batch, a.micro_batch));
}

/// The forward `a` has just read tied parameters; asks for the slices of them that the next forward of
/// its chunk will read. Their shard is on another stage's thread. If it were asked only when they are
/// needed, it would answer after that stage's next job, and the two stages would take turns.
void ChunkWork::ask_ahead(const Action& a, Effects& fx) {
  const std::size_t borrowed = shards_.borrowed(a.chunk).size();
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

/// As the Source.
std::int64_t ChunkWork::place(const Action& a) const {
  return c_.samples.passed + (first_ + a.batch) * c_.samples.replicas + c_.replica;
}

std::int64_t ChunkWork::micro_batch_size(const Action& a) const {
  return c_.samples.sizes.size(place(a)) / c_.schedule->options.micro_batches;
}

/// Of those that the part has by rows.
std::int64_t ChunkWork::first_sample(const Action& a) const {
  const std::int64_t samples = micro_batch_size(a);
  return c_.samples.sizes.samples_before(place(a)) + a.micro_batch * samples +
         rows_of(samples, chunk(a.chunk)->part()).first;
}

void ChunkWork::finish(const Action& a, ForwardPass&& out, Effects& fx) {
  const bool head = is_head(a.chunk);
  Arrivals::ForwardInput in = arrivals_.take_input(a);
  TROUPE_CHECK(!in.bundle.empty() && in.bundle.front().tensor, "a forward of no samples has ended");
  const Tensor labels = in.labels;
  if (modules_) {
    modules_->tell_of_forward(a, out, fx);
  }
  keep_for_backward(a, in, out, fx);
  statistics_.set(a.chunk, std::move(out.buffers));
  if (c_.schedule->is_last_there(a)) {
    statistics_.finish_batch(a.chunk, a.batch, fx);
  }
  give_credit(a, fx);
  if (head) {
    const Tensor own = chunk(a.chunk)->own_labels(labels);
    const std::int64_t samples = own.shape()[0];
    fx.record(LossRecord{.stamp = in_run(a),
                         .samples = samples,
                         .rows = own.type() == DType::int32 ? own.elements() : samples,
                         .result = std::move(out.result)});
  } else {
    send_output(a, std::move(out.y), labels, fx);
  }
}

void ChunkWork::keep_for_backward(const Action& a,
                                  Arrivals::ForwardInput& in,
                                  ForwardPass& out,
                                  Effects& fx) {
  KeptForward& kept = stashes_.keep(a);
  kept.first_sample = first_sample(a);
  Weights read = std::move(forward_weights_);
  const auto borrowed = read.end() - static_cast<std::ptrdiff_t>(chunk(a.chunk)->borrowed().size());
  kept.borrowed.assign(borrowed, read.end());
  read.erase(borrowed, read.end());
  if (c_.schedule->is_first_there(a) && c_.gap_every > 0 && (a.batch + 1) % c_.gap_every == 0) {
    sums_.keep_forward(a, read);
  }
  if (angle_) {
    angle_->tell_forward(a, in, kept.first_sample, read, fx);
  }
  if (c_.view->stashes()) {
    kept.weights = std::move(read);  // the backward will use what this forward read
  }
  const bool again = c_.keep == KeepActivations::recompute;
  const bool makes_error = modules_ && modules_->makes_error(a.chunk);
  if (!again) {
    kept.stash = std::move(out.stash);
  }
  if (again || makes_error) {
    kept.more.push_back({.input = again ? std::move(in.bundle) : Bundle{},
                         .labels = std::move(in.labels),
                         .output = makes_error ? out.y.front().tensor : Tensor{}});
  }
}

void ChunkWork::send_output(const Action& a, Bundle y, const Tensor& labels, Effects& fx) {
  if (modules_) {
    modules_->send_output(a, std::move(y), labels, fx);
  } else {
    for (auto& [to, bundle] : to_next_chunks(a.chunk, std::move(y))) {
      fx.send(stage_of(to, a.batch, a.micro_batch), Activation{stamp(a, to), std::move(bundle)});
    }
  }
}

/// `first`: of the chunks that have the parts of that section.
std::vector<std::pair<std::int32_t, Bundle>> ChunkWork::to_section(std::int32_t from,
                                                                   std::int32_t first,
                                                                   Bundle made) const {
  std::vector<std::pair<std::int32_t, Bundle>> all;
  if (c_.schedule->width == 1 && !made.empty()) {
    all.emplace_back(first, std::move(made));
    return all;
  }
  for (Bundle& bundle : for_parts(std::move(made), chunk(from)->part())) {
    if (!bundle.empty()) {
      all.emplace_back(first, std::move(bundle));
    }
    ++first;
  }
  return all;
}

void ChunkWork::give_credit(const Action& a, Effects& fx) const {
  if (a.chunk == c_.credit_chunk || (modules_ && modules_->every_chunk_gives_credit())) {
    fx.send(c_.company.source, Credit{a.chunk});
  }
}

// -- backward --------------------------------------------------------------------------------------

bool ChunkWork::start_backward(const Action& a, Effects& fx) {
  const auto view = c_.view->backward(a, sums_.forward_natural(a));
  const Weights* weights =
      view ? in_hand_.find_or_ask({a.chunk, 0}, *view, fx) : &stashes_.weights(a);
  if (!weights || arrivals_.missing(a, needs(a.chunk))) {
    return false;
  }
  sums_.begin_backward(view, weights->front().version);
  BackwardJob both{.input_gradient = {.chunk = chunk(a.chunk),
                                      .kept = stashes_.take(a),
                                      .error = arrivals_.take_error(a),
                                      .recompute = c_.keep == KeepActivations::recompute,
                                      .buffers = statistics_.newest(a.chunk),
                                      .seed = c_.samples.seed,
                                      .signal = modules_ ? modules_->signal(a.chunk) : nullptr,
                                      .makes_error = modules_ && modules_->makes_error(a.chunk)},
                   .gradient = {}};
  KeptForward& kept = both.input_gradient.kept;
  if (view) {
    kept.weights = *weights;
  }
  std::move(kept.borrowed.begin(), kept.borrowed.end(), std::back_inserter(kept.weights));
  kept.borrowed.clear();
  if (a.act == Act::input_gradient) {
    run_job(fx, job(a, Work::input_gradient), std::move(both.input_gradient));
  } else {
    both.gradient = sums_.take(a.chunk);
    both.divide_by = divide_by(a);
    run_job(fx, job(a, Work::backward), std::move(both));
  }
  return true;
}

void ChunkWork::run_weight_gradient(const Action& a, Effects& fx) {
  run_job(fx,
          job(a, Work::weight_gradient),
          WeightGradientJob{
              chunk(a.chunk), stashes_.take_deltas(a), sums_.take(a.chunk), divide_by(a)});
}

/// The last micro-batch makes the sum a mean, or an alternate's share of one.
std::int32_t ChunkWork::divide_by(const Action& a) const {
  return c_.schedule->is_last_there(a) ? c_.schedule->summed_of(a.chunk) : 1;
}

void ChunkWork::finish_input_gradient(const Action& a, Bundle dx, Effects& fx) {
  sums_.close_read(a);
  if (c_.schedule->is_first(a.chunk) || dx.empty()) {
    return;
  }
  for (auto& [to, bundle] : to_section(a.chunk, c_.schedule->before(a.chunk), std::move(dx))) {
    fx.send(modules_ ? modules_->error_to(to) : stage_of(to, a.batch, a.micro_batch),
            ErrorSignal{stamp(a, to), std::move(bundle)});
  }
}

void ChunkWork::finish(const Action& a, BackwardPass&& made, Effects& fx) {
  finish_input_gradient(a, std::move(made.dx), fx);
  sums_.put(a.chunk, std::move(made.gradient));
}

void ChunkWork::finish(const Action& a, InputGradient&& made, Effects& fx) {
  stashes_.keep_deltas(a, std::move(made.deltas));
  finish_input_gradient(a, std::move(made.dx), fx);
}

void ChunkWork::finish(const Action& a, WeightGradient&& made, Effects& /*fx*/) {
  sums_.put(a.chunk, std::move(made.gradient));
}

// -- updates ---------------------------------------------------------------------------------------

void ChunkWork::push(const Action& a, Effects& fx) {
  // The shard is to have the only handle of these weights, so that the update may be made in place.
  in_hand_.drop({a.chunk, 0});
  BatchGradient batch = sums_.take_batch(a);
  if (modules_) {
    const bool made = modules_->updates(a.chunk, a.batch);
    if (!made) {
      batch.gradient.clear();
    }
    modules_->record_update(in_run(a), made, fx);
  }
  if (angle_) {
    angle_->tell_update(a, batch.gradient, fx);
  }
  shards_.push(a, std::move(batch), *c_.schedule, fx);
}

void ChunkWork::skip(const Action& a, double now, Effects& fx) {
  if (a.act == Act::update) {
    in_hand_.drop({a.chunk, 0});
    shards_.push(a,
                 BatchGradient{.gradient = {}, .reads = {}, .read_time = now, .forward = {}},
                 *c_.schedule,
                 fx);
  } else if (a.act == Act::forward) {
    statistics_.finish_batch(a.chunk, a.batch, fx);
    fx.record(InputRecord{in_run(a), Drawn::none});
  }
}

void ChunkWork::archive(Archive& a) {
  a(shards_, in_hand_, arrivals_, stashes_, sums_, statistics_, forward_weights_, first_);
  if (drawn_) {
    a(*drawn_);
  }
}

}  // namespace troupe
