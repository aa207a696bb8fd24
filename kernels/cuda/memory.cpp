// Device memory, and who uses it. What BufferPool needs on a GPU.
//
// The rule that keeps a recycled buffer right: whoever uses a buffer for the first time, be it the
// stream that acquired it or another, is put behind the events of its previous life (note_use). So
// the events that retire() records, one a stream of this life, cover all lives before it, and those
// of a life in which nobody used the buffer stand.
#include "kernels/cuda/state.hpp"

#include <algorithm>
#include <mutex>
#include <vector>

namespace troupe::cuda {

namespace {

struct Uses {
  std::mutex mutex;                                          // guards what follows
  std::vector<std::shared_ptr<Backend::State>> streams;      // of this life
  std::vector<std::shared_ptr<const RecordedEvent>> events;  // of the life before
};

Uses& uses_of(Buffer& buffer) {
  return *static_cast<Uses*>(buffer.uses().get());
}

}  // namespace

std::byte* allocate_bytes(int device_index, std::size_t size_bytes) {
  TROUPE_CUDA_CHECK(cudaSetDevice(device_index));
  void* data = nullptr;
  TROUPE_CUDA_CHECK(cudaMalloc(&data, size_bytes));
  return static_cast<std::byte*>(data);
}

void free_bytes(int device_index, std::byte* data) noexcept {
  static_cast<void>(succeeded(cudaSetDevice(device_index)));
  static_cast<void>(succeeded(cudaFree(data)));
}

std::shared_ptr<void> make_uses() {
  return std::make_shared<Uses>();
}

void note_use(Buffer& buffer, Backend& backend) {
  Uses& uses = uses_of(buffer);
  const std::shared_ptr<Backend::State>& state = backend.shared_state();
  const std::lock_guard lock(uses.mutex);
  if (std::find(uses.streams.begin(), uses.streams.end(), state) != uses.streams.end()) {
    return;
  }
  TROUPE_CUDA_CHECK(cudaSetDevice(state->device_index));
  for (const auto& event : uses.events) {
    if (event->stream_id() != state->id) {
      TROUPE_CUDA_CHECK(
          cudaStreamWaitEvent(state->stream.get(), event->get(), cudaEventWaitDefault));
    }
  }
  uses.streams.push_back(state);
}

void await_uses(Buffer& buffer, Backend& backend) {
  note_use(buffer, backend);
}

void retire(Buffer& buffer) noexcept {
  Uses& uses = uses_of(buffer);
  // Outlives the lock: the last owner of a State may be among them.
  std::vector<std::shared_ptr<Backend::State>> streams;
  const std::lock_guard lock(uses.mutex);
  if (uses.streams.empty()) {
    return;
  }
  streams.swap(uses.streams);
  uses.events.clear();
  for (const auto& state : streams) {
    try {
      uses.events.push_back(std::make_shared<RecordedEvent>(*state));
    } catch (const std::exception&) {
      static_cast<void>(succeeded(cudaStreamSynchronize(state->stream.get())));
    }
  }
}

cudaStream_t thread_stream_behind(const Tensor& x) {
  // A name for the current device's one, and recording an event may change the current device.
  const cudaStream_t follower = cudaStreamPerThread;
  const auto follow = [&](const RecordedEvent& event) {
    TROUPE_CUDA_CHECK(cudaSetDevice(x.device().index));
    TROUPE_CUDA_CHECK(cudaStreamWaitEvent(follower, event.get(), cudaEventWaitDefault));
  };
  TROUPE_CUDA_CHECK(cudaSetDevice(x.device().index));
  if (x.ready()) {
    follow(recorded(x.ready()));
  }
  Uses& uses = uses_of(*x.buffer());
  const std::lock_guard lock(uses.mutex);
  for (const auto& event : uses.events) {
    follow(*event);
  }
  for (const auto& state : uses.streams) {
    follow(RecordedEvent(*state));
  }
  return follower;
}

}  // namespace troupe::cuda
