#include "apps/run/inference.hpp"

#include "kernels/loss.hpp"
#include "runtime/data/batch.hpp"

#include <algorithm>
#include <numeric>

namespace troupe {
namespace {

constexpr std::int64_t kBatchSamples = 500;  // of a batch
constexpr std::int64_t kBatchLabels = 4096;  // of a batch, where samples have many

Tensor moved_to(Stream& stream, const Tensor& x) {
  if (stream.device() == x.device()) {
    return x;
  }
  Tensor there = stream.allocate(x.shape(), x.type());
  copy(stream, x, there);
  return there;
}

/// The sum of the losses, and the hits.
std::vector<double> judge_batch(Stream& stream,
                                const Network& network,
                                const Tensor& y,
                                const Tensor& target) {
  if (network.loss == Loss::own) {
    return to_host(own_result(stream, network.own_loss, y, target, {}));
  }
  const Tensor result = stream.allocate({2}, DType::float64);
  if (network.loss == Loss::cross_entropy) {
    const std::int64_t labels = target.elements();
    softmax_cross_entropy(stream,
                          y.reshape({labels, y.elements() / labels}),
                          target.reshape({labels}),
                          Tensor{},
                          result);
  } else {
    squared_error(stream, y, target, Tensor{}, result);
  }
  return to_host(result);
}

}  // namespace

void answer_all(const Blueprint& blueprint,
                Split split,
                const std::function<void(const Answers&)>& see) {
  Stream stream(blueprint.devices.front());
  Stream host{Device{}};  // samples are gathered there
  const Chunk& chunk = *blueprint.chunks.front();
  Weights weights;
  for (Tensor& slice : starting_slices(stream, blueprint, 0)) {
    weights.push_back({.values = std::move(slice)});
  }
  const std::vector<Tensor> buffers = starting_buffers(stream, blueprint, 0);
  const Dataset& data = *blueprint.data;
  const std::int64_t rows =
      std::clamp<std::int64_t>(kBatchLabels / data.labels_per_sample(), 1, kBatchSamples);
  for (std::int64_t first = 0; first < data.size(split); first += rows) {
    std::vector<std::int64_t> indices(
        static_cast<std::size_t>(std::min(rows, data.size(split) - first)));
    std::iota(indices.begin(), indices.end(), first);
    const Batch batch = gather_batch(host, data, split, indices, 0);
    const ForwardPass pass = chunk.forward({.stream = stream, .training = false},
                                           weights,
                                           buffers,
                                           {{"x", moved_to(stream, batch.x)}},
                                           {},
                                           false);
    const Tensor& y = pass.y.front().tensor;
    const std::vector<double> judged =
        judge_batch(stream, blueprint.network, y, moved_to(stream, batch.target));
    see({.first = first,
         .samples = static_cast<std::int64_t>(indices.size()),
         .y = to_host(y),
         .targets = to_host(batch.target),
         .loss = judged[0],
         .hits = judged[1]});
  }
}

std::size_t largest(const double* y, std::size_t classes) {
  return static_cast<std::size_t>(std::max_element(y, y + classes) - y);
}

Evaluation evaluate(const Blueprint& blueprint, Split split) {
  const Dataset& data = *blueprint.data;
  Evaluation all;
  const auto classes = static_cast<std::size_t>(data.classes());
  if (classes > 0 && data.classes() <= Evaluation::kClassesMax && data.labels_per_sample() == 1 &&
      blueprint.network.shape().elements() == data.classes()) {  // a loss of one's own takes any
    all.confusion.assign(classes, std::vector<std::int64_t>(classes));
  }
  answer_all(blueprint, split, [&](const Answers& answers) {
    all.samples += answers.samples;
    all.loss += answers.loss;
    all.accuracy += answers.hits;
    for (std::size_t i = 0; i < answers.targets.size() && !all.confusion.empty(); ++i) {
      const auto label = static_cast<std::size_t>(answers.targets[i]);
      ++all.confusion[label][largest(answers.y.data() + i * classes, classes)];
    }
  });
  all.labels = all.samples * data.labels_per_sample();
  all.loss /= static_cast<double>(all.labels);
  all.accuracy /= static_cast<double>(all.labels);
  return all;
}

}  // namespace troupe
