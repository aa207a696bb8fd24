// Convolution by cuDNN, and of one pixel and stride 1 by cuBLASLt. cuDNN in its layout-aware ("legacy") interface: NHWC tensors, (O, kernel, kernel,
// C) filters, algorithms that give the same bits every time. Bias and activation are a pass of our own: cuDNN's fused
// one has neither tanh nor selu, and its relu may hide a NaN.
//
// In bf16 all three tensors of a call of cuDNN are bfloat16: cuDNN has nothing else, although it adds up in float32. What it
// writes goes to float32 in one more pass where that is wanted, as of weights' gradients. A shape for which it has no such
// algorithm runs as in tf32, which rounds less.
#include "kernels/convolution.hpp"

#include "kernels/convert.hpp"
#include "kernels/cuda/cudnn.hpp"
#include "kernels/cuda/state.hpp"
#include "kernels/matmul.hpp"
#include "kernels/wording.hpp"

#include <algorithm>
#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <utility>

namespace troupe::cuda {

namespace {

enum class Pass : std::uint8_t { forward, input_gradient, weight_gradient };

/// What cuDNN's choice of an algorithm depends on.
struct Key {
  Pass pass;
  int batch;
  int height;
  int width;
  int channels;
  int channels_out;
  int height_out;
  int width_out;
  int kernel;
  int stride;
  int padding;

  auto operator<=>(const Key&) const = default;
};

using TensorDescriptor = Handle<cudnnTensorDescriptor_t, cudnnDestroyTensorDescriptor>;
using FilterDescriptor = Handle<cudnnFilterDescriptor_t, cudnnDestroyFilterDescriptor>;
using ConvolutionDescriptor =
    Handle<cudnnConvolutionDescriptor_t, cudnnDestroyConvolutionDescriptor>;

struct Plan {
  TensorDescriptor x;
  FilterDescriptor w;
  TensorDescriptor y;
  ConvolutionDescriptor convolution;
  DType type = DType::float32;  // of x, w and y
  int algorithm = 0;            // of the pass's own enumeration
  std::size_t workspace_bytes = 0;
  cudnnMathType_t math = CUDNN_FMA_MATH;
};

int extent(std::int64_t n) {
  TROUPE_CHECK(n <= std::numeric_limits<int>::max(), "[convolution] cuDNN counts to 2^31; ", n);
  return static_cast<int>(n);
}

Key key_of(Pass pass, const ConvolutionGeometry& g, const Shape& x, const Shape& y) {
  return {.pass = pass,
          .batch = extent(x[0]),
          .height = extent(x[1]),
          .width = extent(x[2]),
          .channels = extent(x[3]),
          .channels_out = extent(y[3]),
          .height_out = extent(y[1]),
          .width_out = extent(y[2]),
          .kernel = extent(g.kernel),
          .stride = extent(g.stride),
          .padding = extent(g.padding)};
}

TensorDescriptor images(cudnnDataType_t type, int batch, int height, int width, int channels) {
  TensorDescriptor descriptor;
  TROUPE_CUDA_CHECK(cudnnCreateTensorDescriptor(descriptor.out()));
  TROUPE_CUDA_CHECK(cudnnSetTensor4dDescriptor(
      descriptor.get(), CUDNN_TENSOR_NHWC, type, batch, channels, height, width));
  return descriptor;
}

/// Of an algorithm. Its like without Tensor Cores may need none and be ten times slower, so that
/// this is much: PyTorch sets no bound at all.
constexpr std::size_t kMemoryMax = std::size_t{1} << 30;

/// Takes over the first of cuDNN's proposals, the fastest by its estimate, that repeats its bits
/// and needs no more than kMemoryMax; else the one with the least memory. False where there is none.
/// `propose(count, found, proposals)` asks cuDNN.
template <class Proposal, class Propose>
bool choose_algorithm(Plan& plan, Propose propose) {
  constexpr int kProposals = 16;  // more than there are algorithms
  std::array<Proposal, kProposals> proposals{};
  int found = 0;
  const cudnnStatus_t status = propose(kProposals, &found, proposals.data());
  if (status != CUDNN_STATUS_SUCCESS && plan.type == DType::bfloat16) {
    return false;  // Which of several codes says that it has none depends on its version.
  }
  TROUPE_CUDA_CHECK(status);
  const Proposal* best = nullptr;
  for (int i = 0; i < found; ++i) {
    const Proposal& p = proposals[static_cast<std::size_t>(i)];
    if (p.status != CUDNN_STATUS_SUCCESS || p.determinism != CUDNN_DETERMINISTIC) {
      continue;
    }
    if (!best || p.memory < best->memory) {
      best = &p;
    }
    if (best->memory <= kMemoryMax) {
      break;
    }
  }
  if (!best) {
    return false;
  }
  plan.algorithm = static_cast<int>(best->algo);
  plan.workspace_bytes = best->memory;
  plan.math = best->mathType;
  return true;
}

/// The descriptors, without an algorithm.
Plan describe_plan(const Key& key, Precision precision) {
  Plan plan;
  plan.type = precision == Precision::bf16 ? DType::bfloat16 : DType::float32;
  const cudnnDataType_t type =
      precision == Precision::bf16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT;
  plan.x = images(type, key.batch, key.height, key.width, key.channels);
  plan.y = images(type, key.batch, key.height_out, key.width_out, key.channels_out);
  TROUPE_CUDA_CHECK(cudnnCreateFilterDescriptor(plan.w.out()));
  TROUPE_CUDA_CHECK(cudnnSetFilter4dDescriptor(plan.w.get(),
                                               type,
                                               CUDNN_TENSOR_NHWC,
                                               key.channels_out,
                                               key.channels,
                                               key.kernel,
                                               key.kernel));
  TROUPE_CUDA_CHECK(cudnnCreateConvolutionDescriptor(plan.convolution.out()));
  TROUPE_CUDA_CHECK(cudnnSetConvolution2dDescriptor(plan.convolution.get(),
                                                    key.padding,
                                                    key.padding,
                                                    key.stride,
                                                    key.stride,
                                                    1,
                                                    1,
                                                    CUDNN_CROSS_CORRELATION,
                                                    CUDNN_DATA_FLOAT));
  // cuDNN's default allows TF32, with 10 bits of mantissa instead of 23.
  TROUPE_CUDA_CHECK(cudnnSetConvolutionMathType(plan.convolution.get(),
                                                precision == Precision::fp32 ? CUDNN_FMA_MATH
                                                : precision == Precision::tf32
                                                    ? CUDNN_DEFAULT_MATH
                                                    : CUDNN_TENSOR_OP_MATH));
  return plan;
}

/// Chooses the algorithm of the key's pass; false where there is none.
bool choose_algorithm(cudnnHandle_t handle, const Key& key, Plan& plan) {
  switch (key.pass) {
    case Pass::forward:
      return choose_algorithm<cudnnConvolutionFwdAlgoPerf_t>(
          plan, [&](int count, int* found, cudnnConvolutionFwdAlgoPerf_t* proposals) {
            return cudnnGetConvolutionForwardAlgorithm_v7(handle,
                                                          plan.x.get(),
                                                          plan.w.get(),
                                                          plan.convolution.get(),
                                                          plan.y.get(),
                                                          count,
                                                          found,
                                                          proposals);
          });
    case Pass::input_gradient:
      return choose_algorithm<cudnnConvolutionBwdDataAlgoPerf_t>(
          plan, [&](int count, int* found, cudnnConvolutionBwdDataAlgoPerf_t* proposals) {
            return cudnnGetConvolutionBackwardDataAlgorithm_v7(handle,
                                                               plan.w.get(),
                                                               plan.y.get(),
                                                               plan.convolution.get(),
                                                               plan.x.get(),
                                                               count,
                                                               found,
                                                               proposals);
          });
    case Pass::weight_gradient:
      return choose_algorithm<cudnnConvolutionBwdFilterAlgoPerf_t>(
          plan, [&](int count, int* found, cudnnConvolutionBwdFilterAlgoPerf_t* proposals) {
            return cudnnGetConvolutionBackwardFilterAlgorithm_v7(handle,
                                                                 plan.x.get(),
                                                                 plan.y.get(),
                                                                 plan.convolution.get(),
                                                                 plan.w.get(),
                                                                 count,
                                                                 found,
                                                                 proposals);
          });
  }
  return false;
}

Plan make_plan(cudnnHandle_t handle, const Key& key, Precision precision) {
  Plan plan = describe_plan(key, precision);
  bool found = choose_algorithm(handle, key, plan);
  if (!found && precision == Precision::bf16) {
    plan = describe_plan(key, Precision::tf32);
    found = choose_algorithm(handle, key, plan);
  }
  if (found && precision != Precision::fp32) {
    // With or without Tensor Cores, as this algorithm was proposed and its memory counted.
    TROUPE_CUDA_CHECK(cudnnSetConvolutionMathType(plan.convolution.get(), plan.math));
  }
  TROUPE_CHECK(found,
               fill_in("[convolution] cuDNN has no deterministic algorithm for images ({}, {}, {}, "
                       "{}), {} filters of {}, stride {}, padding {}, pass {}, {}",
                       key.batch,
                       key.height,
                       key.width,
                       key.channels,
                       key.channels_out,
                       key.kernel,
                       key.stride,
                       key.padding,
                       static_cast<int>(key.pass),
                       to_string(precision)));
  return plan;
}

}  // namespace

/// cuDNN, and what it has worked out for every convolution that a stream has met. Of one stream;
/// used by one thread at a time, with the stream's device current.
class ConvolutionPlans {
 public:
  ConvolutionPlans(cudaStream_t stream, Precision precision)
      : stream_(stream), precision_(precision) {
    TROUPE_CUDA_CHECK(cudnnCreate(handle_.out()));
    TROUPE_CUDA_CHECK(cudnnSetStream(handle_.get(), stream));
  }

  cudnnHandle_t handle() const { return handle_.get(); }

  const Plan& find(const Key& key) {
    auto found = plans_.find(key);
    if (found == plans_.end()) {
      found = plans_.emplace(key, make_plan(handle_.get(), key, precision_)).first;
      reserve(found->second.workspace_bytes);
    }
    return found->second;
  }

  /// Null unless a plan found so far wants more than the stream's workspace has.
  void* beyond() const { return beyond_.get(); }

 private:
  /// Of this stream alone: a buffer of the pool would have one stream wait for another's work.
  void reserve(std::size_t size_bytes) {
    if (size_bytes <= std::max(kWorkspaceBytes, beyond_bytes_)) {
      return;
    }
    TROUPE_CUDA_CHECK(cudaStreamSynchronize(stream_));  // earlier calls use what there is
    beyond_ = DeviceMemory();
    beyond_bytes_ = 0;
    TROUPE_CUDA_CHECK(cudaMalloc(beyond_.out(), size_bytes));
    beyond_bytes_ = size_bytes;
  }

  cudaStream_t stream_;
  Precision precision_;
  DeviceMemory beyond_;
  std::size_t beyond_bytes_ = 0;
  Handle<cudnnHandle_t, cudnnDestroy> handle_;
  std::map<Key, Plan> plans_;  // as many as a model has shapes
};

namespace {

/// What a call of cuDNN needs besides the tensors.
struct Call {
  cudnnHandle_t handle;
  const Plan& plan;
  void* workspace;
};

Call prepare(Stream& stream, const Key& key) {
  const Backend::State& state = activate(stream);
  std::shared_ptr<ConvolutionPlans>& plans = state.tools->convolutions;
  if (!plans) {
    plans = std::make_shared<ConvolutionPlans>(state.stream.get(), state.precision);
  }
  const Plan& plan = plans->find(key);
  return {plans->handle(),
          plan,
          plan.workspace_bytes > kWorkspaceBytes ? plans->beyond() : state.workspace<void>()};
}

/// The elements, for cuDNN, whose kernels may read in words of 16 bytes. Buffers begin so, and so
/// do parameters in their slices.
std::byte* aligned(const Tensor& x) {
  std::byte* data = first_byte(x);
  TROUPE_CHECK(
      reinterpret_cast<std::uintptr_t>(data) % 16 == 0,
      fill_in("[convolution] a tensor {} does not begin at a multiple of 16 bytes", x.shape()));
  return data;
}

/// x in the type that the plan reads.
Tensor source(Stream& stream, const Plan& plan, const Tensor& x) {
  if (x.type() == plan.type) {
    return x;
  }
  Tensor converted = stream.allocate(x.shape(), plan.type);
  cuda::convert(stream, x, converted);
  return converted;
}

/// Where cuDNN writes what shall become y: y itself, or room in the plan's type.
Tensor destination(Stream& stream, const Plan& plan, const Tensor& y) {
  return y.type() == plan.type ? y : stream.allocate(y.shape(), plan.type);
}

constexpr float kOne = 1.0f;
constexpr float kZero = 0.0f;

/// A convolution that is a product of matrices, a row a pixel: cuBLASLt enqueues it in a tenth of the time that cuDNN's
/// interface takes (some 110 us on the host of an H200), writes float32 and adds up without a pass of its own.
bool is_product(const ConvolutionGeometry& g) {
  return g.kernel == 1 && g.stride == 1 && g.padding == 0;
}

/// (B, H, W, C) as (B H W, C); filters (O, 1, 1, C) as (O, C).
Tensor as_matrix(const Tensor& x) {
  const std::int64_t columns = x.shape().back();
  return x.reshape({x.elements() / columns, columns});
}

}  // namespace

std::string cudnn_version() {
  if (!cudnn()) {
    return "";
  }
  const std::size_t number = cudnnGetVersion();  // 91900 of 9.19.0
  return concat(number / 10000, '.', number % 10000 / 100, '.', number % 100);
}

void convolution_forward(Stream& stream, const ConvolutionArguments& a) {
  if (is_product(a.geometry)) {
    return cuda::matmul(stream,
                        as_matrix(a.x),
                        as_matrix(a.w),
                        as_matrix(a.y),
                        {.transpose_b = true, .bias = a.bias, .activation = a.activation});
  }
  const Call call = prepare(stream, key_of(Pass::forward, a.geometry, a.x.shape(), a.y.shape()));
  const Tensor from = source(stream, call.plan, a.x);
  const Tensor filters = source(stream, call.plan, a.w);
  const Tensor to = destination(stream, call.plan, a.y);
  const Backend::State& state = activate(stream);
  TROUPE_CUDA_CHECK(
      cudnnConvolutionForward(call.handle,
                              &kOne,
                              call.plan.x.get(),
                              aligned(from),
                              call.plan.w.get(),
                              aligned(filters),
                              call.plan.convolution.get(),
                              static_cast<cudnnConvolutionFwdAlgo_t>(call.plan.algorithm),
                              call.workspace,
                              call.plan.workspace_bytes,
                              &kZero,
                              call.plan.y.get(),
                              aligned(to)));
  if (a.bias || a.activation != ActivationKind::none || to.type() != a.y.type()) {
    bias_and_activation(state, a.activation, to, a.bias ? a.bias.data<float>() : nullptr, a.y);
  }
}

void convolution_input_gradient(Stream& stream,
                                const ConvolutionGeometry& geometry,
                                const Tensor& dy,
                                const Tensor& w,
                                const Tensor& dx) {
  if (is_product(geometry)) {
    return cuda::matmul(stream, as_matrix(dy), as_matrix(w), as_matrix(dx), {});
  }
  const Call call = prepare(stream, key_of(Pass::input_gradient, geometry, dx.shape(), dy.shape()));
  const Tensor error = source(stream, call.plan, dy);
  const Tensor filters = source(stream, call.plan, w);
  const Tensor to = destination(stream, call.plan, dx);
  activate(stream);
  TROUPE_CUDA_CHECK(
      cudnnConvolutionBackwardData(call.handle,
                                   &kOne,
                                   call.plan.w.get(),
                                   aligned(filters),
                                   call.plan.y.get(),
                                   aligned(error),
                                   call.plan.convolution.get(),
                                   static_cast<cudnnConvolutionBwdDataAlgo_t>(call.plan.algorithm),
                                   call.workspace,
                                   call.plan.workspace_bytes,
                                   &kZero,
                                   call.plan.x.get(),
                                   aligned(to)));
  if (to.type() != dx.type()) {
    cuda::convert(stream, to, dx);
  }
}

void convolution_weight_gradient(Stream& stream,
                                 const ConvolutionGeometry& geometry,
                                 const Tensor& x,
                                 const Tensor& dy,
                                 const Tensor& dw,
                                 bool accumulate) {
  if (is_product(geometry)) {
    return cuda::matmul(stream,
                        as_matrix(dy),
                        as_matrix(x),
                        as_matrix(dw),
                        {.transpose_a = true, .accumulate = accumulate});
  }
  const Call call = prepare(stream, key_of(Pass::weight_gradient, geometry, x.shape(), dy.shape()));
  const Tensor from = source(stream, call.plan, x);
  const Tensor error = source(stream, call.plan, dy);
  const Tensor to = destination(stream, call.plan, dw);
  const Backend::State& state = activate(stream);
  const bool in_place = to.type() == dw.type();
  TROUPE_CUDA_CHECK(cudnnConvolutionBackwardFilter(
      call.handle,
      &kOne,
      call.plan.x.get(),
      aligned(from),
      call.plan.y.get(),
      aligned(error),
      call.plan.convolution.get(),
      static_cast<cudnnConvolutionBwdFilterAlgo_t>(call.plan.algorithm),
      call.workspace,
      call.plan.workspace_bytes,
      accumulate && in_place ? &kOne : &kZero,
      call.plan.w.get(),
      aligned(to)));
  if (!in_place && accumulate) {
    add_converted(state, to, dw);
  } else if (!in_place) {
    cuda::convert(stream, to, dw);
  }
}

}  // namespace troupe::cuda
