// Operations that have no CUDA kernel yet. Each goes away when its file comes.
#include "kernels/convolution.hpp"

namespace troupe::cuda {

namespace {

[[noreturn]] void not_yet(const char* op) {
  throw ContractError(
      concat("[", op, "] has no CUDA kernel yet; run the stages that need it on the CPU"));
}

}  // namespace

void convolution_forward(Stream&,
                         const ConvolutionGeometry&,
                         const Tensor&,
                         const Tensor&,
                         const Tensor&,
                         ActivationKind,
                         const Tensor&) {
  not_yet("convolution_forward");
}

void convolution_input_gradient(
    Stream&, const ConvolutionGeometry&, const Tensor&, const Tensor&, const Tensor&) {
  not_yet("convolution_input_gradient");
}

void convolution_weight_gradient(
    Stream&, const ConvolutionGeometry&, const Tensor&, const Tensor&, const Tensor&, bool) {
  not_yet("convolution_weight_gradient");
}

void max_pool_forward(
    Stream&, const ConvolutionGeometry&, const Tensor&, const Tensor&, const Tensor&) {
  not_yet("max_pool_forward");
}

void max_pool_backward(
    Stream&, const ConvolutionGeometry&, const Tensor&, const Tensor&, const Tensor&) {
  not_yet("max_pool_backward");
}

}  // namespace troupe::cuda
