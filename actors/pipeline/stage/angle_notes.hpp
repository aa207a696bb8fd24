// What a stage tells the probe that measures the angle of modules' updates to backpropagation's
// (record.angle_every; actors/pipeline/probe.hpp). Measuring takes no time, so neither does what is told of it.
#pragma once

#include "actors/pipeline/stage/arrivals.hpp"
#include "runtime/system/machine.hpp"

#include <cstdint>
#include <vector>

namespace troupe {

class AngleNotes {
 public:
  struct Config {
    std::int64_t every = 1;  // mini-batches between two measurements
    Ref<ExtensionRole> probe{};
    std::int32_t replica = 0;
    std::int32_t head = 0;  // chunk
  };

  explicit AngleNotes(const Config& config) : c_(config) {}

  /// Of a forward: the network's input, which begins with sample `first_sample`, its labels, and the weights that it
  /// read.
  void tell_forward(const Action& forward,
                    const Arrivals::ForwardInput& in,
                    std::int64_t first_sample,
                    const Weights& read,
                    Effects& fx) const;

  /// Of an update: its gradient, none where it is left out.
  void tell_update(const Action& update, const std::vector<Tensor>& gradient, Effects& fx) const;

 private:
  bool measures(const Action& a) const { return (a.batch + 1) % c_.every == 0; }

  void tell(const Action& a,
            const char* what,
            std::vector<Tensor> tensors,
            std::vector<double> numbers,
            Effects& fx) const;

  Config c_;
};

}  // namespace troupe
