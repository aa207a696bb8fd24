// The seam between the portable half of kernels/ and CUDA: plain C++, no CUDA header. kernels/*.cpp
// call what stands here; cuda/backend.cpp and cuda/device.cpp define it, cuda/unavailable.cpp where
// CUDA is off.
//
// Memory. A buffer remembers the streams that used it since it was acquired (note_use). When its
// last handle is gone, on whatever thread, retire() records an event on each of them and keeps the
// events; each stream that uses it afterwards is put behind those on the device, be it the one that
// acquired it (await_uses) or another (note_use). So nobody ever blocks the host for a buffer, and
// a count of zero on the host does not have to mean that the GPU is done with it.
//
// Every function sets the current device itself.
#pragma once

#include "kernels/buffer.hpp"
#include "kernels/device.hpp"
#include "kernels/event.hpp"
#include "kernels/tensor.hpp"

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace troupe::cuda {

// -- devices --------------------------------------------------------------------

/// Error (usage) with what is missing: this build's CUDA, a driver, or GPU number `index`.
Result<void> check_available(int index);

/// Whether GPU number `index` multiplies tf32 and bf16. It is available.
bool has_narrow_products(int index);

/// Empty where there is none.
std::vector<DeviceInfo> devices();

/// "9.19.0"; empty where it cannot be loaded. Of a build with cuDNN.
std::string cudnn_version();

/// "2.28.9"; empty where it cannot be loaded. Of a build with NCCL.
std::string nccl_version();

// -- streams and events -----------------------------------------------------------

/// What a Stream owns on a GPU: the cudaStream_t, library handles, workspaces. Same thread rules as
/// Stream.
class Backend {
 public:
  /// Throws CudaError where the device cannot be used.
  Backend(int device_index, Precision precision);
  ~Backend();
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;

  /// Never empty. The event knows its stream.
  Event record();
  /// Returns at once for an empty event and for one of this very stream; else a device-side wait,
  /// across GPUs too.
  void wait(const Event& event);
  /// Blocks; throws CudaError where earlier work failed.
  void synchronize();

  struct State;  // of cuda/; may outlive the Backend, because buffers hold it

  State& state() { return *state_; }

  const std::shared_ptr<State>& shared_state() const { return state_; }

  /// The cudaStream_t.
  void* native_handle() const;

 private:
  std::shared_ptr<State> state_;
};

/// Event::wait of an event that is not empty: blocks the host; throws CudaError where the work
/// before it failed.
void wait_event(const Event& event);

// -- memory -----------------------------------------------------------------------

/// Device memory, aligned to 256 bytes, size_bytes > 0. Throws CudaError.
std::byte* allocate_bytes(int device_index, std::size_t size_bytes);
void free_bytes(int device_index, std::byte* data) noexcept;

/// The value of Buffer::uses() for a new buffer: an empty record with its own lock.
std::shared_ptr<void> make_uses();

/// From now on `backend`'s stream uses the buffer, after the events that retire() left. From
/// several threads at once; cheap when noted already.
void note_use(Buffer& buffer, Backend& backend);

/// The last handle is gone: the noted streams are replaced by an event on each; where there are
/// none, the events of the life before stand. Never throws: an event that cannot be recorded is
/// replaced by a blocking wait.
void retire(Buffer& buffer) noexcept;

/// `backend`'s stream has acquired the buffer: the same as its first use.
void await_uses(Buffer& buffer, Backend& backend);

// -- copies: contiguous, from and to ordinary host memory ---------------------------

/// x = host, enqueued on `backend`'s stream; `host` may be reused at return. The buffer's use has
/// been noted.
void upload(Backend& backend, const void* host, const Tensor& x, std::size_t size_bytes);

/// x = what is at `data` of the same GPU, enqueued on `backend`'s stream. The buffer's use has been noted.
void copy_within(Backend& backend, const void* data, const Tensor& x);

/// host = x; blocks until done. Waits first for x.ready() and for everything enqueued so far on the
/// streams that note_use() has noted for the buffer. Needs no Backend: any thread may ask.
void download(const Tensor& x, void* host, std::size_t size_bytes);

}  // namespace troupe::cuda
