// Convolution by cuDNN, in its layout-aware ("legacy") interface: NHWC tensors, (O, kernel, kernel,
// C) filters, float32 without TF32, algorithms that give the same bits every time. Bias and
// activation are a pass of our own: cuDNN's fused one has neither tanh nor selu, and its relu may
// hide a NaN.
#include "kernels/convolution.hpp"

#include "kernels/cuda/cudnn.hpp"
#include "kernels/cuda/state.hpp"

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
  int algorithm = 0;  // of the pass's own enumeration
  std::size_t workspace_bytes = 0;
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

TensorDescriptor images(int batch, int height, int width, int channels) {
  TensorDescriptor descriptor;
  TROUPE_CUDA_CHECK(cudnnCreateTensorDescriptor(descriptor.out()));
  TROUPE_CUDA_CHECK(cudnnSetTensor4dDescriptor(
      descriptor.get(), CUDNN_TENSOR_NHWC, CUDNN_DATA_FLOAT, batch, channels, height, width));
  return descriptor;
}

/// Takes over the first of cuDNN's proposals, the fastest by its estimate, that repeats its bits
/// and fits into the stream's workspace; else the one with the least memory. `propose(count, found,
/// proposals)` asks cuDNN.
template <class Proposal, class Propose>
void choose_algorithm(const Key& key, Plan& plan, Propose propose) {
  constexpr int kProposals = 16;  // more than there are algorithms
  std::array<Proposal, kProposals> proposals{};
  int found = 0;
  TROUPE_CUDA_CHECK(propose(kProposals, &found, proposals.data()));
  const Proposal* best = nullptr;
  for (int i = 0; i < found; ++i) {
    const Proposal& p = proposals[static_cast<std::size_t>(i)];
    if (p.status != CUDNN_STATUS_SUCCESS || p.determinism != CUDNN_DETERMINISTIC) {
      continue;
    }
    if (!best || p.memory < best->memory) {
      best = &p;
    }
    if (best->memory <= kWorkspaceBytes) {
      break;
    }
  }
  TROUPE_CHECK(best,
               "[convolution] cuDNN has no deterministic algorithm for images (",
               key.batch,
               ", ",
               key.height,
               ", ",
               key.width,
               ", ",
               key.channels,
               "), ",
               key.channels_out,
               " filters of ",
               key.kernel,
               ", stride ",
               key.stride,
               ", padding ",
               key.padding,
               ", pass ",
               static_cast<int>(key.pass));
  plan.algorithm = static_cast<int>(best->algo);
  plan.workspace_bytes = best->memory;
}

Plan make_plan(cudnnHandle_t handle, const Key& key) {
  Plan plan;
  plan.x = images(key.batch, key.height, key.width, key.channels);
  plan.y = images(key.batch, key.height_out, key.width_out, key.channels_out);
  TROUPE_CUDA_CHECK(cudnnCreateFilterDescriptor(plan.w.out()));
  TROUPE_CUDA_CHECK(cudnnSetFilter4dDescriptor(plan.w.get(),
                                               CUDNN_DATA_FLOAT,
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
  // Plain float32: the default would allow TF32, with 10 bits of mantissa instead of 23.
  TROUPE_CUDA_CHECK(cudnnSetConvolutionMathType(plan.convolution.get(), CUDNN_FMA_MATH));
  switch (key.pass) {
    case Pass::forward:
      choose_algorithm<cudnnConvolutionFwdAlgoPerf_t>(
          key, plan, [&](int count, int* found, cudnnConvolutionFwdAlgoPerf_t* proposals) {
            return cudnnGetConvolutionForwardAlgorithm_v7(handle,
                                                          plan.x.get(),
                                                          plan.w.get(),
                                                          plan.convolution.get(),
                                                          plan.y.get(),
                                                          count,
                                                          found,
                                                          proposals);
          });
      break;
    case Pass::input_gradient:
      choose_algorithm<cudnnConvolutionBwdDataAlgoPerf_t>(
          key, plan, [&](int count, int* found, cudnnConvolutionBwdDataAlgoPerf_t* proposals) {
            return cudnnGetConvolutionBackwardDataAlgorithm_v7(handle,
                                                               plan.w.get(),
                                                               plan.y.get(),
                                                               plan.convolution.get(),
                                                               plan.x.get(),
                                                               count,
                                                               found,
                                                               proposals);
          });
      break;
    case Pass::weight_gradient:
      choose_algorithm<cudnnConvolutionBwdFilterAlgoPerf_t>(
          key, plan, [&](int count, int* found, cudnnConvolutionBwdFilterAlgoPerf_t* proposals) {
            return cudnnGetConvolutionBackwardFilterAlgorithm_v7(handle,
                                                                 plan.x.get(),
                                                                 plan.y.get(),
                                                                 plan.convolution.get(),
                                                                 plan.w.get(),
                                                                 count,
                                                                 found,
                                                                 proposals);
          });
      break;
  }
  return plan;
}

}  // namespace

/// cuDNN, and what it has worked out for every convolution that a stream has met. Of one stream;
/// used by one thread at a time, with the stream's device current.
class ConvolutionPlans {
 public:
  explicit ConvolutionPlans(cudaStream_t stream) {
    TROUPE_CUDA_CHECK(cudnnCreate(handle_.out()));
    TROUPE_CUDA_CHECK(cudnnSetStream(handle_.get(), stream));
  }

  cudnnHandle_t handle() const { return handle_.get(); }

  const Plan& find(const Key& key) {
    auto found = plans_.find(key);
    if (found == plans_.end()) {
      found = plans_.emplace(key, make_plan(handle_.get(), key)).first;
    }
    return found->second;
  }

 private:
  Handle<cudnnHandle_t, cudnnDestroy> handle_;
  std::map<Key, Plan> plans_;  // as many as a model has shapes
};

namespace {

/// What a call of cuDNN needs besides the tensors.
struct Call {
  cudnnHandle_t handle;
  const Plan& plan;
  Tensor beyond;  // holds the workspace where the stream's own is too small
  void* workspace;
};

Call prepare(Stream& stream, const Key& key) {
  const Backend::State& state = activate(stream);
  std::shared_ptr<ConvolutionPlans>& plans = state.tools->convolutions;
  if (!plans) {
    plans = std::make_shared<ConvolutionPlans>(state.stream.get());
  }
  const Plan& plan = plans->find(key);
  Call call{plans->handle(), plan, {}, state.workspace<void>()};
  if (plan.workspace_bytes > kWorkspaceBytes) {
    constexpr std::size_t kFloat = sizeof(float);
    const std::size_t floats = (plan.workspace_bytes + kFloat - 1) / kFloat;
    call.beyond = stream.allocate({static_cast<std::int64_t>(floats)});
    call.workspace = call.beyond.data<float>();
  }
  return call;
}

/// The elements, for cuDNN, whose kernels may read in words of 16 bytes. Buffers begin so, and so
/// do parameters in their slices.
float* aligned(const Tensor& x) {
  float* data = x.data<float>();
  TROUPE_CHECK(reinterpret_cast<std::uintptr_t>(data) % 16 == 0,
               "[convolution] a tensor ",
               x.shape(),
               " does not begin at a multiple of 16 bytes");
  return data;
}

constexpr float kOne = 1.0f;
constexpr float kZero = 0.0f;

}  // namespace

std::string cudnn_version() {
  const std::size_t number = cudnnGetVersion();  // 91900 of 9.19.0
  return concat(number / 10000, '.', number % 10000 / 100, '.', number % 100);
}

void convolution_forward(Stream& stream,
                         const ConvolutionGeometry& geometry,
                         const Tensor& x,
                         const Tensor& w,
                         const Tensor& bias,
                         ActivationKind activation,
                         const Tensor& y) {
  const Call call = prepare(stream, key_of(Pass::forward, geometry, x.shape(), y.shape()));
  TROUPE_CUDA_CHECK(
      cudnnConvolutionForward(call.handle,
                              &kOne,
                              call.plan.x.get(),
                              aligned(x),
                              call.plan.w.get(),
                              aligned(w),
                              call.plan.convolution.get(),
                              static_cast<cudnnConvolutionFwdAlgo_t>(call.plan.algorithm),
                              call.workspace,
                              call.plan.workspace_bytes,
                              &kZero,
                              call.plan.y.get(),
                              aligned(y)));
  bias_and_activation(activate(stream), activation, bias ? bias.data<float>() : nullptr, y);
}

void convolution_input_gradient(Stream& stream,
                                const ConvolutionGeometry& geometry,
                                const Tensor& dy,
                                const Tensor& w,
                                const Tensor& dx) {
  const Call call = prepare(stream, key_of(Pass::input_gradient, geometry, dx.shape(), dy.shape()));
  TROUPE_CUDA_CHECK(
      cudnnConvolutionBackwardData(call.handle,
                                   &kOne,
                                   call.plan.w.get(),
                                   aligned(w),
                                   call.plan.y.get(),
                                   aligned(dy),
                                   call.plan.convolution.get(),
                                   static_cast<cudnnConvolutionBwdDataAlgo_t>(call.plan.algorithm),
                                   call.workspace,
                                   call.plan.workspace_bytes,
                                   &kZero,
                                   call.plan.x.get(),
                                   aligned(dx)));
}

void convolution_weight_gradient(Stream& stream,
                                 const ConvolutionGeometry& geometry,
                                 const Tensor& x,
                                 const Tensor& dy,
                                 const Tensor& dw,
                                 bool accumulate) {
  const Call call = prepare(stream, key_of(Pass::weight_gradient, geometry, x.shape(), dy.shape()));
  TROUPE_CUDA_CHECK(cudnnConvolutionBackwardFilter(
      call.handle,
      &kOne,
      call.plan.x.get(),
      aligned(x),
      call.plan.y.get(),
      aligned(dy),
      call.plan.convolution.get(),
      static_cast<cudnnConvolutionBwdFilterAlgo_t>(call.plan.algorithm),
      call.workspace,
      call.plan.workspace_bytes,
      accumulate ? &kOne : &kZero,
      call.plan.w.get(),
      aligned(dw)));
}

}  // namespace troupe::cuda
