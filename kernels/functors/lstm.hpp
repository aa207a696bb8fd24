// The arithmetic of one LSTM cell at one step, written once for host and device. `forward` and
// `backward` stand side by side; what the forward leaves (activated gates, cell states) is all that
// the backward needs.
#pragma once

#include "kernels/functors/math.hpp"
#include "kernels/hd.hpp"

namespace troupe {

/// The four gates, in PyTorch's order: activated, before the activation, or the gradients of these.
struct LstmGates {
  float i;  // input, a sigmoid
  float f;  // forget, a sigmoid
  float g;  // candidate, a tanh
  float o;  // output, a sigmoid
};

// Hochreiter & Schmidhuber 1997, with the forget gate of Gers et al. 2000.
struct LstmCell {
  LstmGates gates;  // activated
  float cell;       // c = f c_before + i g
  float hidden;     // h = o tanh c

  TROUPE_HD static LstmCell forward(const LstmGates& before_activation, float cell_before) {
    const LstmGates gates{sigmoid_float(before_activation.i),
                          sigmoid_float(before_activation.f),
                          tanh_float(before_activation.g),
                          sigmoid_float(before_activation.o)};
    const float cell = gates.f * cell_before + gates.i * gates.g;
    return {gates, cell, gates.o * tanh_float(cell)};
  }
};

struct LstmCellGradient {
  LstmGates gates;    // before the activations
  float cell_before;  // by the cell state one step earlier

  /// dhidden: by h, of this step and all later ones. dcell: by c, of all later steps.
  TROUPE_HD static LstmCellGradient backward(
      const LstmGates& gates, float cell, float cell_before, float dhidden, float dcell) {
    const float t = tanh_float(cell);
    const float d = dcell + dhidden * gates.o * (1.0f - t * t);  // by c, of all
    return {{d * gates.g * gates.i * (1.0f - gates.i),
             d * cell_before * gates.f * (1.0f - gates.f),
             d * gates.i * (1.0f - gates.g * gates.g),
             dhidden * t * gates.o * (1.0f - gates.o)},
            d * gates.f};
  }
};

}  // namespace troupe
