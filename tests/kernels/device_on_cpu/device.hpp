// A GPU that the CPU plays, so that kernels/cuda/ is executed where there is none, and so that what is wrong there shows.
//
// Threads of a block are fibers that run in a random order from one barrier to the next, in half of the blocks one warp as
// far as it gets and then another; lanes of a warp meet at shuffles and votes. What is queued on streams runs late, one
// operation at a time, in any order that streams and events allow. Memory of a device, and a block's shared memory, begins as
// NaN; behind an allocation there is none. Two devices (or as many as TROUPE_DEVICES says) have memory of their own. All
// order is drawn from TROUPE_DEVICE_SEED.
//
// What is against CUDA's rules is a fault: it is told on standard error, with the kernel and the place, and from then on
// every call of that device returns an error, as CUDA's do.
//
// What it does not show: races within what runs between two barriers where every order of threads gives the same, the
// order of memory accesses of different threads, speed, and what nvcc makes of the code.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <source_location>
#include <string>
#include <tuple>
#include <vector>

struct dim3 {
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}

  unsigned x, y, z;
};

extern dim3 threadIdx;
extern dim3 blockIdx;
extern dim3 blockDim;
extern dim3 gridDim;

namespace device_on_cpu {

using Place = std::source_location;

constexpr int kThreadsMax = 1024;
constexpr int kWarp = 32;
constexpr int kSharedBytes = 48 << 10;     // without asking for more
constexpr int kSharedBytesMax = 99 << 10;  // the least of all GPUs from 8.0 on

// -- for tests ---------------------------------------------------------------------------

/// From here on order is drawn from `seed`.
void seed(std::uint64_t seed);

/// What was wrong, since the last reset of a device (cudaDeviceReset); empty where nothing was.
std::string last_fault();

// -- in a kernel -------------------------------------------------------------------------

/// Ends the launch with `code`.
[[noreturn]] void fault(cudaError_t code, const std::string& what);

int lane();

/// Meets all threads of the block; whether one of them said so.
bool barrier(bool said, Place place);

/// Meets the lanes of `mask`, each with `size` bytes; then it can read theirs.
class Exchange {
 public:
  Exchange(unsigned mask, const void* value, std::size_t size, Place place);
  ~Exchange();
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  template <class T>
  T of(int lane) const {
    T value;
    std::memcpy(&value, bytes(lane), sizeof value);
    return value;
  }

  struct Meeting;

 private:
  const void* bytes(int lane) const;

  Meeting* meeting_;
};

/// Room of the block's for the variable that is declared at `place`.
void* shared_bytes(std::size_t size, Place place);
/// What the launch asked for.
void* dynamic_shared_bytes();
bool is_shared(const void* pointer, std::size_t size);
void launch_bounds(int threads);

template <class T>
T& shared(Place place = Place::current()) {
  return *static_cast<T*>(shared_bytes(sizeof(T), place));
}

template <class T>
T* dynamic_shared() {
  return static_cast<T*>(dynamic_shared_bytes());
}

// -- launches ----------------------------------------------------------------------------

cudaError_t set_shared_bytes_max(const void* kernel, int bytes);

/// kernel<<<grid, block, shared_bytes, stream>>>(...). `kernel` is what set_shared_bytes_max() was told, or null.
class Launch {
 public:
  Launch(const char* name,
         const void* kernel,
         dim3 grid,
         dim3 block,
         std::size_t shared_bytes = 0,
         cudaStream_t stream = nullptr)
      : name_(name),
        kernel_(kernel),
        grid_(grid),
        block_(block),
        shared_bytes_(shared_bytes),
        stream_(stream) {}

  template <class F, class... Arguments>
  void run(F kernel, const Arguments&... arguments) const {
    put([kernel, values = std::tuple<Arguments...>(arguments...)] { std::apply(kernel, values); });
  }

 private:
  void put(std::function<void()> thread) const;

  const char* name_;
  const void* kernel_;
  dim3 grid_;
  dim3 block_;
  std::size_t shared_bytes_;
  cudaStream_t stream_;
};

// -- for the stand-ins of libraries --------------------------------------------------------

/// For the end of a stream: `run` begins once `ready`, if there is one, says so. It may use the memory of `devices` (bits).
/// `elsewhere`: what it waits for comes of another process, or of a later call, so that there is no fault where all wait.
struct Work {
  cudaStream_t stream;
  const char* name;
  unsigned devices;
  std::function<void()> run;
  std::function<bool()> ready = nullptr;
  bool elsewhere = false;
};

/// Puts all of it where it belongs, before anything of it is played. Not from Work::run.
void put(std::vector<Work> work);

/// -1 where there is no such stream.
int device_of(cudaStream_t stream);

/// The device that has all of these bytes in one allocation; -1 where none has.
int device_of(const void* data, std::size_t size_bytes);

/// In what was put: faults unless the device has all of these bytes, at a multiple of `alignment`.
void need(int device,
          const void* data,
          std::size_t size_bytes,
          std::size_t alignment,
          const std::string& what);

/// In what was put: whether nothing has been at fault so far.
bool sound();

}  // namespace device_on_cpu
