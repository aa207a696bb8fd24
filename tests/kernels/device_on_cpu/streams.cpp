// Streams, events and the calls of CUDA's runtime. All of it is one world with one lock: whoever waits for something plays
// what is queued, one operation after the other, each time of any stream whose next operation may begin, until it is done.
// Now and then some is played where something is queued.
#include "tests/kernels/device_on_cpu/world.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <deque>
#include <iostream>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

namespace device_on_cpu {
namespace {

struct Operation {
  const char* name;
  unsigned devices;  // bits
  std::function<void()> run;
  std::function<bool()> ready = nullptr;
  bool kernel = false;     // sees no other device's memory
  bool elsewhere = false;  // Work::elsewhere
};

}  // namespace
}  // namespace device_on_cpu

struct CUstream_st {
  int device;
  std::deque<device_on_cpu::Operation> queue;
};

struct CUevent_st {
  int device;
  std::shared_ptr<bool> passed;  // of the last recording; null before the first
};

namespace device_on_cpu {
namespace {

struct World {
  std::mutex mutex;
  std::vector<std::unique_ptr<CUstream_st>> streams;
  std::set<CUstream_st*> known;  // not destroyed
  std::set<CUevent_st*> events;
  std::map<std::pair<std::thread::id, int>, CUstream_st*> of_thread;
  std::map<const void*, int> shared_bytes_max;
  std::array<cudaError_t, kDevicesMax> broken{};
  cudaError_t failed = cudaSuccess;  // of the operation that is being played
  std::string fault;
  std::uint64_t seed = 1;
  std::uint64_t random = 1;
};

World& world() {
  static auto* const the_one = [] {
    auto* const made = new World;
    const char* seed = std::getenv("TROUPE_DEVICE_SEED");
    made->seed = seed ? std::strtoull(seed, nullptr, 10) : 1;
    made->random = made->seed * 0x9e3779b97f4a7c15u | 1u;
    return made;
  }();
  return *the_one;
}

thread_local int current_device = 0;
thread_local cudaError_t last_error = cudaSuccess;

cudaError_t noted(cudaError_t code) {
  if (code != cudaSuccess) {
    last_error = code;
  }
  return code;
}

CUstream_st* find(cudaStream_t stream) {
  World& w = world();
  if (stream == cudaStreamPerThread) {
    CUstream_st*& own = w.of_thread[{std::this_thread::get_id(), current_device}];
    if (!own) {
      own = w.streams.emplace_back(new CUstream_st{current_device, {}}).get();
      w.known.insert(own);
    }
    return own;
  }
  return w.known.contains(stream) ? stream : nullptr;
}

void play(CUstream_st& stream) {
  World& w = world();
  Operation next = std::move(stream.queue.front());
  stream.queue.pop_front();
  for (int device = 0; device < device_count(); ++device) {
    if ((next.devices >> device & 1u) != 0 &&
        w.broken[static_cast<std::size_t>(device)] != cudaSuccess) {
      return;
    }
  }
  open(next.devices, next.kernel);
  w.failed = cudaSuccess;
  next.run();
  for (int device = 0; device < device_count(); ++device) {
    if ((next.devices >> device & 1u) != 0) {
      if (const std::string found = next.kernel ? damage(device) : "";
          w.failed == cudaSuccess && !found.empty()) {
        tell(std::string(next.name) + ": " + found);
        w.failed = cudaErrorIllegalAddress;
      }
      w.broken[static_cast<std::size_t>(device)] = w.failed;
    }
  }
}

/// False where nothing can begin.
bool play_any() {
  World& w = world();
  std::vector<CUstream_st*> ready;
  for (const auto& stream : w.streams) {
    if (!stream->queue.empty() && (!stream->queue.front().ready || stream->queue.front().ready())) {
      ready.push_back(stream.get());
    }
  }
  if (ready.empty()) {
    return false;
  }
  play(*ready[any_of(ready.size())]);
  std::erase_if(w.streams, [&](const auto& stream) {
    return stream->queue.empty() && !w.known.contains(stream.get());
  });
  return true;
}

bool waits_for_others() {
  const auto& streams = world().streams;
  return std::any_of(streams.begin(), streams.end(), [](const auto& stream) {
    return !stream->queue.empty() && stream->queue.front().elsewhere;
  });
}

template <class Done>
cudaError_t play_until(Done done) {
  World& w = world();
  const cudaError_t& broken = w.broken[static_cast<std::size_t>(current_device)];
  while (!done() && broken == cudaSuccess) {
    if (play_any()) {
      continue;
    }
    if (waits_for_others()) {
      w.mutex.unlock();
      std::this_thread::sleep_for(std::chrono::microseconds(100));
      w.mutex.lock();
    } else {
      tell("streams wait for each other");
      world().broken.fill(cudaErrorLaunchTimeout);
    }
  }
  return broken;
}

void play_some() {
  while (any_of(4) == 0 && play_any()) {
  }
}

void queue(CUstream_st& stream, Operation operation) {
  stream.queue.push_back(std::move(operation));
  play_some();
}

unsigned bit(int device) {
  return device < kDevicesMax ? 1u << device : 0u;
}

/// Under the lock, on a device that works: what the call does.
template <class Call>
cudaError_t entry(Call call) {
  World& w = world();
  const std::lock_guard lock(w.mutex);
  if (const cudaError_t broken = w.broken[static_cast<std::size_t>(current_device)];
      broken != cudaSuccess) {
    return noted(broken);
  }
  return noted(call(w));
}

template <class Call>
cudaError_t on_stream(cudaStream_t handle, Call call) {
  return entry([&](World&) {
    CUstream_st* const stream = find(handle);
    return stream ? call(*stream) : cudaErrorInvalidResourceHandle;
  });
}

constexpr std::array<std::pair<cudaError_t, const char*>, 16> kNames{{
    {cudaSuccess, "cudaSuccess"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration"},
    {cudaErrorInvalidMemcpyDirection, "cudaErrorInvalidMemcpyDirection"},
    {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver"},
    {cudaErrorNoDevice, "cudaErrorNoDevice"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle"},
    {cudaErrorNotReady, "cudaErrorNotReady"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress"},
    {cudaErrorLaunchOutOfResources, "cudaErrorLaunchOutOfResources"},
    {cudaErrorLaunchTimeout, "cudaErrorLaunchTimeout"},
    {cudaErrorMisalignedAddress, "cudaErrorMisalignedAddress"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure"},
}};

}  // namespace

std::size_t any_of(std::size_t count) {
  std::uint64_t& x = world().random;
  x ^= x >> 12;
  x ^= x << 25;
  x ^= x >> 27;
  return static_cast<std::size_t>((x * 0x2545f4914f6cdd1du >> 11) % count);
}

void tell(const std::string& what) {
  world().fault = what;
  std::cerr << "device on cpu (TROUPE_DEVICE_SEED=" << world().seed << "): " << what << '\n';
}

void seed(std::uint64_t seed) {
  World& w = world();
  const std::lock_guard lock(w.mutex);
  w.seed = seed;
  w.random = seed * 0x9e3779b97f4a7c15u | 1u;
}

std::string last_fault() {
  const std::lock_guard lock(world().mutex);
  return world().fault;
}

int device_of(cudaStream_t stream) {
  const std::lock_guard lock(world().mutex);
  const CUstream_st* found = find(stream);
  return found ? found->device : -1;
}

void put(std::vector<Work> work) {
  const std::lock_guard lock(world().mutex);
  for (Work& each : work) {
    if (CUstream_st* const found = find(each.stream)) {
      found->queue.push_back({each.name,
                              each.devices,
                              std::move(each.run),
                              std::move(each.ready),
                              false,
                              each.elsewhere});
    }
  }
  play_some();
}

void need(int device,
          const void* data,
          std::size_t size_bytes,
          std::size_t alignment,
          const std::string& what) {
  World& w = world();
  if (w.failed == cudaSuccess && size_bytes > 0 && device_of(data, size_bytes) != device) {
    tell(what + ": " + std::to_string(size_bytes) +
         " bytes are not all of one allocation of device " + std::to_string(device));
    w.failed = cudaErrorIllegalAddress;
  }
  if (w.failed == cudaSuccess && reinterpret_cast<std::uintptr_t>(data) % alignment != 0) {
    tell(what + ": not at a multiple of " + std::to_string(alignment) + " bytes");
    w.failed = cudaErrorMisalignedAddress;
  }
}

bool sound() {
  return world().failed == cudaSuccess;
}

cudaError_t set_shared_bytes_max(const void* kernel, int bytes) {
  return entry([&](World& w) {
    if (bytes < 0 || bytes > kSharedBytesMax) {
      return cudaErrorInvalidValue;
    }
    w.shared_bytes_max[kernel] = bytes;
    return cudaSuccess;
  });
}

void Launch::put(std::function<void()> thread) const {
  static_cast<void>(on_stream(stream_, [&](CUstream_st& stream) {
    World& w = world();
    const auto found = w.shared_bytes_max.find(kernel_);
    const int shared_max =
        kernel_ && found != w.shared_bytes_max.end() ? found->second : kSharedBytes;
    const std::uint64_t threads = std::uint64_t{block_.x} * block_.y * block_.z;
    const bool grid_fits = grid_.x >= 1 && grid_.y >= 1 && grid_.z >= 1 &&
                           grid_.x <= static_cast<unsigned>(std::numeric_limits<int>::max()) &&
                           grid_.y <= 65535 && grid_.z <= 65535;
    if (!grid_fits || threads < 1 || threads > kThreadsMax || block_.z > 64) {
      return cudaErrorInvalidConfiguration;
    }
    if (shared_bytes_ > static_cast<std::size_t>(std::max(shared_max, kSharedBytes))) {
      return cudaErrorInvalidValue;
    }
    if (stream.device != current_device) {
      return cudaErrorInvalidResourceHandle;
    }
    queue(stream,
          {name_,
           bit(stream.device),
           [launch = *this, thread = std::move(thread)] {
             const cudaError_t code = run_blocks(
                 launch.name_, launch.grid_, launch.block_, launch.shared_bytes_, thread);
             world().failed = code;
           },
           nullptr,
           true});
    return cudaSuccess;
  }));
}

}  // namespace device_on_cpu

// -- the calls ------------------------------------------------------------------------------

using namespace device_on_cpu;

cudaError_t cudaGetDeviceCount(int* count) {
  *count = device_count();
  return noted(*count > 0 ? cudaSuccess : cudaErrorNoDevice);
}

cudaError_t cudaGetDevice(int* device) {
  *device = current_device;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= device_count()) {
    return noted(cudaErrorInvalidDevice);
  }
  current_device = device;
  return entry([](World&) { return cudaSuccess; });
}

cudaError_t cudaDeviceReset() {
  World& w = world();
  const std::lock_guard lock(w.mutex);
  for (const auto& stream : w.streams) {
    if (stream->device == current_device) {
      stream->queue.clear();
      w.known.erase(stream.get());
    }
  }
  std::erase_if(w.of_thread,
                [](const auto& each) { return each.second->device == current_device; });
  std::erase_if(w.streams, [&](const auto& stream) { return !w.known.contains(stream.get()); });
  release_all(current_device);
  w.broken[static_cast<std::size_t>(current_device)] = cudaSuccess;
  w.fault.clear();
  last_error = cudaSuccess;
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() {
  return entry([](World& w) {
    return play_until([&] {
      return std::none_of(w.streams.begin(), w.streams.end(), [](const auto& stream) {
        return stream->device == current_device && !stream->queue.empty();
      });
    });
  });
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr /*attribute*/, int device) {
  *value = 8;
  return noted(device >= 0 && device < device_count() ? cudaSuccess : cudaErrorInvalidDevice);
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  std::strcpy(properties->name, "device on cpu");
  properties->totalGlobalMem = std::size_t{4} << 30;
  return noted(device >= 0 && device < device_count() ? cudaSuccess : cudaErrorInvalidDevice);
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaGetLastError() {
  return std::exchange(last_error, cudaSuccess);
}

const char* cudaGetErrorName(cudaError_t code) {
  const auto* const found = std::find_if(
      kNames.begin(), kNames.end(), [&](const auto& each) { return each.first == code; });
  return found == kNames.end() ? "an unknown error" : found->second;
}

const char* cudaGetErrorString(cudaError_t code) {
  return cudaGetErrorName(code);
}

cudaError_t cudaMalloc(void** data, std::size_t size_bytes) {
  return entry([&](World&) {
    *data = size_bytes > 0 ? allocate(current_device, size_bytes) : nullptr;
    return *data || size_bytes == 0 ? cudaSuccess : cudaErrorMemoryAllocation;
  });
}

/// As CUDA's, it waits for all of the device's work.
cudaError_t cudaFree(void* data) {
  if (!data) {
    return cudaSuccess;
  }
  if (const cudaError_t code = cudaDeviceSynchronize(); code != cudaSuccess) {
    return code;
  }
  return entry([&](World&) {
    const int device = device_of(data, 1);
    return device >= 0 && device != kHost && release(device, data) ? cudaSuccess
                                                                   : cudaErrorInvalidValue;
  });
}

cudaError_t cudaHostAlloc(void** data, std::size_t size_bytes, unsigned /*flags*/) {
  return entry([&](World&) {
    *data = allocate(kHost, size_bytes);
    return *data ? cudaSuccess : cudaErrorMemoryAllocation;
  });
}

cudaError_t cudaFreeHost(void* data) {
  if (const cudaError_t code = cudaDeviceSynchronize(); code != cudaSuccess) {
    return code;
  }
  return entry([&](World&) { return release(kHost, data) ? cudaSuccess : cudaErrorInvalidValue; });
}

namespace {

/// A copy of ordinary host memory may be done before the call returns, at the latest by CUDA's word, or late, on systems
/// whose GPUs reach that memory: any of both.
cudaError_t copy(CUstream_st& stream,
                 const char* name,
                 unsigned devices,
                 void* to,
                 const void* from,
                 std::size_t size_bytes,
                 bool ordinary) {
  auto passed = std::make_shared<bool>(false);
  queue(stream, {name, devices, [=] {
                   std::memcpy(to, from, size_bytes);
                   *passed = true;
                 }});
  return ordinary && any_of(2) == 0 ? play_until([&] { return *passed; }) : cudaSuccess;
}

}  // namespace

cudaError_t cudaMemcpyAsync(
    void* to, const void* from, std::size_t size_bytes, cudaMemcpyKind kind, cudaStream_t handle) {
  return on_stream(handle, [&](CUstream_st& stream) {
    const int source = device_of(from, size_bytes);
    const int target = device_of(to, size_bytes);
    const bool up = kind == cudaMemcpyHostToDevice;
    const bool down = kind == cudaMemcpyDeviceToHost;
    const auto on_device = [](int device) {
      return device >= 0 && device != kHost;
    };
    if (on_device(source) == up || on_device(target) == down) {
      return cudaErrorInvalidValue;
    }
    const unsigned devices =
        (up ? 0u : bit(source)) | (down ? 0u : bit(target)) | bit(stream.device);
    const bool ordinary = (up && source != kHost) || (down && target != kHost);
    return copy(stream, "cudaMemcpyAsync", devices, to, from, size_bytes, ordinary);
  });
}

cudaError_t cudaMemcpyPeerAsync(void* to,
                                int to_device,
                                const void* from,
                                int from_device,
                                std::size_t size_bytes,
                                cudaStream_t handle) {
  return on_stream(handle, [&](CUstream_st& stream) {
    if (device_of(to, size_bytes) != to_device || device_of(from, size_bytes) != from_device) {
      return cudaErrorInvalidValue;
    }
    const unsigned devices = bit(to_device) | bit(from_device) | bit(stream.device);
    return copy(stream, "cudaMemcpyPeerAsync", devices, to, from, size_bytes, false);
  });
}

cudaError_t cudaMemsetAsync(void* to, int value, std::size_t size_bytes, cudaStream_t handle) {
  return on_stream(handle, [&](CUstream_st& stream) {
    if (device_of(to, size_bytes) != stream.device) {
      return cudaErrorInvalidValue;
    }
    queue(stream, {"cudaMemsetAsync", bit(stream.device), [=] {
                     std::memset(to, value, size_bytes);
                   }});
    return cudaSuccess;
  });
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned /*flags*/) {
  return entry([&](World& w) {
    *stream = w.streams.emplace_back(new CUstream_st{current_device, {}}).get();
    w.known.insert(*stream);
    return cudaSuccess;
  });
}

/// What is queued is done all the same.
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  World& w = world();
  const std::lock_guard lock(w.mutex);
  return noted(w.known.erase(stream) == 1 ? cudaSuccess : cudaErrorInvalidResourceHandle);
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  return on_stream(handle, [&](CUstream_st& stream) {
    return play_until([&] { return stream.queue.empty(); });
  });
}

cudaError_t cudaStreamQuery(cudaStream_t handle) {
  return on_stream(handle, [](CUstream_st& stream) {
    while (!stream.queue.empty() && play_any()) {
    }
    return stream.queue.empty() ? cudaSuccess : cudaErrorNotReady;
  });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event, unsigned /*flags*/) {
  return on_stream(handle, [&](CUstream_st& stream) {
    if (!world().events.contains(event)) {
      return cudaErrorInvalidResourceHandle;
    }
    if (const std::shared_ptr<bool> passed = event->passed) {
      queue(stream,
            {"cudaStreamWaitEvent",
             0,
             [] {},
             [passed] {
               return *passed;
             }});
    }
    return cudaSuccess;
  });
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned /*flags*/) {
  return entry([&](World& w) {
    *event = new CUevent_st{current_device, nullptr};
    w.events.insert(*event);
    return cudaSuccess;
  });
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  World& w = world();
  const std::lock_guard lock(w.mutex);
  if (w.events.erase(event) == 0) {
    return noted(cudaErrorInvalidResourceHandle);
  }
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t handle) {
  return on_stream(handle, [&](CUstream_st& stream) {
    if (!world().events.contains(event) || event->device != stream.device) {
      return cudaErrorInvalidResourceHandle;
    }
    event->passed = std::make_shared<bool>(false);
    queue(stream, {"cudaEventRecord", 0, [passed = event->passed] {
                     *passed = true;
                   }});
    return cudaSuccess;
  });
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return entry([&](World& w) {
    if (!w.events.contains(event)) {
      return cudaErrorInvalidResourceHandle;
    }
    const std::shared_ptr<bool> passed = event->passed;
    return passed ? play_until([&] { return *passed; }) : cudaSuccess;
  });
}
