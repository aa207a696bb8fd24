// Convolutions of many channels, where oneDNN's reach 15 to 85 % of the peak, the least on small images
// (kernels/BENCHMARKS.md; convolution.cpp says where ours take their place). They are matrix products
// whose left factor is read through a table of pixels, so that nothing is multiplied by zeros but
// at the borders of large images.
#pragma once

#include "kernels/cpu/backend.hpp"

namespace troupe::cpu::TROUPE_ISA {

/// Whether the three below can do it: channels in whole panels, a filter of more than one tap, and enough samples.
bool packed_convolution_takes(const ConvolutionPlan& plan);

// Arguments as OneDnn's.
void packed_convolution_forward(Backend& backend,
                                const ConvolutionPlan& plan,
                                const float* x,
                                const float* w,
                                const float* bias,
                                float* y);
void packed_convolution_input_gradient(
    Backend& backend, const ConvolutionPlan& plan, const float* dy, const float* w, float* dx);
void packed_convolution_weight_gradient(Backend& backend,
                                        const ConvolutionPlan& plan,
                                        const float* x,
                                        const float* dy,
                                        float* dw,
                                        bool accumulate);

}  // namespace troupe::cpu::TROUPE_ISA
