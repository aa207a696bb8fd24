// Convolutions of few channels, for which oneDNN's layouts of sixteen channels are mostly empty:
// LeNet's 1 -> 6 and 6 -> 16. They are matrix products whose left factor is read where it lies
// (NHWC): the pixels of a filter's row are kernel x C floats side by side.
#pragma once

#include "kernels/cpu/backend.hpp"

namespace troupe::cpu::TROUPE_ISA {

/// Whether these kernels are to be used for the shape: they are faster than oneDNN's there, or oneDNN's overrun their
/// memory.
bool small_forward(const ConvolutionPlan& plan);
bool small_input_gradient(const ConvolutionPlan& plan);
bool small_weight_gradient(const ConvolutionPlan& plan);

// Arguments as OneDnn's; the forward pass applies ReLU while y is in registers.
void small_convolution_forward(Backend& backend,
                               const ConvolutionPlan& plan,
                               const float* x,
                               const float* w,
                               const float* bias,
                               bool relu,
                               float* y);
void small_convolution_input_gradient(
    Backend& backend, const ConvolutionPlan& plan, const float* dy, const float* w, float* dx);
void small_convolution_weight_gradient(Backend& backend,
                                       const ConvolutionPlan& plan,
                                       const float* x,
                                       const float* dy,
                                       float* dw,
                                       bool accumulate);

}  // namespace troupe::cpu::TROUPE_ISA
