#include "actors/pipeline/stage/jobs.hpp"

#include <utility>

namespace troupe {

ForwardPass ForwardJob::operator()(Stream& stream) {
  const Pass pass{
      .stream = stream, .training = training, .seed = seed, .first_sample = first_sample};
  ForwardPass made = chunk->forward(pass, weights, std::move(buffers), input, labels, keep);
  if (influence) {
    made.influence = chunk->influence(pass, weights, made.stash, made.y);
  }
  return made;
}

InputGradient InputGradientJob::operator()(Stream& stream) {
  const Pass pass{.stream = stream, .seed = seed, .first_sample = kept.first_sample};
  const KeptMore& more = kept.more.empty() ? KeptMore{} : kept.more.front();
  if (recompute) {
    kept.stash =
        chunk->forward(pass, kept.weights, std::move(buffers), more.input, more.labels, true).stash;
  }
  if (signal) {
    kept.weights = signal->backward(std::move(kept.weights));
  }
  if (makes_error) {
    SignalInputs inputs{.output = more.output, .labels = more.labels};
    for (const NamedTensor& sent : error) {  // of two senders, in the order in which they came
      (sent.name == kInfluence ? inputs.influence : inputs.sent) = sent.tensor;
    }
    error.clear();
    error.push_back({"x", signal->error(stream, inputs)});
  }
  InputGradient made =
      chunk->input_gradient(pass, kept.weights, std::move(kept.stash), std::move(error));
  kept = {};  // nothing of it is needed by the other half
  return made;
}

WeightGradient WeightGradientJob::operator()(Stream& stream) {
  return chunk->weight_gradient(stream, deltas, std::move(gradient), divide_by);
}

BackwardPass BackwardJob::operator()(Stream& stream) {
  InputGradient made = input_gradient(stream);
  WeightGradient sum =
      input_gradient.chunk->weight_gradient(stream, made.deltas, std::move(gradient), divide_by);
  return {std::move(made.dx), std::move(sum.gradient)};
}

}  // namespace troupe
