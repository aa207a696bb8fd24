#include "actors/pipeline/probe.hpp"

#include "messages/archive.hpp"

#include <utility>

namespace troupe {
namespace {

double sum_of_products(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  double sum = 0;
  for (std::size_t s = 0; s < a.size(); ++s) {
    const auto x = a[s].span<float>();
    const auto y = b[s].span<float>();
    for (std::size_t i = 0; i < x.size(); ++i) {
      sum += static_cast<double>(x[i]) * static_cast<double>(y[i]);
    }
  }
  return sum;
}

/// The mean loss's gradient, by chunk and slice, as backpropagation through all chunks makes it.
std::vector<std::vector<Tensor>> true_gradients(Stream& stream,
                                                const Probe::Config& c,
                                                const Probe::Heard& of) {
  std::vector<std::vector<Tensor>> gradients(c.chunks.size());
  for (std::int32_t j = 0; j < c.micro_batches; ++j) {
    const Pass pass{.stream = stream, .seed = c.seed, .first_sample = of.first_samples.at(j)};
    std::vector<Stash> stashes;
    Bundle bundle{{"x", of.inputs.at(j)}};
    for (std::size_t k = 0; k < c.chunks.size(); ++k) {
      const Chunk& chunk = *c.chunks[k];
      ForwardPass made = chunk.forward(pass,
                                       of.weights.at(static_cast<std::int32_t>(k)),
                                       c.buffers[k],
                                       bundle,
                                       chunk.last() ? of.labels.at(j) : Tensor(),
                                       true);
      stashes.push_back(std::move(made.stash));
      bundle = std::move(made.y);
    }
    Bundle error;
    for (std::size_t k = c.chunks.size(); k-- > 0;) {
      InputGradient half = c.chunks[k]->input_gradient(pass,
                                                       of.weights.at(static_cast<std::int32_t>(k)),
                                                       std::move(stashes[k]),
                                                       std::move(error));
      gradients[k] = c.chunks[k]
                         ->weight_gradient(stream,
                                           half.deltas,
                                           std::move(gradients[k]),
                                           j + 1 == c.micro_batches ? c.micro_batches : 1)
                         .gradient;
      error = std::move(half.dx);
    }
  }
  return gradients;
}

}  // namespace

void Probe::handle(Note m, double, Effects& fx) {
  Heard& heard = heard_[m.stamp.batch];
  if (m.what == probe_note::kInput) {
    heard.inputs[m.stamp.micro_batch] = std::move(m.tensors.front());
    heard.first_samples[m.stamp.micro_batch] = static_cast<std::int64_t>(m.numbers.front());
  } else if (m.what == probe_note::kLabels) {
    heard.labels[m.stamp.micro_batch] = std::move(m.tensors.front());
  } else if (m.what == probe_note::kWeights) {
    Weights& weights = heard.weights[m.stamp.chunk];
    for (Tensor& slice : m.tensors) {
      weights.push_back({.values = std::move(slice)});
    }
  } else {
    heard.gradients[m.stamp.chunk] = std::move(m.tensors);
  }
  if (!complete(heard)) {
    return;
  }
  run(fx,
      {.stamp = {m.stamp.replica, 0, m.stamp.batch, 0}},
      [c = c_, of = std::move(heard), batch = m.stamp.batch](Stream& stream) {
        const std::vector<std::vector<Tensor>> truths = true_gradients(stream, c, of);
        Computed made;
        made.numbers.push_back(static_cast<double>(batch));
        for (const auto& [chunk, gradient] : of.gradients) {
          const std::vector<Tensor>& truth = truths[static_cast<std::size_t>(chunk)];
          made.numbers.push_back(sum_of_products(gradient, truth));
          made.numbers.push_back(sum_of_products(gradient, gradient));
          made.numbers.push_back(sum_of_products(truth, truth));
        }
        return made;
      });
  heard_.erase(m.stamp.batch);
}

bool Probe::complete(const Heard& heard) const {
  const auto parts = static_cast<std::size_t>(c_.micro_batches);
  return heard.inputs.size() == parts && heard.labels.size() == parts &&
         heard.weights.size() == c_.chunks.size() && heard.gradients.size() == c_.chunks.size();
}

void Probe::handle(Ran<Computed> m, double, Effects& fx) {
  const std::vector<double>& numbers = m.made.numbers;
  for (std::size_t k = 0; k < c_.chunks.size(); ++k) {
    fx.record(AngleRecord{.stamp = {.chunk = static_cast<std::int32_t>(k),
                                    .batch = static_cast<std::int64_t>(numbers[0])},
                          .product = numbers[3 * k + 1],
                          .update = numbers[3 * k + 2],
                          .truth = numbers[3 * k + 3]});
  }
}

void Probe::archive(Archive& a) {
  a(heard_);
}

}  // namespace troupe
