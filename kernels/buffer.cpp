#include "kernels/buffer.hpp"

#include "kernels/cpu/memory.hpp"
#include "kernels/cuda/backend.hpp"
#include "kernels/stream.hpp"

#include <algorithm>
#include <map>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace troupe {

namespace {

// Sizes are rounded up to this, and a buffer serves only requests of its own rounded size: training
// asks for the same few sizes over and over.
constexpr std::size_t kGranuleBytes = 256;

std::size_t rounded(std::size_t size_bytes) {
  return std::max(kGranuleBytes, (size_bytes + kGranuleBytes - 1) / kGranuleBytes * kGranuleBytes);
}

}  // namespace

struct BufferPool::State {
  struct Bin {
    // Room for all of the bin's buffers, so that give_back allocates nothing
    std::vector<Buffer*> idle;
    std::vector<std::unique_ptr<Buffer>> all;
  };

  Device device;
  mutable std::mutex mutex;  // guards what follows
  std::unordered_map<std::size_t, Bin> bins;
  Statistics statistics;
};

BufferPool& BufferPool::of(Device device) {
  if (device.kind == DeviceKind::cpu) {
    static BufferPool* const cpu =
        new BufferPool(Device{});  // never destroyed: buffers may outlive main()
    return *cpu;
  }
  static auto* const mutex = new std::mutex;
  static auto* const pools = new std::map<Device, std::unique_ptr<BufferPool>>;
  const std::lock_guard lock(*mutex);
  std::unique_ptr<BufferPool>& pool = (*pools)[device];
  if (!pool) {
    pool.reset(new BufferPool(device));
  }
  return *pool;
}

BufferPool::BufferPool(Device device) : state_(std::make_unique<State>()) {
  state_->device = device;
}

BufferPool::~BufferPool() {
  for (auto& [size_bytes, bin] : state_->bins) {
    for (const std::unique_ptr<Buffer>& buffer : bin.all) {
      if (state_->device.kind == DeviceKind::cpu) {
        cpu::free_bytes(buffer->data());
      } else {
        cuda::free_bytes(state_->device.index, buffer->data());
      }
    }
  }
}

BufferRef BufferPool::acquire(std::size_t size_bytes, Stream& stream) {
  TROUPE_CHECK(stream.device() == state_->device,
               "[BufferPool] a buffer of ",
               to_string(state_->device),
               " for a stream of ",
               to_string(stream.device()));
  const bool gpu = state_->device.kind == DeviceKind::cuda;
  const std::size_t size = rounded(size_bytes);
  Buffer* buffer = nullptr;
  {
    const std::lock_guard lock(state_->mutex);
    State::Bin& bin = state_->bins[size];
    if (bin.idle.empty()) {
      bin.idle.reserve(bin.all.size() + 1);
      bin.all.reserve(bin.all.size() + 1);
      std::byte* data =
          gpu ? cuda::allocate_bytes(state_->device.index, size) : cpu::allocate_bytes(size);
      bin.all.push_back(std::make_unique<Buffer>(data, size, *this, state_->device));
      buffer = bin.all.back().get();
      if (gpu) {
        buffer->uses() = cuda::make_uses();
      }
      ++state_->statistics.fresh;
      state_->statistics.held_bytes += size;
    } else {
      buffer = bin.idle.back();
      bin.idle.pop_back();
    }
    Statistics& s = state_->statistics;
    ++s.acquired;
    s.live_bytes += size;
    s.peak_bytes = std::max(s.peak_bytes, s.live_bytes);
  }
  BufferRef reference(buffer);
  if (gpu) {
    cuda::await_uses(*buffer, stream.cuda());
  }
  return reference;
}

BufferRef BufferPool::adopt(std::span<std::byte> bytes, std::function<void()> let_go) {
  auto buffer = std::make_unique<Buffer>(bytes.data(), bytes.size(), of(Device{}), Device{});
  buffer->let_go_ = std::move(let_go);
  return BufferRef(buffer.release());
}

BufferPool::Statistics BufferPool::statistics() const {
  const std::lock_guard lock(state_->mutex);
  return state_->statistics;
}

void BufferPool::give_back(Buffer* buffer) noexcept {
  if (buffer->let_go_) {
    const std::unique_ptr<Buffer> adopted(buffer);
    adopted->let_go_();
    return;
  }
  if (state_->device.kind == DeviceKind::cuda) {
    cuda::retire(*buffer);
  }
  const std::lock_guard lock(state_->mutex);
  state_->bins.find(buffer->size_bytes())->second.idle.push_back(buffer);
  state_->statistics.live_bytes -= buffer->size_bytes();
}

}  // namespace troupe
