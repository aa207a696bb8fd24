// What a stage sends and to whom: a chunk's output, the gradient by its input, and that by its weights.
// Where error signals come from: runtime/schemes/decoupled.
#include "actors/stage.hpp"
#include "kernels/random.hpp"

#include <utility>

namespace troupe {

void Stage::send_output(const Action& a, Bundle y, Effects& fx) {
  if (!c_.predictors.empty()) {  // on the same thread: no link takes time
    const Ref<StageRole> predictor = c_.predictors[static_cast<std::size_t>(a.chunk)];
    fx.sends.push_back({predictor.id, Activation{stamp(a, a.chunk), y}, false});
  }
  fx.send(stage_of(a.chunk + 1), Activation{stamp(a, a.chunk + 1), std::move(y)});
}

/// dL / d(output of the network) is known as soon as the loss is: no module waits for the backward of
/// another.
void Stage::send_output_error(const Action& a, const Stash& stash, Effects& fx) {
  for (std::int32_t c = 0; c < a.chunk; ++c) {
    fx.send(stage_of(c), ErrorSignal{stamp(a, c), {{"x", stash.back().front()}}});
  }
}

void Stage::finish_input_gradient(const Action& a, Bundle dx, Effects& fx) {
  sums_.close_read(a);
  if (a.chunk == 0 || dx.empty()) {
    return;
  }
  const std::int32_t before = a.chunk - 1;
  fx.send(
      c_.predictors.empty() ? stage_of(before) : c_.predictors[static_cast<std::size_t>(before)],
      ErrorSignal{stamp(a, before), std::move(dx)});
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
  if (!updates(a.chunk, a.batch)) {
    batch.gradient.clear();
  }
  shards_.push(a, std::move(batch), fx);
  ++updates_;
  note_finished(fx);
}

}  // namespace troupe
