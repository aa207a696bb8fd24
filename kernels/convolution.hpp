// 2-D convolution (cross-correlation, as everywhere in deep learning) and pooling, NHWC.
#pragma once

#include "kernels/activation.hpp"
#include "kernels/stream.hpp"

namespace troupe {

struct ConvolutionGeometry {
  std::int64_t kernel = 1;  // height = width of the filter
  std::int64_t stride = 1;
  std::int64_t padding = 0;  // zeros on every side

  std::int64_t output(std::int64_t input) const {
    return (input + 2 * padding - kernel) / stride + 1;
  }
};

/// Of one call. x and y are float32 or of the stream's operand_type(), the others float32.
struct ConvolutionArguments {
  const ConvolutionGeometry& geometry;
  const Tensor& x;            // (B, H, W, C)
  const Tensor& w;            // (O, kernel, kernel, C)
  const Tensor& bias;         // (O), or empty for none
  ActivationKind activation;  // none, relu, tanh or selu
  const Tensor& y;            // (B, H', W', O), written
};

/// y = act(conv(x, w) + bias). On a GPU, x, w, y and their gradients begin at multiples of 16 bytes, and a
/// build without cuDNN throws ContractError (cudnn_version()). Precision: the stream's; on a CPU always
/// float32. In bf16 on a GPU y, dx and dw, too, pass through bfloat16, but for filters of one pixel and stride 1, which are
/// products (matmul.hpp): what they write is of its own type, and beside a bfloat16 y the bias is rounded.
void convolution_forward(Stream& stream, const ConvolutionArguments& arguments);

/// dx = the gradient by x, given dy by conv(x, w) + bias (before the activation), each float32 or of
/// the stream's operand_type(). Shapes as above.
void convolution_input_gradient(Stream& stream,
                                const ConvolutionGeometry& geometry,
                                const Tensor& dy,
                                const Tensor& w,
                                const Tensor& dx);

/// dw = or += the gradient by w; the bias's is column_sum of dy as (B H' W', O).
void convolution_weight_gradient(Stream& stream,
                                 const ConvolutionGeometry& geometry,
                                 const Tensor& x,
                                 const Tensor& dy,
                                 const Tensor& dw,
                                 bool accumulate);

/// y = the maximum of each kernel x kernel window, `winner` its place in the window (row-major, the
/// first of equals). Shapes: x (B, H, W, C), y and winner (int32) (B, H', W', C). Padding counts as
/// minus infinity. In all poolings the images are of one type, float32 or the stream's operand_type().
void max_pool_forward(Stream& stream,
                      const ConvolutionGeometry& geometry,
                      const Tensor& x,
                      const Tensor& y,
                      const Tensor& winner);

/// dx = dy at each window's winner, summed where windows overlap, zero elsewhere.
void max_pool_backward(Stream& stream,
                       const ConvolutionGeometry& geometry,
                       const Tensor& dy,
                       const Tensor& winner,
                       const Tensor& dx);

/// y = the mean of each kernel x kernel window. Padding counts as zeros and is counted, as PyTorch
/// does by default. Shapes: x (B, H, W, C), y (B, H', W', C).
void average_pool_forward(Stream& stream,
                          const ConvolutionGeometry& geometry,
                          const Tensor& x,
                          const Tensor& y);

/// dx = for each pixel the sum of dy over the windows that it is in, divided by kernel^2.
void average_pool_backward(Stream& stream,
                           const ConvolutionGeometry& geometry,
                           const Tensor& dy,
                           const Tensor& dx);

// The backends: same signatures, arguments already checked.
TROUPE_BACKENDS(convolution_forward);
TROUPE_BACKENDS(convolution_input_gradient);
TROUPE_BACKENDS(convolution_weight_gradient);
TROUPE_BACKENDS(max_pool_forward);
TROUPE_BACKENDS(max_pool_backward);
TROUPE_BACKENDS(average_pool_forward);
TROUPE_BACKENDS(average_pool_backward);

}  // namespace troupe
