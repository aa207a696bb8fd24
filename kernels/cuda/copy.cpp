// Copies between host and device, and between devices.
#include "kernels/cuda/staging.hpp"
#include "kernels/cuda/state.hpp"

#include <algorithm>
#include <cstring>

namespace troupe::cuda {

void Staging::upload(cudaStream_t stream, const void* host, void* device, std::size_t size_bytes) {
  const auto* from = static_cast<const std::byte*>(host);
  auto* to = static_cast<std::byte*>(device);
  for (std::size_t done = 0; done < size_bytes;) {
    Slot& slot = slots_[next_];
    next_ = (next_ + 1) % kSlots;
    if (!slot.memory) {
      TROUPE_CUDA_CHECK(cudaHostAlloc(slot.memory.out(), kSlotBytes, cudaHostAllocDefault));
    }
    if (!slot.copied) {
      TROUPE_CUDA_CHECK(cudaEventCreateWithFlags(slot.copied.out(), cudaEventDisableTiming));
    }
    TROUPE_CUDA_CHECK(cudaEventSynchronize(slot.copied.get()));
    const std::size_t chunk = std::min(kSlotBytes, size_bytes - done);
    std::memcpy(slot.memory.get(), from + done, chunk);
    TROUPE_CUDA_CHECK(
        cudaMemcpyAsync(to + done, slot.memory.get(), chunk, cudaMemcpyHostToDevice, stream));
    TROUPE_CUDA_CHECK(cudaEventRecord(slot.copied.get(), stream));
    done += chunk;
  }
}

std::byte* first_byte(const Tensor& x) {
  switch (x.type()) {
    case DType::float32:
      return reinterpret_cast<std::byte*>(x.data<float>());
    case DType::int32:
      return reinterpret_cast<std::byte*>(x.data<std::int32_t>());
    case DType::float64:
      return reinterpret_cast<std::byte*>(x.data<double>());
    case DType::bfloat16:
      return reinterpret_cast<std::byte*>(x.data<BFloat16>());
  }
  return nullptr;
}

namespace {

std::size_t bytes_of(const Tensor& x) {
  return static_cast<std::size_t>(x.elements()) * size_bytes(x.type());
}

/// x = host, without a stream of ours: done at return.
void upload_blocking(const void* host, const Tensor& x, std::size_t size_bytes) {
  const cudaStream_t stream = thread_stream_behind(x);
  TROUPE_CUDA_CHECK(
      cudaMemcpyAsync(first_byte(x), host, size_bytes, cudaMemcpyHostToDevice, stream));
  TROUPE_CUDA_CHECK(cudaStreamSynchronize(stream));
}

bool on_host(const Tensor& x) {
  return x.device().kind == DeviceKind::cpu;
}

void copy_on_gpu_stream(Stream& stream, const Tensor& src, const Tensor& dst) {
  const std::size_t size = bytes_of(src);
  const Backend::State& state = activate(stream);
  const cudaStream_t native = state.stream.get();
  if (on_host(src)) {
    src.ready().wait();
    upload(stream.cuda(), first_byte(src), dst, size);
  } else if (on_host(dst)) {
    TROUPE_CUDA_CHECK(
        cudaMemcpyAsync(first_byte(dst), first_byte(src), size, cudaMemcpyDeviceToHost, native));
    TROUPE_CUDA_CHECK(cudaStreamSynchronize(native));
  } else if (src.device() == dst.device()) {
    TROUPE_CUDA_CHECK(
        cudaMemcpyAsync(first_byte(dst), first_byte(src), size, cudaMemcpyDeviceToDevice, native));
  } else {
    TROUPE_CUDA_CHECK(cudaMemcpyPeerAsync(
        first_byte(dst), dst.device().index, first_byte(src), src.device().index, size, native));
  }
}

}  // namespace

void upload(Backend& backend, const void* host, const Tensor& x, std::size_t size_bytes) {
  Backend::State& state = backend.state();
  TROUPE_CUDA_CHECK(cudaSetDevice(state.device_index));
  state.tools->staging.upload(state.stream.get(), host, first_byte(x), size_bytes);
}

void copy_within(Backend& backend, const void* data, const Tensor& x) {
  const Backend::State& state = backend.state();
  TROUPE_CUDA_CHECK(cudaSetDevice(state.device_index));
  TROUPE_CUDA_CHECK(cudaMemcpyAsync(
      first_byte(x), data, bytes_of(x), cudaMemcpyDeviceToDevice, state.stream.get()));
}

void download(const Tensor& x, void* host, std::size_t size_bytes) {
  const cudaStream_t stream = thread_stream_behind(x);
  // A copy to ordinary memory blocks inside the driver until the stream has come to it. The wait is
  // made outside it, lest other threads' launches queue behind it.
  TROUPE_CUDA_CHECK(cudaStreamSynchronize(stream));
  TROUPE_CUDA_CHECK(
      cudaMemcpyAsync(host, first_byte(x), size_bytes, cudaMemcpyDeviceToHost, stream));
  TROUPE_CUDA_CHECK(cudaStreamSynchronize(stream));
}

void copy(Stream& stream, const Tensor& src, const Tensor& dst) {
  if (src.elements() == 0) {
    return;
  }
  if (stream.device().kind == DeviceKind::cuda) {
    copy_on_gpu_stream(stream, src, dst);
  } else if (on_host(dst)) {
    download(src, first_byte(dst), bytes_of(src));
  } else {
    upload_blocking(first_byte(src), dst, bytes_of(src));
  }
}

}  // namespace troupe::cuda
