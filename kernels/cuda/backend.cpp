// Streams and events.
#include "kernels/cuda/backend.hpp"

#include "kernels/cuda/state.hpp"

#include <atomic>
#include <map>
#include <mutex>

namespace troupe::cuda {

// -- streams ----------------------------------------------------------------------

namespace {

std::atomic<std::uint64_t> streams_made{0};

}  // namespace

Backend::State::State(int index, Precision products)
    : device_index(index), precision(products), id(++streams_made) {
  TROUPE_CUDA_CHECK(cudaSetDevice(device_index));
  TROUPE_CUDA_CHECK(cudaStreamCreateWithFlags(stream.out(), cudaStreamNonBlocking));
  tools = std::make_unique<Tools>(precision);
  TROUPE_CUDA_CHECK(cudaMalloc(tools->workspace.out(), kWorkspaceBytes));
}

Backend::State::~State() {
  static_cast<void>(succeeded(cudaSetDevice(device_index)));
}

Backend::Backend(int device_index, Precision precision)
    : state_(std::make_shared<State>(device_index, precision)) {}

Backend::~Backend() {
  static_cast<void>(succeeded(cudaSetDevice(state_->device_index)));
  static_cast<void>(succeeded(cudaStreamSynchronize(state_->stream.get())));
  state_->tools.reset();
}

void* Backend::native_handle() const {
  return state_->stream.get();
}

Event Backend::record() {
  return Event(std::make_shared<RecordedEvent>(*state_));
}

void Backend::wait(const Event& event) {
  if (!event || recorded(event).stream_id() == state_->id) {
    return;
  }
  TROUPE_CUDA_CHECK(cudaSetDevice(state_->device_index));
  TROUPE_CUDA_CHECK(
      cudaStreamWaitEvent(state_->stream.get(), recorded(event).get(), cudaEventWaitDefault));
}

void Backend::synchronize() {
  TROUPE_CUDA_CHECK(cudaSetDevice(state_->device_index));
  TROUPE_CUDA_CHECK(cudaStreamSynchronize(state_->stream.get()));
}

Backend::State& activate(Stream& stream) {
  Backend::State& state = stream.cuda().state();
  TROUPE_CUDA_CHECK(cudaSetDevice(state.device_index));
  return state;
}

// -- events -----------------------------------------------------------------------
//
// A step records dozens of events, so that they are used again. That is safe although somebody may
// still wait for the previous recording on a device: cudaStreamWaitEvent takes the recording of the
// moment when it is called. Host threads that wait hold the RecordedEvent.

namespace {

/// By device: an event belongs to the one that was current when it was made.
struct IdleEvents {
  std::mutex mutex;
  std::map<int, std::vector<EventHandle>> of_device;
};

IdleEvents& idle_events() {
  static auto* const idle = new IdleEvents;  // never destroyed: events may outlive main()
  return *idle;
}

EventHandle take_event(int device_index) {
  {
    IdleEvents& idle = idle_events();
    const std::lock_guard lock(idle.mutex);
    std::vector<EventHandle>& events = idle.of_device[device_index];
    if (!events.empty()) {
      EventHandle event = std::move(events.back());
      events.pop_back();
      return event;
    }
  }
  EventHandle event;
  TROUPE_CUDA_CHECK(cudaEventCreateWithFlags(event.out(), cudaEventDisableTiming));
  return event;
}

}  // namespace

RecordedEvent::RecordedEvent(const Backend::State& state)
    : device_index_(state.device_index), stream_id_(state.id) {
  TROUPE_CUDA_CHECK(cudaSetDevice(device_index_));
  event_ = take_event(device_index_);
  TROUPE_CUDA_CHECK(cudaEventRecord(event_.get(), state.stream.get()));
}

RecordedEvent::~RecordedEvent() {
  IdleEvents& idle = idle_events();
  try {
    const std::lock_guard lock(idle.mutex);
    idle.of_device[device_index_].push_back(std::move(event_));
  } catch (const std::exception&) {
    // No memory for the list: the event is destroyed instead.
  }
}

const RecordedEvent& recorded(const Event& event) {
  return *static_cast<const RecordedEvent*>(event.native());
}

void wait_event(const Event& event) {
  TROUPE_CUDA_CHECK(cudaSetDevice(recorded(event).device_index()));
  TROUPE_CUDA_CHECK(cudaEventSynchronize(recorded(event).get()));
}

}  // namespace troupe::cuda
