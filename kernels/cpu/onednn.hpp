// oneDNN behind two structs. Everything that makes oneDNN objects stands in onednn.cpp, because
// versions 2 and 3 make them differently.
//
// Facts that this file is built on (oneDNN 2.6.3, measured): `matmul` with plain strides runs at 91
// to 99 % of the peak, `inner_product` does not. The library's own scratchpad belongs to the
// primitive, so that two threads that run one primitive silently corrupt each other: the scratchpad
// is always the stream's. The number of OpenMP threads is a property of the calling thread, and one
// here. ReLU as a post-op turns a NaN into 0 and so hides that a run diverged: activations are
// passes of ours.
#pragma once

#include <cstdint>
#include <memory>

namespace troupe::cpu {

class Arena;

/// Whether oneDNN uses AVX-512 here. Where it does not, some of our kernels are faster than its own.
bool onednn_has_avx512();

/// Whether oneDNN multiplies bfloat16 in hardware here (AVX512_BF16, AMX), as far as it may use it (TROUPE_ISA).
bool has_bfloat16();

struct MatmulPlan {
  std::int64_t rows = 1;     // M
  std::int64_t columns = 1;  // N
  std::int64_t inner = 1;    // K
  bool transpose_a = false;
  bool transpose_b = false;
  bool accumulate = false;
  bool bias = false;
  bool bfloat16 = false;  // a and b are rounded to it first
};

struct ConvolutionPlan {
  std::int64_t batch = 1;
  std::int64_t height = 1;  // of the input
  std::int64_t width = 1;
  std::int64_t channels_in = 1;
  std::int64_t channels_out = 1;
  std::int64_t height_out = 1;
  std::int64_t width_out = 1;
  std::int64_t kernel = 1;
  std::int64_t stride = 1;
  std::int64_t padding = 0;
};

/// Whether oneDNN's weight gradient is not to be used for the shape, because it may write behind its scratchpad, and so
/// into other memory, or read its own copy of x after overwriting it. A 1x1 filter with a stride reads x from a copy
/// without the pixels in between. The copy has room for x's channels, but each part of it begins as if a pixel were a
/// whole vector of channels: 8 with AVX2, 16 with AVX-512. Seen in 2.6.3 with AVX2; the code is the same with AVX-512,
/// and in 3.7.
bool weight_gradient_overruns(const ConvolutionPlan& plan);

/// Compiled primitives by plan. Throws ContractError where oneDNN has nothing but its slow
/// reference code for a shape.
class OneDnn {
 public:
  /// Scratch memory comes from `arena`, and is dead after each call.
  explicit OneDnn(Arena& arena);
  ~OneDnn();
  OneDnn(const OneDnn&) = delete;
  OneDnn& operator=(const OneDnn&) = delete;

  /// `bias` may be null.
  void matmul(const MatmulPlan& plan, const float* a, const float* b, const float* bias, float* c);
  void convolution_forward(
      const ConvolutionPlan& plan, const float* x, const float* w, const float* bias, float* y);
  void convolution_input_gradient(const ConvolutionPlan& plan,
                                  const float* dy,
                                  const float* w,
                                  float* dx);
  /// Not for plans of weight_gradient_overruns().
  void convolution_weight_gradient(
      const ConvolutionPlan& plan, const float* x, const float* dy, float* dw, bool accumulate);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace troupe::cpu
