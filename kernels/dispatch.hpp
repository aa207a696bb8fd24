// What every public op does before its backend runs. Private to kernels/*.cpp.
#pragma once

#include "kernels/check.hpp"
#include "kernels/instruction_set.hpp"
#include "kernels/stream.hpp"

#include <initializer_list>
#include <string_view>

namespace troupe {

/// Orders `stream` behind what the tensors wait for, and lets their buffers remember the stream.
/// Empty ones are skipped.
void begin(Stream& stream, std::initializer_list<const Tensor*> tensors);

/// Throws ContractError unless `x` holds something, of `type`, on the stream's device.
void check_tensor(std::string_view op,
                  std::string_view name,
                  const Tensor& x,
                  const Stream& stream,
                  DType type = DType::float32);

/// The same, and the shape is `shape`.
void check_tensor(std::string_view op,
                  std::string_view name,
                  const Tensor& x,
                  const Stream& stream,
                  const Shape& shape,
                  DType type = DType::float32);

/// The same for what a product reads: float32 or the stream's operand_type().
void check_operand(std::string_view op,
                   std::string_view name,
                   const Tensor& x,
                   const Stream& stream);

/// What of CUDA a build may be without (kernels/CMakeLists.txt): whether this one has it, and what is
/// said where it has not.
struct GpuLibrary {
  bool is_here;
  const char* advice;
};

#ifdef TROUPE_CUDA_DIRECTORY
#define TROUPE_HAS_CUDA true
#else
#define TROUPE_HAS_CUDA false
#endif
#ifdef TROUPE_CUDNN_DIRECTORY
#define TROUPE_HAS_CUDNN true
#else
#define TROUPE_HAS_CUDNN false
#endif
#ifdef TROUPE_NCCL_DIRECTORY
#define TROUPE_HAS_NCCL true
#else
#define TROUPE_HAS_NCCL false
#endif

inline constexpr GpuLibrary kCuda{TROUPE_HAS_CUDA,
                                  "this build has no CUDA; configure with -DTROUPE_CUDA=ON and "
                                  "nvcc on PATH, or use the device cpu"};
inline constexpr GpuLibrary kCudnn{TROUPE_HAS_CUDNN,
                                   "this build has no cuDNN 9; configure where it is installed "
                                   "beside CUDA, or run the stages that convolve on the CPU"};
inline constexpr GpuLibrary kNccl{
    TROUPE_HAS_NCCL, "this build has no NCCL; configure where it is installed beside CUDA"};

/// Throws ContractError: "[op] " and the library's advice.
[[noreturn]] void fail_without(const GpuLibrary& library, std::string_view op);

/// The function of the CPU kernels for the instruction set in use.
#ifdef TROUPE_ONE_ISA
#define TROUPE_CPU(op) ::troupe::cpu::one::op
#else
#define TROUPE_CPU(op)                                                                 \
  (::troupe::instruction_set() == ::troupe::InstructionSet::v4 ? ::troupe::cpu::v4::op \
                                                               : ::troupe::cpu::v3::op)
#endif

/// TROUPE_CPU(op)(stream, ...) or cuda::op(stream, ...). What a build has not is not called in it: there cuda::op
/// is declared and needs no definition.
#define TROUPE_DISPATCH(op, stream, ...) TROUPE_DISPATCH_WITH(kCuda, op, stream, __VA_ARGS__)

#define TROUPE_DISPATCH_WITH(library, op, stream, ...)         \
  do {                                                         \
    if ((stream).device().kind == ::troupe::DeviceKind::cpu) { \
      TROUPE_CPU(op)((stream), __VA_ARGS__);                   \
    } else if constexpr (::troupe::library.is_here) {          \
      ::troupe::cuda::op((stream), __VA_ARGS__);               \
    } else {                                                   \
      ::troupe::fail_without(::troupe::library, #op);          \
    }                                                          \
  } while (false)

}  // namespace troupe
