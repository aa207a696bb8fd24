// A stand-in: what kernels themselves use of CUDA. rewrite.py takes out what is no C++: launches and __shared__.
#pragma once

#include "tests/kernels/device_on_cpu/device.hpp"

#include <cmath>
#include <cstring>

#define __global__
#define __device__
#define __host__
#define __grid_constant__
#define __launch_bounds__(threads)

struct alignas(8) uint2 {
  unsigned x, y;
};

struct alignas(16) uint4 {
  unsigned x, y, z, w;
};

struct alignas(16) float4 {
  float x, y, z, w;
};

template <class Kernel>
cudaError_t cudaFuncSetAttribute(Kernel* kernel, cudaFuncAttribute /*attribute*/, int value) {
  return device_on_cpu::set_shared_bytes_max(reinterpret_cast<const void*>(kernel), value);
}

template <class Kernel>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, Kernel* /*kernel*/) {
  attributes->maxThreadsPerBlock = device_on_cpu::kThreadsMax;
  return cudaSuccess;
}

inline void __syncthreads(device_on_cpu::Place place = device_on_cpu::Place::current()) {
  device_on_cpu::barrier(false, place);
}

inline int __syncthreads_or(int value,
                            device_on_cpu::Place place = device_on_cpu::Place::current()) {
  return device_on_cpu::barrier(value != 0, place) ? 1 : 0;
}

inline void __syncwarp(unsigned mask = 0xffffffffu,
                       device_on_cpu::Place place = device_on_cpu::Place::current()) {
  device_on_cpu::Exchange(mask, nullptr, 0, place);
}

inline unsigned __ballot_sync(unsigned mask,
                              int value,
                              device_on_cpu::Place place = device_on_cpu::Place::current()) {
  const bool set = value != 0;
  const device_on_cpu::Exchange all(mask, &set, sizeof set, place);
  unsigned lanes = 0;
  for (int lane = 0; lane < 32; ++lane) {
    lanes |= (mask >> lane & 1u) != 0 && all.of<bool>(lane) ? 1u << lane : 0u;
  }
  return lanes;
}

inline int __all_sync(unsigned mask,
                      int value,
                      device_on_cpu::Place place = device_on_cpu::Place::current()) {
  return __ballot_sync(mask, value, place) == mask ? 1 : 0;
}

/// Beyond the warp a lane keeps its own value, as in CUDA; from a lane that the mask lacks it gets NaN's bits.
template <class T>
T __shfl_sync(unsigned mask,
              T value,
              int lane,
              device_on_cpu::Place place = device_on_cpu::Place::current()) {
  const device_on_cpu::Exchange all(mask, &value, sizeof value, place);
  return all.of<T>(lane & 31);
}

template <class T>
T __shfl_xor_sync(unsigned mask,
                  T value,
                  int bits,
                  device_on_cpu::Place place = device_on_cpu::Place::current()) {
  const device_on_cpu::Exchange all(mask, &value, sizeof value, place);
  return all.of<T>((device_on_cpu::lane() ^ bits) & 31);
}

template <class T>
T __shfl_down_sync(unsigned mask,
                   T value,
                   int distance,
                   device_on_cpu::Place place = device_on_cpu::Place::current()) {
  const device_on_cpu::Exchange all(mask, &value, sizeof value, place);
  const int from = device_on_cpu::lane() + distance;
  return from < 32 ? all.of<T>(from) : value;
}

inline int __popc(unsigned x) {
  return __builtin_popcount(x);
}

inline float __expf(float x) {
  return std::exp(x);
}

/// Threads run one at a time, so that nothing comes between.
template <class T>
T atomicOr(T* to, T bits) {
  const T before = *to;
  *to |= bits;
  return before;
}

template <class T>
T atomicAdd(T* to, T value) {
  const T before = *to;
  *to += value;
  return before;
}
