// What the device that the CPU plays is there for: each fault that is planted here is found, and its neighbour without the
// fault is not. Where only some orders show it, it is looked for in 40 of them.
#include "tests/support/catch.hpp"

#include <cublasLt.h>

#include <cstdint>
#include <string>
#include <vector>

namespace planted_faults_test {
namespace {

constexpr int kThreads = 128;
constexpr std::uint64_t kSeeds = 40;

/// A device as it is at the beginning, with two streams.
struct Fresh {
  explicit Fresh(std::uint64_t seed = 1) {
    device_on_cpu::seed(seed);
    cudaSetDevice(0);
    cudaDeviceReset();
    REQUIRE(cudaSetDevice(0) == cudaSuccess);
    REQUIRE(cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking) == cudaSuccess);
    REQUIRE(cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking) == cudaSuccess);
    REQUIRE(cudaEventCreateWithFlags(&event, cudaEventDisableTiming) == cudaSuccess);
  }

  ~Fresh() {
    cudaEventDestroy(event);
    cudaSetDevice(0);
    cudaDeviceReset();
  }

  float* floats(std::size_t n) const {
    void* data = nullptr;
    REQUIRE(cudaMalloc(&data, n * sizeof(float)) == cudaSuccess);
    return static_cast<float*>(data);
  }

  std::vector<float> read(const float* data, std::size_t n) const {
    std::vector<float> values(n);
    REQUIRE(cudaMemcpyAsync(values.data(), data, n * sizeof(float), cudaMemcpyDeviceToHost, a) ==
            cudaSuccess);
    REQUIRE(cudaStreamSynchronize(a) == cudaSuccess);
    return values;
  }

  cudaStream_t a = nullptr;
  cudaStream_t b = nullptr;
  cudaEvent_t event = nullptr;
};

/// In how many of the orders `right(fresh)` does not hold.
template <class Right>
std::uint64_t wrong_orders(Right right) {
  std::uint64_t wrong = 0;
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    const Fresh fresh(seed);
    wrong += right(fresh) ? 0 : 1;
  }
  return wrong;
}

/// What waiting for all work says of a launch that came before.
cudaError_t outcome(cudaError_t launched) {
  return launched == cudaSuccess ? cudaDeviceSynchronize() : launched;
}

bool told(const std::string& part) {
  return device_on_cpu::last_fault().find(part) != std::string::npos;
}

// -- within a block ------------------------------------------------------------------------

template <bool waits>
__global__ void reverse_kernel(float* x) {
  __shared__ float all[kThreads];
  all[threadIdx.x] = static_cast<float>(threadIdx.x);
  if constexpr (waits) {
    __syncthreads();
  }
  x[threadIdx.x] = all[kThreads - 1 - threadIdx.x];
}

/// The sum over the block, twice; its room is used again when all have read.
template <bool waits>
__global__ void two_sums_kernel(float* out) {
  __shared__ float of_warp[kThreads / 32];
  for (int round = 0; round < 2; ++round) {
    float sum = static_cast<float>(round + 1);
    for (int distance = 16; distance > 0; distance /= 2) {
      sum += __shfl_xor_sync(0xffffffffu, sum, distance);
    }
    if (threadIdx.x % 32 == 0) {
      of_warp[threadIdx.x / 32] = sum;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      out[round] = of_warp[0] + of_warp[1] + of_warp[2] + of_warp[3];
    }
    if constexpr (waits) {
      __syncthreads();
    }
  }
}

template <bool waits>
__global__ void rotate_in_place_kernel(float* x) {
  const float next = x[(threadIdx.x + 1) % 32];
  if constexpr (waits) {
    __syncwarp();
  }
  x[threadIdx.x] = next;
}

__global__ void sum_kernel(float* out, int lanes) {
  if (static_cast<int>(threadIdx.x) >= lanes) {
    return;
  }
  float sum = 1;
  for (int distance = 16; distance > 0; distance /= 2) {
    sum += __shfl_xor_sync(0xffffffffu, sum, distance);
  }
  out[threadIdx.x] = sum;
}

__global__ void wait_for_some_kernel(bool all) {
  if (all || threadIdx.x < 64) {
    __syncthreads();
  }
}

__global__ void wait_at_two_places_kernel() {
  if (threadIdx.x < 64) {
    __syncthreads();
  } else {
    __syncthreads();
  }
}

// -- memory -----------------------------------------------------------------------------

__global__ void shift_kernel(float* x, const float* from, int offset) {
  x[threadIdx.x] = from[static_cast<int>(threadIdx.x) + offset];
}

__global__ void fill_kernel(float* x, int offset, float value) {
  x[static_cast<int>(threadIdx.x) + offset] = value;
}

__global__ void shared_shift_kernel(int offset) {
  __shared__ float all[kThreads];
  all[static_cast<int>(threadIdx.x) + offset] = 1;
}

__global__ void dynamic_kernel(int offset) {
  extern __shared__ float rows[];
  rows[static_cast<int>(threadIdx.x) + offset] = 1;
}

__global__ void add_kernel(float* x, float value) {
  x[threadIdx.x] = 2 * x[threadIdx.x] + value;
}

__global__ void __launch_bounds__(64) bounded_kernel() {}

}  // namespace

TEST_CASE("a barrier that is left out is found") {
  const auto right = [](auto launch) {
    return wrong_orders([&](const Fresh& fresh) {
      float* const x = fresh.floats(kThreads);
      launch(fresh, x);
      const std::vector<float> values = fresh.read(x, kThreads);
      bool all = true;
      for (std::size_t i = 0; i < kThreads; ++i) {
        all = all && values[i] == static_cast<float>(kThreads - 1 - i);
      }
      return all;
    });
  };
  CHECK(right([](const Fresh& f, float* x) { reverse_kernel<true><<<1, kThreads, 0, f.a>>>(x); }) ==
        0);
  CHECK(right([](const Fresh& f, float* x) {
          reverse_kernel<false><<<1, kThreads, 0, f.a>>>(x);
        }) == kSeeds);
}

TEST_CASE("a barrier that is left out before memory is used again is found") {
  const auto right = [](auto launch) {
    return wrong_orders([&](const Fresh& fresh) {
      float* const x = fresh.floats(2);
      launch(fresh, x);
      return fresh.read(x, 2) == std::vector<float>{kThreads, 2 * kThreads};
    });
  };
  CHECK(right([](const Fresh& f, float* x) {
          two_sums_kernel<true><<<1, kThreads, 0, f.a>>>(x);
        }) == 0);
  CHECK(right([](const Fresh& f, float* x) {
          two_sums_kernel<false><<<1, kThreads, 0, f.a>>>(x);
        }) > kSeeds / 8);
}

TEST_CASE("a warp's barrier that is left out is found") {
  const auto right = [](auto launch) {
    return wrong_orders([&](const Fresh& fresh) {
      float* const x = fresh.floats(32);
      for (int i = 0; i < 32; ++i) {
        fill_kernel<<<1, 1, 0, fresh.a>>>(x, i, static_cast<float>(i));
      }
      launch(fresh, x);
      const std::vector<float> values = fresh.read(x, 32);
      bool all = true;
      for (std::size_t i = 0; i < 32; ++i) {
        all = all && values[i] == static_cast<float>((i + 1) % 32);
      }
      return all;
    });
  };
  CHECK(right([](const Fresh& f, float* x) {
          rotate_in_place_kernel<true><<<1, 32, 0, f.a>>>(x);
        }) == 0);
  CHECK(right([](const Fresh& f, float* x) {
          rotate_in_place_kernel<false><<<1, 32, 0, f.a>>>(x);
        }) > kSeeds / 2);
}

TEST_CASE("a lane that is gone before a shuffle is found") {
  const auto of_lanes = [](int lanes) {
    return [lanes](const Fresh& fresh) {
      float* const x = fresh.floats(32);
      sum_kernel<<<1, 32, 0, fresh.a>>>(x, lanes);
      return outcome(cudaGetLastError()) == cudaSuccess && fresh.read(x, 1)[0] == 32;
    };
  };
  CHECK(wrong_orders(of_lanes(32)) == 0);
  CHECK(wrong_orders(of_lanes(31)) == kSeeds);
}

TEST_CASE("a barrier that not all threads come to is found") {
  const auto of = [](bool all) {
    return [all](const Fresh& fresh) {
      wait_for_some_kernel<<<1, kThreads, 0, fresh.a>>>(all);
      return outcome(cudaGetLastError()) == cudaSuccess;
    };
  };
  CHECK(wrong_orders(of(true)) == 0);
  CHECK(wrong_orders(of(false)) == kSeeds);
  CHECK(wrong_orders([](const Fresh& fresh) {
          wait_at_two_places_kernel<<<1, kThreads, 0, fresh.a>>>();
          return outcome(cudaGetLastError()) == cudaSuccess;
        }) == kSeeds);
}

TEST_CASE("an offset of one is found, read or written, in device and shared memory") {
  const auto after = [](auto launch) {
    const Fresh fresh;
    launch(fresh);
    return outcome(cudaGetLastError());
  };
  for (const std::size_t n :
       {std::size_t{64}, std::size_t{10}}) {  // one fills what CUDA's alignment gives, one does not
    const auto threads = static_cast<unsigned>(n);
    const auto write = [&](int offset) {
      return after(
          [&](const Fresh& f) { fill_kernel<<<1, threads, 0, f.a>>>(f.floats(n), offset, 1.0f); });
    };
    CHECK(write(0) == cudaSuccess);
    CHECK(write(1) == cudaErrorIllegalAddress);
    CHECK(write(-1) == cudaErrorIllegalAddress);
    // What is read beyond the end is NaN, or no memory at all.
    const Fresh fresh;
    float* const x = fresh.floats(n);
    float* const y = fresh.floats(n);
    fill_kernel<<<1, threads, 0, fresh.a>>>(x, 0, 1.0f);
    shift_kernel<<<1, threads, 0, fresh.a>>>(y, x, 1);
    std::vector<float> values(n);
    cudaMemcpyAsync(values.data(), y, n * sizeof(float), cudaMemcpyDeviceToHost, fresh.a);
    CHECK((cudaStreamSynchronize(fresh.a) == cudaErrorIllegalAddress ||
           values.back() != values.back()));
  }
  for (const int offset : {0, 1}) {
    const cudaError_t expected = offset == 0 ? cudaSuccess : cudaErrorIllegalAddress;
    CHECK(after([&](const Fresh& f) { shared_shift_kernel<<<1, kThreads, 0, f.a>>>(offset); }) ==
          expected);
    CHECK(after([&](const Fresh& f) {
            dynamic_kernel<<<1, 32, 32 * sizeof(float), f.a>>>(offset);
          }) == expected);
  }
}

TEST_CASE("memory that nobody has written is NaN, and none after it is freed") {
  const Fresh fresh;
  float* const x = fresh.floats(100);
  for (const float value : fresh.read(x, 100)) {
    CHECK(value != value);
  }
  CHECK(cudaFree(x) == cudaSuccess);
  CHECK(cudaFree(x) == cudaErrorInvalidValue);
  fill_kernel<<<1, 32, 0, fresh.a>>>(x, 0, 1.0f);
  CHECK(cudaStreamSynchronize(fresh.a) == cudaErrorIllegalAddress);
  CHECK(told("fill_kernel"));
  CHECK(told("no longer"));
}

TEST_CASE("another device's memory is found, and copies between devices are not") {
  const Fresh fresh;
  float* const here = fresh.floats(32);
  REQUIRE(cudaSetDevice(1) == cudaSuccess);
  float* const there = fresh.floats(32);
  cudaStream_t own = nullptr;
  REQUIRE(cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking) == cudaSuccess);
  fill_kernel<<<1, 32, 0, own>>>(there, 0, 3.0f);
  CHECK(cudaMemcpyPeerAsync(here, 0, there, 1, 128, own) == cudaSuccess);
  CHECK(cudaStreamSynchronize(own) == cudaSuccess);
  fill_kernel<<<1, 32, 0, fresh.a>>>(here, 0, 1.0f);
  CHECK(cudaGetLastError() ==
        cudaErrorInvalidResourceHandle);  // the stream is not the current device's
  REQUIRE(cudaSetDevice(0) == cudaSuccess);
  CHECK(fresh.read(here, 32)[31] == 3);
  fill_kernel<<<1, 32, 0, fresh.a>>>(there, 0, 1.0f);
  CHECK(cudaStreamSynchronize(fresh.a) == cudaErrorIllegalAddress);
  CHECK(told("memory of device 1"));
  CHECK(cudaStreamSynchronize(fresh.a) == cudaErrorIllegalAddress);  // and from then on
  cudaSetDevice(1);
  cudaDeviceReset();
}

TEST_CASE("a launch beyond a limit is refused") {
  const Fresh fresh;
  const auto refused = [&](dim3 grid, dim3 block, std::size_t shared) {
    dynamic_kernel<<<grid, block, shared, fresh.a>>>(0);
    return cudaGetLastError() != cudaSuccess;
  };
  CHECK_FALSE(refused(1, 1024, 4096));
  CHECK(refused(1, 1025, 0));
  CHECK(refused(1, dim3(1, 1, 65), 0));
  CHECK(refused(0, 32, 0));
  CHECK(refused(dim3(1, 65536), 32, 0));
  CHECK_FALSE(refused(1, 32, 48 << 10));
  CHECK(refused(1, 32, (48 << 10) + 1));
  void (*const kernel)(int) = dynamic_kernel;
  CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 1 << 20) ==
        cudaErrorInvalidValue);
  CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 64 << 10) ==
        cudaSuccess);
  static_cast<void>(cudaGetLastError());
  kernel<<<1, 32, 64 << 10, fresh.a>>>(0);
  CHECK(cudaGetLastError() == cudaSuccess);
  CHECK(cudaDeviceSynchronize() == cudaSuccess);
  bounded_kernel<<<1, 65, 0, fresh.a>>>();
  CHECK(cudaDeviceSynchronize() == cudaErrorInvalidConfiguration);
}

TEST_CASE("a wait between streams that is left out is found") {
  const auto with = [](bool waits) {
    return [waits](const Fresh& fresh) {
      float* const x = fresh.floats(32);
      fill_kernel<<<1, 32, 0, fresh.b>>>(x, 0, 5.0f);
      cudaEventRecord(fresh.event, fresh.b);
      if (waits) {
        cudaStreamWaitEvent(fresh.a, fresh.event, cudaEventWaitDefault);
      }
      return fresh.read(x, 32)[0] == 5;
    };
  };
  CHECK(wrong_orders(with(true)) == 0);
  CHECK(wrong_orders(with(false)) > kSeeds / 8);
}

TEST_CASE("a race between streams shows as different results") {
  const auto with = [](bool waits) {
    return [waits](const Fresh& fresh) {
      float* const x = fresh.floats(32);
      fill_kernel<<<1, 32, 0, fresh.a>>>(x, 0, 1.0f);
      cudaStreamSynchronize(fresh.a);
      add_kernel<<<1, 32, 0, fresh.a>>>(x, 1.0f);
      if (waits) {
        cudaEventRecord(fresh.event, fresh.a);
        cudaStreamWaitEvent(fresh.b, fresh.event, cudaEventWaitDefault);
      }
      add_kernel<<<1, 32, 0, fresh.b>>>(x, 3.0f);
      cudaDeviceSynchronize();
      return fresh.read(x, 32)[0] == 9;
    };
  };
  CHECK(wrong_orders(with(true)) == 0);
  CHECK(wrong_orders(with(false)) > kSeeds / 8);
}

TEST_CASE("pinned memory that is used again too early is found") {
  const auto with = [](bool waits) {
    return [waits](const Fresh& fresh) {
      float* const x = fresh.floats(2);
      void* memory = nullptr;
      REQUIRE(cudaHostAlloc(&memory, sizeof(float), cudaHostAllocDefault) == cudaSuccess);
      auto* const pinned = static_cast<float*>(memory);
      for (int i = 0; i < 2; ++i) {
        *pinned = static_cast<float>(i);
        cudaMemcpyAsync(x + i, pinned, sizeof(float), cudaMemcpyHostToDevice, fresh.a);
        cudaEventRecord(fresh.event, fresh.a);
        if (waits) {
          cudaEventSynchronize(fresh.event);
        }
      }
      const bool right = fresh.read(x, 2) == std::vector<float>{0, 1};
      cudaFreeHost(memory);
      return right;
    };
  };
  CHECK(wrong_orders(with(true)) == 0);
  CHECK(wrong_orders(with(false)) > kSeeds / 8);
}

TEST_CASE("a product whose layout or alignment is not what was promised is refused") {
  const Fresh fresh;
  cublasLtMatmulDesc_t product = nullptr;
  cublasLtMatrixLayout_t a = nullptr;
  cublasLtMatrixLayout_t other = nullptr;
  cublasLtMatmulPreference_t preference = nullptr;
  cublasLtMatmulDescCreate(&product, CUBLAS_COMPUTE_32F, CUDA_R_32F);
  cublasLtMatrixLayoutCreate(&a, CUDA_R_32F, 4, 4, 4);
  cublasLtMatrixLayoutCreate(&other, CUDA_R_32F, 4, 4, 8);
  cublasLtMatmulPreferenceCreate(&preference);
  cublasLtMatmulHeuristicResult_t best{};
  int found = 0;
  const auto heuristic = [&] {
    return cublasLtMatmulAlgoGetHeuristic(
        nullptr, product, a, a, a, a, preference, 1, &best, &found);
  };
  REQUIRE(heuristic() == CUBLAS_STATUS_SUCCESS);
  float* const x = fresh.floats(64);
  float* const to = fresh.floats(16);
  const float one = 1;
  const float zero = 0;
  const auto multiply = [&](const float* left, cublasLtMatrixLayout_t layout) {
    return cublasLtMatmul(nullptr,
                          product,
                          &one,
                          left,
                          layout,
                          x,
                          a,
                          &zero,
                          to,
                          a,
                          to,
                          a,
                          &best.algo,
                          nullptr,
                          0,
                          fresh.a);
  };
  CHECK(multiply(x, a) == CUBLAS_STATUS_SUCCESS);
  CHECK(multiply(x + 1, a) == CUBLAS_STATUS_INVALID_VALUE);
  CHECK(multiply(x, other) == CUBLAS_STATUS_INVALID_VALUE);
  CHECK(cudaDeviceSynchronize() == cudaSuccess);
  CHECK(multiply(x + 64, a) == CUBLAS_STATUS_SUCCESS);  // CUDA looks at an address when it reads it
  CHECK(cudaDeviceSynchronize() == cudaErrorIllegalAddress);
  cublasLtMatmulPreferenceDestroy(preference);
  cublasLtMatrixLayoutDestroy(other);
  cublasLtMatrixLayoutDestroy(a);
  cublasLtMatmulDescDestroy(product);
}

}  // namespace planted_faults_test
