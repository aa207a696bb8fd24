// Convolution in a CUDA build without cuDNN.
#include "kernels/convolution.hpp"
#include "kernels/cuda/backend.hpp"

namespace troupe::cuda {

namespace {

[[noreturn]] void unavailable(const char* op) {
  throw ContractError(concat("[",
                             op,
                             "] this build has no cuDNN 9; configure where it is installed beside "
                             "CUDA, or run the stages that convolve on the CPU"));
}

}  // namespace

std::string cudnn_version() {
  return "";
}

void convolution_forward(Stream&,
                         const ConvolutionGeometry&,
                         const Tensor&,
                         const Tensor&,
                         const Tensor&,
                         ActivationKind,
                         const Tensor&) {
  unavailable("convolution_forward");
}

void convolution_input_gradient(
    Stream&, const ConvolutionGeometry&, const Tensor&, const Tensor&, const Tensor&) {
  unavailable("convolution_input_gradient");
}

void convolution_weight_gradient(
    Stream&, const ConvolutionGeometry&, const Tensor&, const Tensor&, const Tensor&, bool) {
  unavailable("convolution_weight_gradient");
}

}  // namespace troupe::cuda
