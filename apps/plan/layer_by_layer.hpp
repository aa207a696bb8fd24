// A network as one chunk a layer and part, on one stream, each of which is timed by itself. Private to this folder.
#pragma once

#include "actors/pipeline/optimizer.hpp"
#include "apps/topologies/blueprint.hpp"
#include "messages/sections.hpp"
#include "runtime/data/batch.hpp"
#include "runtime/schemes/partition/partition.hpp"

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <memory>
#include <vector>

namespace troupe {

double seconds_of_clock(clockid_t clock);

class LayerByLayer {
 public:
  /// Of `b`, which outlives this, with the first micro-batch of its samples.
  explicit LayerByLayer(const Blueprint& b);

  /// All forwards, the loss, all input gradients, all weight gradients, all updates.
  void pass();

  /// Forgets the times so far.
  void forget();

  std::size_t layers() const { return steps_.size(); }

  const Chunk& layer(std::size_t layer) const { return steps_[layer].chunk; }

  /// Medians of the passes.
  LayerProfile profile(std::size_t layer) const;

 private:
  struct Times {
    std::vector<double> forward;
    std::vector<double> input_gradient;
    std::vector<double> weight_gradient;
    std::vector<double> update;
    std::vector<double> addition;
  };

  struct Step {
    Chunk chunk;
    Weights weights;  // its own
    std::vector<Tensor> buffers{};
    std::unique_ptr<Optimizer> optimizer;
    Stash stash{};                   // what backward needs next
    std::vector<Tensor> gradient{};  // its own slices, then borrowed ones
    std::vector<Tensor> other{};     // an alternate's gradient
    Times times{};
  };

  template <class F>
  auto timed(std::vector<double>& times, F work);
  Weights weights_of(const Step& step) const;

  Pass training() { return {.stream = stream_, .seed = sections::seed(b_.experiment)}; }

  void forward();
  void backward();
  void update();
  void measure_bytes();

  const Blueprint& b_;
  Network network_;
  std::size_t width_;
  std::int32_t micro_batches_;
  bool weights_shared_;
  Stream stream_;
  Batch batch_;
  std::vector<Step> steps_;          // by layer and part
  std::vector<Bundle> bundles_;      // by layer: its outputs, until bytes_ are known
  std::vector<LayerProfile> bytes_;  // by layer, without seconds
};

}  // namespace troupe
