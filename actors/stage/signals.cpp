// What a stage sends and to whom: a chunk's output, the gradient by its input, and that by its weights.
// Where error signals come from: runtime/schemes/decoupled.
#include "actors/predictor.hpp"
#include "actors/probe.hpp"
#include "actors/stage.hpp"
#include "actors/stage/jobs.hpp"
#include "kernels/random.hpp"
#include "messages/peers.hpp"
#include "messages/pipeline.hpp"
#include "messages/results.hpp"
#include "runtime/model/layers.hpp"

#include <utility>

namespace troupe {

/// Of a forward that starts, where it has a choice.
void Stage::draw_input(const Action& forward, Effects& fx) {
  if (c_.buffer == 0) {
    return;
  }
  begun_[forward.chunk] = forward.batch + 1;
  if (forward.chunk > 0) {
    const Arrivals::Choice choice = arrivals_.draw(forward);
    fx.record(
        InputRecord{in_run(forward), choice.again ? Drawn::again : Drawn::fresh, choice.replaced});
  }
}

void Stage::send_output(const Action& a, Bundle y, const Tensor& labels, Effects& fx) {
  if (c_.buffer > 0) {
    y.push_back({kLabelsEntry, labels});
  }
  const auto next = static_cast<std::size_t>(a.chunk) + 1;
  if (!c_.predictors.empty()) {
    fx.send_beside(c_.predictors[next - 1], Activation{stamp(a, a.chunk), y});
  }
  if (c_.input_predictors.empty()) {
    fx.send(stage_of(a.chunk + 1), Activation{stamp(a, a.chunk + 1), std::move(y)});
  } else {
    y.front().name = kLesson;
    fx.send(c_.input_predictors[next - 1], Activation{stamp(a, a.chunk + 1), std::move(y)});
  }
}

/// What others are told of a forward beside its output.
void Stage::tell_of_forward(const Action& a, const ForwardPass& out, Effects& fx) {
  if (is_head(a.chunk) && c_.schedule->signal_from == SignalFrom::head) {
    // dL / d(output of the network) is known as soon as the loss is: no module waits for the backward
    // of another.
    for (std::int32_t c = 0; c < a.chunk; ++c) {
      fx.send(stage_of(c), ErrorSignal{stamp(a, c), {{"x", out.stash.back().front()}}});
    }
  }
  if (out.influence) {
    const std::int32_t before = a.chunk - 1;
    fx.send(stage_of(before), ErrorSignal{stamp(a, before), {{kInfluence, out.influence}}});
  }
  if (a.chunk > 0 && !c_.input_predictors.empty()) {
    fx.send_beside(c_.input_predictors[static_cast<std::size_t>(a.chunk) - 1], Credit{a.chunk});
  }
}

void Stage::give_credit(const Action& a, Effects& fx) {
  if (a.chunk == c_.credit_chunk || !c_.input_predictors.empty()) {
    fx.send(c_.source, Credit{a.chunk});
  }
}

void Stage::finish_input_gradient(const Action& a, Bundle dx, Effects& fx) {
  sums_.close_read(a);
  if (a.chunk == 0 || dx.empty()) {
    return;
  }
  const std::int32_t before = a.chunk - 1;
  const Ref<LearnerRole> to = c_.predictors.empty()
                                  ? Ref<LearnerRole>(stage_of(before))
                                  : c_.predictors[static_cast<std::size_t>(before)];
  fx.send(to, ErrorSignal{stamp(a, before), std::move(dx)});
}

/// Of a forward: the network's input, its labels, and the weights that it read.
void Stage::tell_probe(const Action& a,
                       const Arrivals::ForwardInput& in,
                       const Weights& read,
                       Effects& fx) const {
  if (!measures_angle(a.batch)) {
    return;
  }
  // Measuring takes no time, so neither does what is told of it.
  const auto tell =
      [&](const char* what, std::vector<Tensor> tensors, std::vector<double> numbers) {
        Note note{stamp(a, a.chunk), what, std::move(numbers), std::move(tensors)};
        fx.send_beside(c_.probe, std::move(note));
      };
  if (a.chunk == 0) {
    const Tensor& x = in.bundle.front().tensor;
    tell(probe_note::kInput, {x}, {static_cast<double>(first_sample(a, x.shape()[0]))});
  }
  if (is_head(a.chunk)) {
    tell(probe_note::kLabels, {in.labels}, {});
  }
  if (a.micro_batch == 0) {
    std::vector<Tensor> slices;
    for (const Slice& slice : read) {
      slices.push_back(slice.values);
    }
    tell(probe_note::kWeights, std::move(slices), {});
  }
}

/// Of an update: its gradient, none where it is left out.
void Stage::tell_probe(const Action& update,
                       const std::vector<Tensor>& gradient,
                       Effects& fx) const {
  if (measures_angle(update.batch)) {
    Note note{stamp(update, update.chunk), probe_note::kGradient, {}, gradient};
    fx.send_beside(c_.probe, std::move(note));
  }
}

bool Stage::updates(std::int32_t chunk, std::int64_t batch) const {
  if (c_.update_probability == 1 || is_head(chunk)) {
    return true;
  }
  const std::string name = "updates" + std::to_string(chunk);
  const RandomStream random(c_.seed, Purpose::dropout, name_key(name.data(), name.size()));
  return random.uniform(static_cast<std::uint64_t>(batch)) < c_.update_probability;
}

void Stage::push(const Action& a, Effects& fx) {
  // The shard is to have the only handle of these weights, so that the update may be made in place.
  in_hand_.drop({a.chunk, 0});
  BatchGradient batch = sums_.take_batch(a);
  const bool made = updates(a.chunk, a.batch);
  if (!made) {
    batch.gradient.clear();
  }
  tell_probe(a, batch.gradient, fx);
  if (c_.tells_signals) {
    fx.record(SignalRecord{in_run(a), made && !is_head(a.chunk) && !c_.predictors.empty()});
  }
  shards_.push(a, std::move(batch), fx);
  ++updates_;
  note_finished(fx);
}

}  // namespace troupe
