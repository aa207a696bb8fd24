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

/// Shapes: x (B, T, I), w_input (4H, I), w_hidden (4H, H), bias (4H), y (B, T, H); gates (T, B, 4H),
/// activated, and cells (T, B, H) are for the backward. `before` is read, `after` written.
void lstm_forward(Stream& stream,
                  const Tensor& x,
                  const Tensor& w_input,
                  const Tensor& w_hidden,
                  const Tensor& bias,
                  const Tensor& y,
                  const Tensor& gates,
                  const Tensor& cells,
                  const LstmState& before = {},
                  const LstmState& after = {});

/// What lies outside the sequence, where it is not alone.
struct LstmOutside {
  LstmState before{};  // the state, as the forward had it
  LstmState
      dafter{};  // the gradient by the state behind the last step that what follows sends back
  LstmState dbefore{};  // written: the gradient by `before`
};

/// dgates (T, B, 4H): the gradient by what the gates' activations were applied to; dx (B, T, I): the
/// one by x, empty: not wanted. dy (B, T, H) is the one by y, without what `outside.dafter` says.
void lstm_input_gradient(Stream& stream,
                         const Tensor& w_input,
                         const Tensor& w_hidden,
                         const Tensor& gates,
                         const Tensor& cells,
                         const Tensor& dy,
                         const Tensor& dgates,
                         const Tensor& dx,
                         const LstmOutside& outside = {});

/// dw_input (4H, I), dw_hidden (4H, H) and dbias (4H) = or += the gradients, from what
/// lstm_input_gradient left in dgates. `hidden_before` (B, H), empty: zeros.
void lstm_weight_gradient(Stream& stream,
                          const Tensor& x,
                          const Tensor& y,
                          const Tensor& dgates,
                          const Tensor& dw_input,
                          const Tensor& dw_hidden,
                          const Tensor& dbias,
                          bool accumulate,
                          const Tensor& hidden_before = {});

/// x (M, N, C) as a new tensor (N, M, C).
Tensor with_leading_swapped(Stream& stream, const Tensor& x);

// What the three are made of, besides products. The backends: arguments already checked.
namespace cpu {
/// y[j, i, :] = x[i, j, :]. Shapes: x (M, N, C), y (N, M, C).
void swap_leading(Stream& stream, const Tensor& x, const Tensor& y);

/// One step. gates (B, 4H): activated in place; cell_before (B, H), empty: zeros; cell and hidden
/// (B, H) are written.
void lstm_cell_forward(Stream& stream,
                       const Tensor& gates,
                       const Tensor& cell_before,
                       const Tensor& cell,
                       const Tensor& hidden);

/// One step backward. gates (B, 4H), cell and dhidden (B, H) are read, so is cell_before (B, H),
/// empty: zeros. dcell (B, H): in, the gradient by this step's cell state as later steps have it;
/// out, the one by the state before. dgates (B, 4H) is written.
void lstm_cell_backward(Stream& stream,
                        const Tensor& gates,
                        const Tensor& cell,
                        const Tensor& cell_before,
                        const Tensor& dhidden,
                        const Tensor& dcell,
                        const Tensor& dgates);
}  // namespace cpu

namespace cuda {
void swap_leading(Stream& stream, const Tensor& x, const Tensor& y);
void lstm_cell_forward(Stream& stream,
                       const Tensor& gates,
                       const Tensor& cell_before,
                       const Tensor& cell,
                       const Tensor& hidden);
void lstm_cell_backward(Stream& stream,
                        const Tensor& gates,
                        const Tensor& cell,
                        const Tensor& cell_before,
                        const Tensor& dhidden,
                        const Tensor& dcell,
                        const Tensor& dgates);
}  // namespace cuda

}  // namespace troupe
