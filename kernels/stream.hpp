// The place where kernels are put in order: one a thread. On the CPU a kernel has run when its call
// returns; on a GPU it is enqueued. A stream owns what kernels need besides their arguments:
// compiled primitives, scratch memory and library handles, so that kernels themselves allocate
// nothing.
#pragma once

#include "kernels/event.hpp"
#include "kernels/tensor.hpp"

#include <memory>

namespace troupe {

namespace cpu {
class Backend;  // kernels/cpu/backend.hpp
}

namespace cuda {
class Backend;  // kernels/cuda/backend.hpp
}

/// Declares a function of the CPU kernels once for each instruction set that they are compiled for; TROUPE_CPU (dispatch.hpp)
/// names the one in use.
#define TROUPE_ON_CPU(...) \
  namespace cpu::v3 {      \
  __VA_ARGS__;             \
  }                        \
  namespace cpu::v4 {      \
  __VA_ARGS__;             \
  }                        \
  namespace cpu::one {     \
  __VA_ARGS__;             \
  }                        \
  static_assert(true)

/// Declares what an op is called for on either device, with the op's own signature.
#define TROUPE_BACKENDS(op)               \
  TROUPE_ON_CPU(decltype(troupe::op) op); \
  namespace cuda {                        \
  decltype(troupe::op) op;                \
  }                                       \
  static_assert(true)

/// Not thread-safe: made and used by one thread at a time.
class Stream {
 public:
  /// Throws CudaError where the device cannot be used, ContractError where it cannot multiply in `precision`; ask
  /// check_available() and check_precision() first.
  explicit Stream(Device device, Precision precision = Precision::fp32);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  Device device() const { return device_; }

  /// Of the products put on this stream.
  Precision precision() const { return precision_; }

  /// What a product reads fastest: bfloat16 on a GPU in bf16, else float32 (convert.hpp).
  DType operand_type() const {
    return device_.kind == DeviceKind::cuda && precision_ == Precision::bf16 ? DType::bfloat16
                                                                             : DType::float32;
  }

  /// A tensor from the device's pool, contents undefined.
  Tensor allocate(Shape shape, DType type = DType::float32);

  /// Passes when everything put on this stream so far is done; empty on the CPU.
  Event record();
  /// Later work on this stream starts after `event`.
  void wait(const Event& event);
  /// Blocks until everything put on this stream is done.
  void synchronize();

  cpu::Backend& cpu() { return *cpu_; }

  cuda::Backend& cuda() { return *cuda_; }

 private:
  Device device_;
  Precision precision_;
  std::unique_ptr<cpu::Backend> cpu_;
  std::unique_ptr<cuda::Backend> cuda_;
};

/// dst = src, across devices too; shapes and types must agree. Enqueued on `stream`, which is of
/// either's device.
void copy(Stream& stream, const Tensor& src, const Tensor& dst);

/// Every element = value (float32 or float64).
void fill(Stream& stream, const Tensor& x, double value);

/// Every element *= factor (float32).
void scale(Stream& stream, const Tensor& x, float factor);

/// A tensor of `values` on the stream's device (blocks on a GPU). Sizes must agree.
Tensor from_host(Stream& stream, std::span<const float> values, Shape shape);
Tensor from_host(Stream& stream, std::span<const std::int32_t> values, Shape shape);

/// The elements in host memory; waits for the tensor's event, then for the copy. Of every type.
std::vector<double> to_host(const Tensor& x);

// The backends: same signatures, arguments already checked.
namespace cpu {
void copy(Stream& stream, const Tensor& src, const Tensor& dst);  // host to host
}  // namespace cpu

namespace cuda {
/// At least one of the two on a GPU. Enqueued on a GPU's stream, except that a copy to the host has
/// been done at return and a copy from the host leaves `src` reusable at return; on a CPU's stream
/// it blocks until done.
void copy(Stream& stream, const Tensor& src, const Tensor& dst);
}  // namespace cuda

TROUPE_BACKENDS(fill);
TROUPE_BACKENDS(scale);

}  // namespace troupe
