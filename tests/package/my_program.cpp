// A program of one's own that trains: its data is in memory, it watches and stops the run, and what it
// gets are the weights. No command line, no files.
#include <apps/run/train.hpp>
#include <runtime/data/memory.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iostream>
#include <map>
#include <random>
#include <string>
#include <utility>

namespace {

using namespace troupe;

/// n noisy points of a circle inside another one: which of the two are they on?
MemorySamples circles(std::int64_t n, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  MemorySamples samples;
  for (std::int64_t i = 0; i < n; ++i) {
    const auto label = static_cast<std::int32_t>(i % 2);
    const double x = normal(random);
    const double y = normal(random);
    const double radius = (label == 0 ? 0.5 : 1.0) + 0.05 * normal(random);
    samples.x.push_back(static_cast<float>(radius * x / std::hypot(x, y)));
    samples.x.push_back(static_cast<float>(radius * y / std::hypot(x, y)));
    samples.labels.push_back(label);
  }
  return samples;
}

/// Of the point (x, y), by the trained network itself: dense, ReLU, dense.
int classify(const std::map<std::string, Tensor>& weights, float x, float y) {
  const auto w1 = weights.at("dense1.weight").span<float>();  // (hidden, 2)
  const auto b1 = weights.at("dense1.bias").span<float>();
  const auto w2 = weights.at("dense2.weight").span<float>();  // (2, hidden)
  const auto b2 = weights.at("dense2.bias").span<float>();
  double of_one = b2[1] - b2[0];
  for (std::size_t i = 0; i < b1.size(); ++i) {
    const float hidden = std::max(0.0F, w1[2 * i] * x + w1[2 * i + 1] * y + b1[i]);
    of_one += (w2[b1.size() + i] - w2[i]) * hidden;
  }
  return of_one > 0 ? 1 : 0;
}

}  // namespace

int main() {
  const auto data = memory_dataset(
      {.sample = {2}, .classes = 2, .train = circles(4000, 1), .test = circles(400, 2)});
  if (!data) {
    std::cerr << data.error().message << '\n';
    return 2;
  }
  std::int64_t losses = 0;
  TrainOptions options{.data = *data};
  options.on_loss = [&losses](const TrainingLoss&) {
    ++losses;
    return true;
  };
  options.on_evaluation = [](const TestResult& tried) {
    std::cout << "step " << tried.step << ": " << 100 * *tried.accuracy << " % of the test data\n";
    return *tried.accuracy < 0.98;  // good enough: stop
  };
  const auto trained = train("glyphs-mlp",
                             {"model.mlp.hidden=[16]",
                              "pipeline.stages=2",
                              "optimizer.learning_rate=0.1",
                              "stop.epochs=100"},
                             options);
  if (!trained) {
    std::cerr << trained.error().message << '\n';
    return 2;
  }
  std::cout << losses << " losses heard, " << trained->summary.updates << " updates; "
            << trained->cause << '\n';
  for (const auto& [name, tensor] : trained->weights) {
    std::cout << name << ": " << tensor.elements() << " numbers\n";
  }
  std::cout << "(0, 0.5) is on circle " << classify(trained->weights, 0, 0.5F)
            << ", (0, 1) on circle " << classify(trained->weights, 0, 1) << '\n';
  return trained->exit_code == 0 || trained->exit_code == 130 ? 0 : trained->exit_code;
}
