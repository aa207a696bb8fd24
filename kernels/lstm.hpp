// A layer of LSTM cells over whole sequences (Hochreiter & Schmidhuber 1997, with a forget gate).
//
// At step t, with h and c zero before the first, or what they are said to be:
//   i, f, o = sigmoid, g = tanh of (w_input x_t + w_hidden h_{t-1} + bias), H rows each in the
//   order i, f, g, o (PyTorch's); c_t = f c_{t-1} + i g; h_t = o tanh c_t = y_t.
//
// Tensors of a model are batch-major, (B, T, .); what belongs to one step must lie together to be
// multiplied, so that what is kept between forward and backward is time-major, (T, B, .). float32,
// all extents >= 1; nothing may alias anything. Throws ContractError on shapes, types or devices
// that disagree. Scratch memory is the pool's: as large as x, y or dgates.
#pragma once

#include "kernels/stream.hpp"

namespace troupe {

/// h and c before the first step or behind the last, or gradients by them: (B, H) each. Where both are empty they are
/// zero, or not wanted.
struct LstmState {
  Tensor hidden{};
  Tensor cell{};
};

/// Of one call, as all structs of references here.
struct LstmForward {
  const Tensor& x;         // (B, T, I)
  const Tensor& w_input;   // (4H, I)
  const Tensor& w_hidden;  // (4H, H)
  const Tensor& bias;      // (4H)
  const Tensor& y;         // (B, T, H), written
  const Tensor& gates;     // (T, B, 4H), activated; written for the backward
  const Tensor& cells;     // (T, B, H), written for the backward
  LstmState before{};      // read
  LstmState after{};       // written
};

/// All steps, the first from `before`.
void lstm_forward(Stream& stream, const LstmForward& arguments);

/// What lies outside the sequence, where it is not alone.
struct LstmOutside {
  LstmState before{};  // the state, as the forward had it
  LstmState
      dafter{};  // the gradient by the state behind the last step that what follows sends back
  LstmState dbefore{};  // written: the gradient by `before`
};

struct LstmInputGradient {
  const Tensor& w_input;
  const Tensor& w_hidden;
  const Tensor& gates;
  const Tensor& cells;
  const Tensor& dy;      // (B, T, H), the gradient by y, without what outside.dafter says
  const Tensor& dgates;  // (T, B, 4H), written
  const Tensor& dx;      // (B, T, I), written: the gradient by x; empty: not wanted
  LstmOutside outside{};
};

/// dgates = the gradient by what the gates' activations were applied to, of all steps from the last.
void lstm_input_gradient(Stream& stream, const LstmInputGradient& arguments);

struct LstmWeightGradient {
  const Tensor& x;
  const Tensor& y;
  const Tensor& dgates;     // as lstm_input_gradient left it
  const Tensor& dw_input;   // (4H, I)
  const Tensor& dw_hidden;  // (4H, H)
  const Tensor& dbias;      // (4H)
  bool accumulate;
  Tensor hidden_before{};  // (B, H); empty: zeros
};

/// dw_input, dw_hidden and dbias = or += the gradients.
void lstm_weight_gradient(Stream& stream, const LstmWeightGradient& arguments);

/// x (M, N, C) as a new tensor (N, M, C).
Tensor with_leading_swapped(Stream& stream, const Tensor& x);

// What the three are made of, besides products. The backends: arguments already checked.

/// dcell is, before, the gradient by this step's cell state as later steps have it and, behind, the one
/// by the state before.
struct LstmCellGradients {
  const Tensor& gates;        // (B, 4H)
  const Tensor& cell;         // (B, H)
  const Tensor& cell_before;  // (B, H); empty: zeros
  const Tensor& dhidden;      // (B, H)
  const Tensor& dcell;        // (B, H), read and written
  const Tensor& dgates;       // (B, 4H), written
};

namespace cuda {
/// y[j, i, :] = x[i, j, :]. Shapes: x (M, N, C), y (N, M, C).
void swap_leading(Stream& stream, const Tensor& x, const Tensor& y);

/// One step. gates (B, 4H): activated in place; cell_before (B, H), empty: zeros; cell and hidden
/// (B, H) are written.
void lstm_cell_forward(Stream& stream,
                       const Tensor& gates,
                       const Tensor& cell_before,
                       const Tensor& cell,
                       const Tensor& hidden);

/// One step backward.
void lstm_cell_backward(Stream& stream, const LstmCellGradients& arguments);
}  // namespace cuda

TROUPE_ON_CPU(decltype(cuda::swap_leading) swap_leading);
TROUPE_ON_CPU(decltype(cuda::lstm_cell_forward) lstm_cell_forward);
TROUPE_ON_CPU(decltype(cuda::lstm_cell_backward) lstm_cell_backward);

}  // namespace troupe
