// A layer of LSTM cells over whole sequences (Hochreiter & Schmidhuber 1997, with a forget gate).
//
// At step t, with h and c zero before the first:
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

/// Shapes: x (B, T, I), w_input (4H, I), w_hidden (4H, H), bias (4H), y (B, T, H); gates (T, B, 4H),
/// activated, and cells (T, B, H) are for the backward.
void lstm_forward(Stream& stream,
                  const Tensor& x,
                  const Tensor& w_input,
                  const Tensor& w_hidden,
                  const Tensor& bias,
                  const Tensor& y,
                  const Tensor& gates,
                  const Tensor& cells);

/// dgates (T, B, 4H): the gradient by what the gates' activations were applied to; dx (B, T, I): the
/// one by x, empty: not wanted. dy (B, T, H) is the one by y.
void lstm_input_gradient(Stream& stream,
                         const Tensor& w_input,
                         const Tensor& w_hidden,
                         const Tensor& gates,
                         const Tensor& cells,
                         const Tensor& dy,
                         const Tensor& dgates,
                         const Tensor& dx);

/// dw_input (4H, I), dw_hidden (4H, H) and dbias (4H) = or += the gradients, from what
/// lstm_input_gradient left in dgates.
void lstm_weight_gradient(Stream& stream,
                          const Tensor& x,
                          const Tensor& y,
                          const Tensor& dgates,
                          const Tensor& dw_input,
                          const Tensor& dw_hidden,
                          const Tensor& dbias,
                          bool accumulate);

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
