// Which GPUs there are, and what is missing where one cannot be used. Neither function throws: a
// machine without a driver is an ordinary machine.
#include "kernels/cuda/state.hpp"
#include "kernels/wording.hpp"

namespace troupe::cuda {

namespace {

/// "13.0" of CUDA's 13000.
std::string version(int number) {
  return std::to_string(number / 1000) + "." + std::to_string(number % 1000 / 10);
}

std::string why_none(cudaError_t code) {
  int driver = 0;
  static_cast<void>(succeeded(cudaDriverGetVersion(&driver)));
  if (code == cudaErrorInsufficientDriver && driver == 0) {
    return "this machine has no NVIDIA driver (nvidia-smi would list its GPUs)";
  }
  if (code == cudaErrorInsufficientDriver) {
    return fill_in("the NVIDIA driver is made for CUDA {}, this build needs one for {}",
                   version(driver),
                   version(CUDART_VERSION));
  }
  if (code == cudaErrorNoDevice || code == cudaSuccess) {
    return "the NVIDIA driver sees no GPU (nvidia-smi lists them, CUDA_VISIBLE_DEVICES may hide "
           "them)";
  }
  return "CUDA cannot be used: " + describe(code);
}

Error unusable(const std::string& reason) {
  return Error{ErrorKind::usage, reason + "; use the device cpu"};
}

}  // namespace

Result<void> check_available(int index) {
  int count = 0;
  const cudaError_t counted = cudaGetDeviceCount(&count);
  if (!succeeded(counted) || count == 0) {
    return unusable(why_none(counted));
  }
  if (index < 0 || index >= count) {
    return usage_error("there is no cuda:{}; this machine has {}",
                       index,
                       count == 1 ? "cuda:0 only" : concat("cuda:0 to cuda:", count - 1));
  }
  if (const cudaError_t code = cudaSetDevice(index); !succeeded(code)) {
    return unusable(concat("cuda:", index, " cannot be used: ", describe(code)));
  }
  if (const cudaError_t code = kernels_load(); !succeeded(code)) {
    return unusable(
        fill_in("cuda:{} cannot run this build's kernels (CMAKE_CUDA_ARCHITECTURES says for which "
                "GPUs they are compiled): {}",
                index,
                describe(code)));
  }
  return {};
}

bool has_narrow_products(int index) {
  constexpr int kMajorMin = 8;
  int major = 0;
  return succeeded(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, index)) &&
         major >= kMajorMin;
}

std::vector<DeviceInfo> devices() {
  int count = 0;
  if (!succeeded(cudaGetDeviceCount(&count))) {
    return {};
  }
  std::vector<DeviceInfo> all;
  for (int index = 0; index < count; ++index) {
    cudaDeviceProp properties{};
    if (succeeded(cudaGetDeviceProperties(&properties, index))) {
      all.push_back({Device{DeviceKind::cuda, index}, properties.name, properties.totalGlobalMem});
    }
  }
  return all;
}

}  // namespace troupe::cuda
