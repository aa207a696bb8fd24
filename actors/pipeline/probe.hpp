// Measures how far the updates of modules point from backpropagation's (record.angle_every): makes forward
// and backward of the whole network once more, at the weights that each module's forward has read.
//
//   first stage --Note{x}--> probe          each micro-batch of a mini-batch that is measured
//   last stage --Note{labels}--> probe      likewise
//   each stage --Note{weights that the chunk's first forward read}--> probe
//   each stage --Note{gradient that the chunk pushes}--> probe
//
// It answers nobody, so that nothing of a run depends on it, and takes no time of the virtual clock. What
// is still under way at the end of a run is not measured.
#pragma once

#include "messages/peers.hpp"
#include "messages/pipeline.hpp"
#include "messages/servers.hpp"
#include "runtime/model/chunk.hpp"
#include "runtime/system/machine.hpp"

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace troupe {

/// Note::what of those that a probe is told. Note::stamp says of which chunk and micro-batch.
namespace probe_note {
inline constexpr const char* kInput = "input";        // tensors: x; numbers: its first sample
inline constexpr const char* kLabels = "labels";      // tensors: the labels
inline constexpr const char* kWeights = "weights";    // tensors: by slice
inline constexpr const char* kGradient = "gradient";  // tensors: by slice; none: no update is made
}  // namespace probe_note

class Probe final : public Actor<Probe, ExtensionRole> {
 public:
  struct Config {
    std::int32_t micro_batches = 1;  // M
    std::uint64_t seed = 1;
    /// All of the network's, in order. Each sends back, whatever the run's own do.
    std::vector<std::shared_ptr<const Chunk>> chunks;
    std::vector<std::vector<Tensor>> buffers;  // by chunk: every forward begins with these
  };

  explicit Probe(Config config) : c_(std::move(config)) {}

  void handle(const Start&, double, Effects&) {}

  void handle(const Alarm&, double, Effects&) {}

  void handle(Note m, double now, Effects& fx);
  /// numbers: the mini-batch, then product, update and truth (AngleRecord) of each chunk.
  void handle(Ran<Computed> m, double now, Effects& fx);

  void archive(Archive& a) override;

  std::string waits_for() const override { return ""; }

  /// What it has been told of a mini-batch.
  struct Heard {
    std::map<std::int32_t, Tensor> inputs{};               // by micro-batch
    std::map<std::int32_t, std::int64_t> first_samples{};  // likewise
    std::map<std::int32_t, Tensor> labels{};               // likewise
    std::map<std::int32_t, Weights> weights{};             // by chunk
    std::map<std::int32_t, std::vector<Tensor>> gradients{};
  };

 private:
  bool complete(const Heard& heard) const;

  Config c_;
  std::map<std::int64_t, Heard> heard_;  // by mini-batch
};

}  // namespace troupe
