// Softmax with cross-entropy, whole and of a part of the classes. Within a row terms are added up in an order that depends on its
// length and type alone, wherever it begins; the rows' losses in double, by their number and length.
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/shifted.cuh"
#include "kernels/cuda/sum.cuh"
#include "kernels/functors/math.hpp"
#include "kernels/loss.hpp"

#include <bit>
#include <limits>

namespace troupe::cuda {

namespace {

template <class T>
struct Softmax {
  const T* logits;             // (R, C)
  const std::int32_t* labels;  // (R)
  T* dlogits;                  // (R, C), may be logits; or null
  std::int64_t R;
  std::int64_t C;
  float smoothing;
};

/// The threads that have a row: a warp, or where rows are long a block, so that the rows under way stay in the cache from pass
/// to pass. Every thread gets the results.
template <int team>
struct Team {
  static_assert(team == kWarp || team == kSumBlock);

  __device__ static double sum(double value) {
    for (int distance = kWarp / 2; distance > 0; distance /= 2) {
      value += __shfl_xor_sync(kAllLanes, value, distance);
    }
    if constexpr (team == kSumBlock) {
      value = over_warps(value, [](double a, double b) { return a + b; });
    }
    return value;
  }

  __device__ static float max(float value) {
    const auto larger = [](float a, float b) {
      return b > a ? b : a;
    };
    for (int distance = kWarp / 2; distance > 0; distance /= 2) {
      value = larger(value, __shfl_xor_sync(kAllLanes, value, distance));
    }
    if constexpr (team == kSumBlock) {
      value = over_warps(value, larger);
    }
    return value;
  }

  __device__ static bool all(bool value) {
    if constexpr (team == kSumBlock) {
      return !__syncthreads_or(!value);
    } else {
      return __all_sync(kAllLanes, value);
    }
  }

  __device__ static void wait() {
    if constexpr (team == kSumBlock) {
      __syncthreads();
    } else {
      __syncwarp();
    }
  }

 private:
  template <class T, class F>
  __device__ static T over_warps(T value, F f) {
    __shared__ T of_warp[team / kWarp];
    __syncthreads();  // What was there before has been read.
    if (threadIdx.x % kWarp == 0) {
      of_warp[threadIdx.x / kWarp] = value;
    }
    __syncthreads();
    T result = of_warp[0];
    for (int warp = 1; warp < team / kWarp; ++warp) {
      result = f(result, of_warp[warp]);
    }
    return result;
  }
};

/// e^x for logits of type T, x <= 0: of bfloat16 by the multiprocessor's own function, whose error is a thousandth of their last
/// place; of float32 with the CPU's bits. The latter are added up in double, the former in float within a pack.
template <class T>
__device__ float exp_of(float x) {
  if constexpr (sizeof(T) < sizeof(float)) {
    constexpr float kLog2E = 1.44269504f;
#ifdef __CUDA_ARCH__
    float result = 0;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x * kLog2E));
    return result;
#else
    return exp2f(x * kLog2E);
#endif
  } else {
    return exp_float(x);
  }
}

/// f.operator()<width>(c, x[c, c + width)) for a thread's share of a row x (C), in packs of 16 bytes wherever the row begins; `to` is
/// what f writes at the same places, or x. Which columns a thread has depends on where the row begins.
template <int team, class T, class F>
__device__ void for_each_pack(const T* x, const T* to, int C, int lane, F f) {
  constexpr int width = 16 / sizeof(T);
  const std::uintptr_t beyond = reinterpret_cast<std::uintptr_t>(x) % 16;
  const int before = static_cast<int>((16 - beyond) % 16 / sizeof(T));
  const bool alike = reinterpret_cast<std::uintptr_t>(to) % 16 == beyond;
  const int first = alike && before < C ? before : C;
  const int packs = (C - first) / width;
  for (int c = lane; c < first; c += team) {
    f.template operator()<1>(c, load<1>(x, c));
  }
  constexpr int kAtOnce = 4;  // loads before the first of them is used, or written over
  int pack = lane;
  for (; pack + (kAtOnce - 1) * team < packs; pack += kAtOnce * team) {
    Pack<T, width> values[kAtOnce];
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      values[k] = load<width>(x, first + (pack + k * team) * width);
    }
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      f.template operator()<width>(first + (pack + k * team) * width, values[k]);
    }
  }
  for (; pack < packs; pack += team) {
    const int c = first + pack * width;
    f.template operator()<width>(c, load<width>(x, c));
  }
  for (int c = first + packs * width + lane; c < C; c += team) {
    f.template operator()<1>(c, load<1>(x, c));
  }
}

/// f.operator()<width>(x[c, c + width)) for a thread's share of a row x (C) in packs that are counted from the row's beginning, so
/// that the same values are added up in the same order wherever it lies.
template <int team, class T, class F>
__device__ void for_each_pack_of_row(const T* x, int C, int lane, F f) {
  constexpr int width = 16 / sizeof(T);
  const int packs = C / width;
  for_each_shifted_pack<team>(x, packs, lane, [&](int, const Pack<std::uint32_t, 4>& words) {
    f.template operator()<width>(std::bit_cast<Pack<T, width>>(words));
  });
  for (int c = packs * width + lane; c < C; c += team) {
    f.template operator()<1>(load<1>(x, c));
  }
}

struct RowResult {
  double loss;
  bool right;
};

/// One team, one row of any C, in three passes: maximum, sum of exponentials, gradient. `lane` is the thread's number in it. A
/// label outside [0, C) makes the loss NaN.
template <int team, class T>
__device__ RowResult softmax_row(const Softmax<T>& s, std::int64_t r, int lane) {
  const int C = static_cast<int>(s.C);
  const T* x = s.logits + r * s.C;
  const std::int32_t label = s.labels[r];
  const float at_label =
      label >= 0 && label < C ? to_float(x[label]) : std::numeric_limits<float>::quiet_NaN();

  // As on the CPU: right is the first of the largest, and a row with a NaN predicts nothing.
  float largest = -std::numeric_limits<float>::infinity();
  bool agrees = true;
  for_each_pack<team>(x, x, C, lane, [&]<int width>(int c, const Pack<T, width>& values) {
    float most = -std::numeric_limits<float>::infinity();
#pragma unroll
    for (int k = 0; k < width; ++k) {
      const float value = to_float(values.lane[k]);
      most = fmaxf(most, value);  // of a number and a NaN it is the number
      agrees = agrees && value == value;
    }
    largest = fmaxf(largest, most);
    if (c + width <= label) {
      agrees = agrees && most < at_label;
    } else if (c > label) {
      agrees = agrees && most <= at_label;
    } else {
#pragma unroll
      for (int k = 0; k < width; ++k) {
        const float value = to_float(values.lane[k]);
        agrees = agrees && (c + k < label ? value < at_label : value <= at_label);
      }
    }
  });
  largest = Team<team>::max(largest);
  const bool right = Team<team>::all(agrees);

  double sum = 0;
  double logits = 0;  // their sum, where smoothing asks for it
  for_each_pack_of_row<team>(x, C, lane, [&]<int width>(const Pack<T, width>& values) {
    NumberOf<T> of_pack = 0;
#pragma unroll
    for (int k = 0; k < width; ++k) {
      of_pack += exp_of<T>(to_float(values.lane[k]) - largest);
    }
    sum += static_cast<double>(of_pack);
    if (s.smoothing > 0) {
#pragma unroll
      for (int k = 0; k < width; ++k) {
        logits += static_cast<double>(to_float(values.lane[k]));
      }
    }
  });
  sum = Team<team>::sum(sum);
  double target_logit = static_cast<double>(at_label);
  if (s.smoothing > 0) {
    const auto smoothing = static_cast<double>(s.smoothing);
    target_logit = (1 - smoothing) * target_logit +
                   smoothing * (Team<team>::sum(logits) / static_cast<double>(s.C));
  }
  Team<team>::wait();  // All have read the label's logit before one of them overwrites it.

  if (s.dlogits) {
    T* dx = s.dlogits + r * s.C;
    const float share = 1.0f / static_cast<float>(s.R);
    const float label_share = share * (1.0f - s.smoothing);
    const float class_share = share * (s.smoothing / static_cast<float>(s.C));
    const float factor = static_cast<float>(static_cast<double>(share) / sum);
    for_each_pack<team>(x, dx, C, lane, [&]<int width>(int c, const Pack<T, width>& values) {
      Pack<T, width> gradients;
#pragma unroll
      for (int k = 0; k < width; ++k) {
        const float probability_share = exp_of<T>(to_float(values.lane[k]) - largest) * factor;
        gradients.lane[k] =
            from_float<T>(probability_share - class_share - (c + k == label ? label_share : 0.0f));
      }
      store<width>(dx, c, gradients);
    });
  }
  return {log(sum) - (target_logit - static_cast<double>(largest)), right};
}

struct PartedSoftmax {
  const float* logits;         // (R, n)
  const float* statistics;     // (R, 2 parts)
  const std::int32_t* labels;  // (R)
  float* dlogits;              // (R, n), or null
  std::int64_t R;
  std::int64_t n;
  std::int64_t parts;
  std::int64_t part;
  std::int64_t first;
  std::int64_t classes;
  float smoothing;
};

/// As on the CPU. A label outside [0, classes) is no part's, and makes the loss NaN in the first one.
template <int team>
__device__ RowResult softmax_row(const PartedSoftmax& s, std::int64_t r, int lane) {
  const float* x = s.logits + r * s.n;
  const float* of_row = s.statistics + r * 2 * s.parts;
  const float own_largest = of_row[2 * s.part];
  float shift = own_largest;
  bool first = true;
  for (std::int64_t t = 0; t < s.parts; ++t) {
    const float largest = of_row[2 * t];
    shift = largest > shift ? largest : shift;
    first = first && (t < s.part ? largest < own_largest : largest <= own_largest);
  }
  double sum = 0;
  for (std::int64_t t = 0; t < s.parts; ++t) {
    sum += static_cast<double>(of_row[2 * t + 1]) *
           exp(static_cast<double>(of_row[2 * t]) - static_cast<double>(shift));
  }
  const double log_sum = log(sum) + static_cast<double>(shift);
  const std::int64_t label = s.labels[r];
  const std::int64_t own = label - s.first;
  const bool is_own = own >= 0 && own < s.n;
  bool agrees = is_own;
  double logits = 0;
  for (std::int64_t c = lane; c < s.n; c += team) {
    agrees = agrees && (c < own ? x[c] < x[own] : x[c] <= x[own]);
    logits += static_cast<double>(x[c]);
  }
  const bool right = Team<team>::all(agrees) && first;
  const auto smoothing = static_cast<double>(s.smoothing);
  double loss = is_own ? (1 - smoothing) * (log_sum - static_cast<double>(x[own])) : 0;
  if (s.smoothing > 0) {
    loss += smoothing / static_cast<double>(s.classes) *
            (static_cast<double>(s.n) * log_sum - Team<team>::sum(logits));
  }
  if (s.part == 0 && (label < 0 || label >= s.classes)) {
    loss = std::numeric_limits<double>::quiet_NaN();
  }
  if (s.dlogits) {
    float* dx = s.dlogits + r * s.n;
    const float share = 1.0f / static_cast<float>(s.R);
    const float class_share = share * (s.smoothing / static_cast<float>(s.classes));
    const float factor = static_cast<float>(static_cast<double>(share) / sum);
    for (std::int64_t c = lane; c < s.n; c += team) {
      dx[c] = exp_float(x[c] - shift) * factor - class_share -
              (is_own && c == own ? share * (1.0f - s.smoothing) : 0.0f);
    }
  }
  return {loss, right};
}

/// partial[0, b] = the losses of block b's rows, partial[1, b] = how many are right. Shape: partial
/// (2, kSumBlocksMax).
template <int team, class S>
__global__ void __launch_bounds__(kSumBlock)
    softmax_kernel(const __grid_constant__ S s, double* partial) {
  constexpr std::int64_t kTeams = kSumBlock / team;
  const int lane = static_cast<int>(threadIdx.x) % team;
  double loss = 0;
  double right = 0;
  for (std::int64_t r = std::int64_t{blockIdx.x} * kTeams + threadIdx.x / team; r < s.R;
       r += std::int64_t{gridDim.x} * kTeams) {
    const RowResult row = softmax_row<team>(s, r, lane);
    if (lane == 0) {
      loss += row.loss;
      right += row.right ? 1 : 0;
    }
  }
  loss = block_sum(loss);
  right = block_sum(right);
  if (threadIdx.x == 0) {
    partial[blockIdx.x] = loss;
    partial[kSumBlocksMax + blockIdx.x] = right;
  }
}

/// A warp a row of own classes.
__global__ void __launch_bounds__(kSumBlock)
    statistics_kernel(const float* logits, std::int64_t R, std::int64_t n, float* statistics) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  constexpr std::int64_t kTeams = kSumBlock / kWarp;
  for (std::int64_t r = std::int64_t{blockIdx.x} * kTeams + threadIdx.x / kWarp; r < R;
       r += std::int64_t{gridDim.x} * kTeams) {
    const float* x = logits + r * n;
    float largest = -std::numeric_limits<float>::infinity();
    for (std::int64_t c = lane; c < n; c += kWarp) {
      largest = x[c] > largest ? x[c] : largest;
    }
    largest = Team<kWarp>::max(largest);
    double sum = 0;
    for (std::int64_t c = lane; c < n; c += kWarp) {
      sum += static_cast<double>(exp_float(x[c] - largest));
    }
    sum = Team<kWarp>::sum(sum);
    if (lane == 0) {
      statistics[2 * r] = largest;
      statistics[2 * r + 1] = static_cast<float>(sum);
    }
  }
}

int blocks_for(std::int64_t rows) {
  constexpr std::int64_t kTeams = kSumBlock / kWarp;
  return static_cast<int>(std::min<std::int64_t>((rows + kTeams - 1) / kTeams, kSumBlocksMax));
}

}  // namespace

void softmax_cross_entropy(Stream& stream,
                           const Tensor& logits,
                           const Tensor& labels,
                           const Tensor& dlogits,
                           const Tensor& result,
                           float smoothing) {
  const Backend::State& state = activate(stream);
  constexpr std::int64_t kLongRow = 4096;
  // Two a multiprocessor of an H200: 26 MB of GPT-2's rows, which stay in its cache of 50 MB from pass to pass.
  constexpr std::int64_t kLongRows = 264;
  const std::int64_t R = logits.shape()[0];
  const std::int64_t C = logits.shape()[1];
  // So that a place behind the last pack still fits.
  constexpr std::int64_t kColumnsMax = std::int64_t{1} << 30;
  TROUPE_CHECK(C <= kColumnsMax, "[loss] columns are counted to 2^30; ", C);
  const std::int64_t rows_at_once = C < kLongRow ? kSumBlock / kWarp : 1;  // of a block
  const int blocks = static_cast<int>(std::min<std::int64_t>(
      (R + rows_at_once - 1) / rows_at_once, C < kLongRow ? kSumBlocksMax : kLongRows));
  double* partial = state.workspace<double>();
  with_type_of(logits, [&]<class T>() {
    const Softmax<T> s{.logits = logits.data<T>(),
                       .labels = labels.data<std::int32_t>(),
                       .dlogits = dlogits ? dlogits.data<T>() : nullptr,
                       .R = R,
                       .C = C,
                       .smoothing = smoothing};
    const auto kernel =
        C < kLongRow ? softmax_kernel<kWarp, Softmax<T>> : softmax_kernel<kSumBlock, Softmax<T>>;
    kernel<<<static_cast<unsigned>(blocks), kSumBlock, 0, state.stream.get()>>>(s, partial);
  });
  TROUPE_CUDA_CHECK(cudaGetLastError());
  sum_partials(state, partial, BlockCounts{{blocks, blocks}}, 2, result.data<double>());
}

void softmax_statistics(Stream& stream, const Tensor& logits, const Tensor& statistics) {
  const Backend::State& state = activate(stream);
  const std::int64_t R = logits.shape()[0];
  const auto blocks = static_cast<unsigned>(blocks_for(R));
  statistics_kernel<<<blocks, kSumBlock, 0, state.stream.get()>>>(
      logits.data<float>(), R, logits.shape()[1], statistics.data<float>());
  TROUPE_CUDA_CHECK(cudaGetLastError());
}

void parted_cross_entropy(Stream& stream, const PartedCrossEntropy& of) {
  const Backend::State& state = activate(stream);
  const PartedSoftmax s{.logits = of.logits.data<float>(),
                        .statistics = of.statistics.data<float>(),
                        .labels = of.labels.data<std::int32_t>(),
                        .dlogits = of.dlogits ? of.dlogits.data<float>() : nullptr,
                        .R = of.logits.shape()[0],
                        .n = of.logits.shape()[1],
                        .parts = of.statistics.shape()[1] / 2,
                        .part = of.part,
                        .first = of.first,
                        .classes = of.classes,
                        .smoothing = of.smoothing};
  const int blocks = blocks_for(s.R);
  double* partial = state.workspace<double>();
  softmax_kernel<kWarp>
      <<<static_cast<unsigned>(blocks), kSumBlock, 0, state.stream.get()>>>(s, partial);
  TROUPE_CUDA_CHECK(cudaGetLastError());
  sum_partials(state, partial, BlockCounts{{blocks, blocks}}, 2, of.result.data<double>());
}

}  // namespace troupe::cuda
