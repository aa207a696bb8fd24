// What the files of the device that the CPU plays share. All of it is used under the lock of the one world.
#pragma once

#include "tests/kernels/device_on_cpu/device.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace device_on_cpu {

/// xorshift64*: any number below `count`.
std::size_t any_of(std::size_t count);

/// Notes a fault, and tells it on standard error.
void tell(const std::string& what);

// -- block.cpp ---------------------------------------------------------------------------

/// Runs all blocks of a launch, in a random order.
cudaError_t run_blocks(const char* name,
                       dim3 grid,
                       dim3 block,
                       std::size_t shared_bytes,
                       const std::function<void()>& thread);

// -- memory.cpp --------------------------------------------------------------------------

constexpr int kDevicesMax = 8;
constexpr int kHost = kDevicesMax;  // stands for a device: pinned memory

int device_count();

/// Null where there is no room. As NaN, with its end where no memory is.
void* allocate(int device, std::size_t size_bytes);
/// False where nothing begins there. Nothing else will ever be there.
bool release(int device, void* data);
void release_all(int device);
/// Empty, or what was written beside an allocation.
std::string damage(int device);

/// From now on the memory of these devices (bits) can be used, and, where `alone`, no other's.
void open(unsigned devices, bool alone);

/// What is at `address`, in words.
std::string what_is_at(const void* address);

}  // namespace device_on_cpu
