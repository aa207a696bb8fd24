// Pinned memory between ordinary host memory and the device.
//
// cudaMemcpyAsync from ordinary memory may block until the stream comes to it, and on some systems
// reads that memory after it has returned. Through these slots an upload is enqueued without
// waiting for the stream, and the source is free at return. The host waits only where it is kSlots
// chunks ahead of the device.
#pragma once

#include "kernels/cuda/handle.hpp"

#include <array>
#include <cstddef>

namespace troupe::cuda {

/// Of one stream; used by one thread at a time. The stream's device is current at every call.
class Staging {
 public:
  static constexpr std::size_t kSlotBytes = std::size_t{2} << 20;
  static constexpr std::size_t kSlots = 8;

  /// device = host, enqueued on `stream`; `host` may be reused at return.
  void upload(cudaStream_t stream, const void* host, void* device, std::size_t size_bytes);

 private:
  struct Slot {
    PinnedMemory memory;  // kSlotBytes; allocated at first use
    EventHandle copied;   // passes when the device has read it
  };

  std::array<Slot, kSlots> slots_;
  std::size_t next_ = 0;
};

}  // namespace troupe::cuda
