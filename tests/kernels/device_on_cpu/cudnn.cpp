// Convolutions as cuDNN's interface has them, by seven loops, on NHWC. Of two algorithms the first is the faster by what is
// said of it, and does not repeat its bits: it gives NaN. The other overwrites the workspace that it said it needs.
#include "kernels/functors/bfloat16.hpp"
#include "tests/kernels/device_on_cpu/device.hpp"

#include <cudnn.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

struct cudnnContext {
  cudaStream_t stream = nullptr;
};

struct cudnnTensorStruct {
  cudnnDataType_t type;
  int n, h, w, c;

  std::size_t elements() const {
    return std::size_t{1} * unsigned(n) * unsigned(h) * unsigned(w) * unsigned(c);
  }

  std::size_t element_bytes() const { return type == CUDNN_DATA_FLOAT ? 4 : 2; }
};

/// n filters.
struct cudnnFilterStruct : cudnnTensorStruct {};

struct cudnnConvolutionStruct {
  int padding, stride;
  cudnnMathType_t math = CUDNN_DEFAULT_MATH;
};

namespace {

constexpr std::size_t kWorkspace = 2048;
constexpr int kRepeats = 1;  // the algorithm that does

struct Problem {
  cudnnTensorStruct x;
  cudnnFilterStruct w;
  cudnnTensorStruct y;
  cudnnConvolutionStruct convolution;

  bool fits() const {
    const auto out = [&](int in, int kernel) {
      return (in + 2 * convolution.padding - kernel) / convolution.stride + 1;
    };
    return x.c == w.c && y.c == w.n && x.n == y.n && y.h == out(x.h, w.h) && y.w == out(x.w, w.w) &&
           x.type == w.type && x.type == y.type &&
           (x.type == CUDNN_DATA_FLOAT || convolution.math == CUDNN_TENSOR_OP_MATH);
  }
};

template <class Perf>
cudnnStatus_t propose(const Problem& problem, int wanted, int* found, Perf* results) {
  *found = 0;
  if (!problem.fits() || wanted < 2) {
    return CUDNN_STATUS_BAD_PARAM;
  }
  using Algorithm = decltype(Perf::algo);
  results[0] = {static_cast<Algorithm>(0),
                CUDNN_STATUS_SUCCESS,
                1,
                0,
                CUDNN_NON_DETERMINISTIC,
                problem.convolution.math};
  results[1] = {static_cast<Algorithm>(kRepeats),
                CUDNN_STATUS_SUCCESS,
                2,
                kWorkspace,
                CUDNN_DETERMINISTIC,
                problem.convolution.math};
  *found = 2;
  return CUDNN_STATUS_SUCCESS;
}

std::vector<float> read(const cudnnTensorStruct& t, const void* data, cudnnMathType_t math) {
  std::vector<float> out(t.elements());
  for (std::size_t i = 0; i < out.size(); ++i) {
    float x = t.type == CUDNN_DATA_FLOAT
                  ? static_cast<const float*>(data)[i]
                  : troupe::to_float(static_cast<const troupe::BFloat16*>(data)[i]);
    if (math != CUDNN_FMA_MATH) {  // 10 bits of mantissa; those of bfloat16 are fewer
      x = std::bit_cast<float>((std::bit_cast<std::uint32_t>(x) + 0x1000u) & 0xffffe000u);
    }
    out[i] = x;
  }
  return out;
}

void write(const cudnnTensorStruct& t,
           void* data,
           const std::vector<double>& sums,
           float alpha,
           float beta) {
  for (std::size_t i = 0; i < sums.size(); ++i) {
    const float sum = static_cast<float>(sums[i]);
    if (t.type == CUDNN_DATA_FLOAT) {
      float& to = static_cast<float*>(data)[i];
      to = alpha * sum + (beta != 0 ? beta * to : 0.0f);
    } else {
      troupe::BFloat16& to = static_cast<troupe::BFloat16*>(data)[i];
      to = troupe::to_bfloat16(alpha * sum + (beta != 0 ? beta * troupe::to_float(to) : 0.0f));
    }
  }
}

/// visit(in x, in w, in y) of every product.
template <class F>
void for_each_product(const Problem& p, F visit) {
  const auto at = [](const cudnnTensorStruct& t, int n, int h, int w, int c) {
    return static_cast<std::size_t>(((std::ptrdiff_t{n} * t.h + h) * t.w + w) * t.c + c);
  };
  for (int n = 0; n < p.y.n; ++n) {
    for (int h = 0; h < p.y.h; ++h) {
      for (int w = 0; w < p.y.w; ++w) {
        for (int kh = 0; kh < p.w.h; ++kh) {
          for (int kw = 0; kw < p.w.w; ++kw) {
            const int ih = h * p.convolution.stride - p.convolution.padding + kh;
            const int iw = w * p.convolution.stride - p.convolution.padding + kw;
            if (ih < 0 || ih >= p.x.h || iw < 0 || iw >= p.x.w) {
              continue;
            }
            for (int o = 0; o < p.w.n; ++o) {
              for (int c = 0; c < p.x.c; ++c) {
                visit(at(p.x, n, ih, iw, c), at(p.w, o, kh, kw, c), at(p.y, n, h, w, o));
              }
            }
          }
        }
      }
    }
  }
}

struct Operand {
  cudnnTensorStruct of;
  const void* data;
};

/// Puts out = the sum of products of `a` and `b` on the handle's stream; `sum(out, a, b)` adds them up.
template <class Sum>
cudnnStatus_t put(cudnnHandle_t handle,
                  const Problem& problem,
                  int algorithm,
                  const Operand& a,
                  const Operand& b,
                  const cudnnTensorStruct& out,
                  void* out_data,
                  const void* alpha,
                  const void* beta,
                  void* workspace,
                  std::size_t workspace_bytes,
                  Sum sum) {
  const int device = device_on_cpu::device_of(handle->stream);
  if (!problem.fits() || device < 0 || (algorithm == kRepeats && workspace_bytes < kWorkspace)) {
    return CUDNN_STATUS_BAD_PARAM;
  }
  const float scale = *static_cast<const float*>(alpha);
  const float keep = *static_cast<const float*>(beta);
  device_on_cpu::put(
      {{handle->stream, "cudnnConvolution", 1u << device, [=] {
          using device_on_cpu::need;
          need(device, a.data, a.of.elements() * a.of.element_bytes(), 16, "cuDNN, first operand");
          need(device, b.data, b.of.elements() * b.of.element_bytes(), 16, "cuDNN, second operand");
          need(device, out_data, out.elements() * out.element_bytes(), 16, "cuDNN, result");
          need(device, workspace, algorithm == kRepeats ? kWorkspace : 0, 16, "cuDNN, workspace");
          if (!device_on_cpu::sound()) {
            return;
          }
          // One running sum of thousands of floats would be further from the truth than any library's many.
          std::vector<double> sums(out.elements(), 0.0);
          if (algorithm == kRepeats) {
            std::memset(workspace, 0xff, kWorkspace);
            sum(problem,
                sums,
                read(a.of, a.data, problem.convolution.math),
                read(b.of, b.data, problem.convolution.math));
          } else {
            sums.assign(sums.size(), std::numeric_limits<double>::quiet_NaN());
          }
          write(out, out_data, sums, scale, keep);
        }}});
  return CUDNN_STATUS_SUCCESS;
}

using Floats = std::vector<float>;
using Sums = std::vector<double>;

template <class T>
cudnnStatus_t made(T** to) {
  *to = new T{};
  return CUDNN_STATUS_SUCCESS;
}

template <class T>
cudnnStatus_t dropped(const T* value) {
  delete value;
  return CUDNN_STATUS_SUCCESS;
}

}  // namespace

std::size_t cudnnGetVersion() {
  return 90000;
}

const char* cudnnGetErrorString(cudnnStatus_t status) {
  return status == CUDNN_STATUS_SUCCESS ? "CUDNN_STATUS_SUCCESS" : "CUDNN_STATUS_BAD_PARAM";
}

void cudnnGetLastErrorString(char* message, std::size_t size_bytes) {
  std::strncpy(message, "device on cpu", size_bytes);
}

cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  return made(handle);
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
  return dropped(handle);
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  handle->stream = stream;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t* descriptor) {
  return made(descriptor);
}

cudnnStatus_t cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t descriptor) {
  return dropped(descriptor);
}

cudnnStatus_t cudnnSetTensor4dDescriptor(cudnnTensorDescriptor_t descriptor,
                                         cudnnTensorFormat_t /*format*/,
                                         cudnnDataType_t type,
                                         int n,
                                         int c,
                                         int h,
                                         int w) {
  *descriptor = {type, n, h, w, c};
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnCreateFilterDescriptor(cudnnFilterDescriptor_t* descriptor) {
  return made(descriptor);
}

cudnnStatus_t cudnnDestroyFilterDescriptor(cudnnFilterDescriptor_t descriptor) {
  return dropped(descriptor);
}

cudnnStatus_t cudnnSetFilter4dDescriptor(cudnnFilterDescriptor_t descriptor,
                                         cudnnDataType_t type,
                                         cudnnTensorFormat_t /*format*/,
                                         int k,
                                         int c,
                                         int h,
                                         int w) {
  *descriptor = {{type, k, h, w, c}};
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnCreateConvolutionDescriptor(cudnnConvolutionDescriptor_t* descriptor) {
  return made(descriptor);
}

cudnnStatus_t cudnnDestroyConvolutionDescriptor(cudnnConvolutionDescriptor_t descriptor) {
  return dropped(descriptor);
}

cudnnStatus_t cudnnSetConvolution2dDescriptor(cudnnConvolutionDescriptor_t descriptor,
                                              int padding_h,
                                              int padding_w,
                                              int stride_h,
                                              int stride_w,
                                              int dilation_h,
                                              int dilation_w,
                                              cudnnConvolutionMode_t /*mode*/,
                                              cudnnDataType_t compute) {
  if (padding_h != padding_w || stride_h != stride_w || dilation_h != 1 || dilation_w != 1 ||
      compute != CUDNN_DATA_FLOAT) {
    return CUDNN_STATUS_NOT_SUPPORTED;
  }
  *descriptor = {padding_h, stride_h};
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t descriptor,
                                          cudnnMathType_t math) {
  descriptor->math = math;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetConvolutionForwardAlgorithm_v7(cudnnHandle_t /*handle*/,
                                                     cudnnTensorDescriptor_t x,
                                                     cudnnFilterDescriptor_t w,
                                                     cudnnConvolutionDescriptor_t convolution,
                                                     cudnnTensorDescriptor_t y,
                                                     int wanted,
                                                     int* found,
                                                     cudnnConvolutionFwdAlgoPerf_t* results) {
  return propose({*x, *w, *y, *convolution}, wanted, found, results);
}

cudnnStatus_t cudnnGetConvolutionBackwardDataAlgorithm_v7(
    cudnnHandle_t /*handle*/,
    cudnnFilterDescriptor_t w,
    cudnnTensorDescriptor_t dy,
    cudnnConvolutionDescriptor_t convolution,
    cudnnTensorDescriptor_t dx,
    int wanted,
    int* found,
    cudnnConvolutionBwdDataAlgoPerf_t* results) {
  return propose({*dx, *w, *dy, *convolution}, wanted, found, results);
}

cudnnStatus_t cudnnGetConvolutionBackwardFilterAlgorithm_v7(
    cudnnHandle_t /*handle*/,
    cudnnTensorDescriptor_t x,
    cudnnTensorDescriptor_t dy,
    cudnnConvolutionDescriptor_t convolution,
    cudnnFilterDescriptor_t dw,
    int wanted,
    int* found,
    cudnnConvolutionBwdFilterAlgoPerf_t* results) {
  return propose({*x, *dw, *dy, *convolution}, wanted, found, results);
}

cudnnStatus_t cudnnConvolutionForward(cudnnHandle_t handle,
                                      const void* alpha,
                                      cudnnTensorDescriptor_t x,
                                      const void* x_data,
                                      cudnnFilterDescriptor_t w,
                                      const void* w_data,
                                      cudnnConvolutionDescriptor_t convolution,
                                      cudnnConvolutionFwdAlgo_t algorithm,
                                      void* workspace,
                                      std::size_t workspace_bytes,
                                      const void* beta,
                                      cudnnTensorDescriptor_t y,
                                      void* y_data) {
  return put(handle,
             {*x, *w, *y, *convolution},
             algorithm,
             {*x, x_data},
             {*w, w_data},
             *y,
             y_data,
             alpha,
             beta,
             workspace,
             workspace_bytes,
             [](const Problem& p, Sums& out, const Floats& images, const Floats& filters) {
               for_each_product(p, [&](std::size_t i, std::size_t k, std::size_t o) {
                 out[o] += double{images[i]} * filters[k];
               });
             });
}

cudnnStatus_t cudnnConvolutionBackwardData(cudnnHandle_t handle,
                                           const void* alpha,
                                           cudnnFilterDescriptor_t w,
                                           const void* w_data,
                                           cudnnTensorDescriptor_t dy,
                                           const void* dy_data,
                                           cudnnConvolutionDescriptor_t convolution,
                                           cudnnConvolutionBwdDataAlgo_t algorithm,
                                           void* workspace,
                                           std::size_t workspace_bytes,
                                           const void* beta,
                                           cudnnTensorDescriptor_t dx,
                                           void* dx_data) {
  return put(handle,
             {*dx, *w, *dy, *convolution},
             algorithm,
             {*w, w_data},
             {*dy, dy_data},
             *dx,
             dx_data,
             alpha,
             beta,
             workspace,
             workspace_bytes,
             [](const Problem& p, Sums& out, const Floats& filters, const Floats& errors) {
               for_each_product(p, [&](std::size_t i, std::size_t k, std::size_t o) {
                 out[i] += double{filters[k]} * errors[o];
               });
             });
}

cudnnStatus_t cudnnConvolutionBackwardFilter(cudnnHandle_t handle,
                                             const void* alpha,
                                             cudnnTensorDescriptor_t x,
                                             const void* x_data,
                                             cudnnTensorDescriptor_t dy,
                                             const void* dy_data,
                                             cudnnConvolutionDescriptor_t convolution,
                                             cudnnConvolutionBwdFilterAlgo_t algorithm,
                                             void* workspace,
                                             std::size_t workspace_bytes,
                                             const void* beta,
                                             cudnnFilterDescriptor_t dw,
                                             void* dw_data) {
  return put(handle,
             {*x, *dw, *dy, *convolution},
             algorithm,
             {*x, x_data},
             {*dy, dy_data},
             *dw,
             dw_data,
             alpha,
             beta,
             workspace,
             workspace_bytes,
             [](const Problem& p, Sums& out, const Floats& images, const Floats& errors) {
               for_each_product(p, [&](std::size_t i, std::size_t k, std::size_t o) {
                 out[k] += double{images[i]} * errors[o];
               });
             });
}
