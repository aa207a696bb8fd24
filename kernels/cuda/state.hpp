// What the files of kernels/cuda share about streams and events. Private to this folder.
//
// Lifetimes. A Backend and its State begin together. The State stays as long as some buffer
// remembers that the stream used it, because retire() records an event there; all that is large
// (workspace, staging, cuBLASLt) goes with the Backend, after its work is done.
#pragma once

#include "kernels/activation.hpp"
#include "kernels/cuda/backend.hpp"
#include "kernels/cuda/handle.hpp"
#include "kernels/cuda/matmul_plans.hpp"
#include "kernels/cuda/staging.hpp"
#include "kernels/stream.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>

namespace troupe::cuda {

class ConvolutionPlans;  // cuda/convolution.cpp

/// Scratch memory of a stream: cuBLASLt's workspace (NVIDIA advises 32 MiB on Hopper), cuDNN's and
/// the partial sums of reductions. One after the other in stream order, so that they share it.
constexpr std::size_t kWorkspaceBytes = std::size_t{32} << 20;

struct Tools {
  explicit Tools(Precision precision) : matmuls(precision) {}

  DeviceMemory workspace;  // kWorkspaceBytes, aligned to 256
  MatmulPlans matmuls;
  std::shared_ptr<ConvolutionPlans> convolutions;  // made by the first convolution
  Staging staging;
};

struct Backend::State {
  State(int index, Precision products);
  ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  int device_index;
  Precision precision;
  std::uint64_t id;              // never used again, unlike an address
  StreamHandle stream;           // non-blocking: takes no notice of the legacy default stream
  std::unique_ptr<Tools> tools;  // null once the Backend is gone

  template <class T>
  T* workspace() const {
    return static_cast<T*>(tools->workspace.get());
  }
};

/// Passes when everything put on the stream before its construction is done. What an Event holds.
class RecordedEvent {
 public:
  explicit RecordedEvent(const Backend::State& state);
  ~RecordedEvent();
  RecordedEvent(const RecordedEvent&) = delete;
  RecordedEvent& operator=(const RecordedEvent&) = delete;

  cudaEvent_t get() const { return event_.get(); }

  int device_index() const { return device_index_; }

  std::uint64_t stream_id() const { return stream_id_; }

 private:
  EventHandle event_;
  int device_index_;
  std::uint64_t stream_id_;
};

/// The event inside; `event` is not empty.
const RecordedEvent& recorded(const Event& event);

/// Makes the stream's device this thread's current one; every entry begins with it.
Backend::State& activate(Stream& stream);

/// A stream for copies that no Backend orders: this thread's own on x's device, which is made
/// current. It waits for all uses of x known so far: x.ready(), what the noted streams hold and,
/// where the buffer is recycled, its life before.
cudaStream_t thread_stream_behind(const Tensor& x);

/// Where the elements of a tensor of any type begin.
std::byte* first_byte(const Tensor& x);

/// y[r, c] = f(x[r, c] + bias[c]): what a product's epilogue could not do.
/// Shapes: x (R, C), float32 or bfloat16, y (R, C), which may be x, bias (C) or null.
void bias_and_activation(const Backend::State& state,
                         ActivationKind kind,
                         const Tensor& x,
                         const float* bias,
                         const Tensor& y);

/// y += x. Shapes: x (n) bfloat16, y (n) float32.
void add_converted(const Backend::State& state, const Tensor& x, const Tensor& y);

/// The current device can load this build's kernels.
cudaError_t kernels_load();

}  // namespace troupe::cuda
