// Memory of a device, counted and recycled. A buffer goes back to its device's pool when the last
// handle is gone; on a GPU the pool keeps the events of the streams that used it, and whoever gets
// it next waits for them on the device.
#pragma once

#include "kernels/device.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>

namespace troupe {

class Stream;
class BufferPool;

class Buffer {
 public:
  Buffer(std::byte* data, std::size_t size_bytes, BufferPool& pool, Device device)
      : data_(data), size_bytes_(size_bytes), pool_(pool), device_(device) {}

  std::byte* data() const { return data_; }

  /// As allocated: at least what was asked for.
  std::size_t size_bytes() const { return size_bytes_; }

  Device device() const { return device_; }

  /// Whether the memory is somebody else's, who waits for the last handle's end (BufferPool::adopt).
  bool is_lent() const { return static_cast<bool>(let_go_); }

  /// What the backend remembers of the streams that used this buffer; nothing on the CPU.
  std::shared_ptr<void>& uses() { return uses_; }

 private:
  friend class BufferRef;
  friend class BufferPool;
  std::byte* data_;
  std::size_t size_bytes_;
  BufferPool& pool_;
  std::shared_ptr<void> uses_;
  std::function<void()> let_go_;  // of memory that is somebody else's; empty: it is the pool's
  std::atomic<std::uint32_t> references_{0};
  Device device_;
};

class BufferRef {
 public:
  BufferRef() = default;

  explicit BufferRef(Buffer* buffer) : buffer_(buffer) { retain(); }

  BufferRef(const BufferRef& other) : buffer_(other.buffer_) { retain(); }

  BufferRef(BufferRef&& other) noexcept : buffer_(std::exchange(other.buffer_, nullptr)) {}

  BufferRef& operator=(BufferRef other) noexcept {
    std::swap(buffer_, other.buffer_);
    return *this;
  }

  ~BufferRef() { release(); }

  explicit operator bool() const { return buffer_ != nullptr; }

  Buffer* operator->() const { return buffer_; }

  Buffer& operator*() const { return *buffer_; }

  bool operator==(const BufferRef& other) const = default;

  std::uint32_t use_count() const {
    return buffer_ ? buffer_->references_.load(std::memory_order_acquire) : 0;
  }

 private:
  void retain() {
    if (buffer_) {
      buffer_->references_.fetch_add(1, std::memory_order_relaxed);
    }
  }

  void release();

  Buffer* buffer_ = nullptr;
};

/// One a device, made at first use, never destroyed. Safe from every thread.
class BufferPool {
 public:
  static BufferPool& of(Device device);
  ~BufferPool();

  /// At least `size_bytes`, aligned to 64 bytes, contents undefined. Throws std::bad_alloc (CPU) or
  /// CudaError. On a GPU `stream` waits for the buffer's earlier uses.
  BufferRef acquire(std::size_t size_bytes, Stream& stream);

  /// A buffer of the CPU in memory that somebody else has: aligned to 64 bytes, and there until `let_go` is called,
  /// which is when the last handle is gone, from whichever thread has it. It must not throw.
  static BufferRef adopt(std::span<std::byte> bytes, std::function<void()> let_go);

  struct Statistics {
    std::uint64_t fresh = 0;     // buffers taken from the system so far
    std::uint64_t acquired = 0;  // acquire() calls so far
    std::size_t live_bytes = 0;  // handed out now
    std::size_t peak_bytes = 0;  // the most that was ever handed out
    std::size_t held_bytes = 0;  // taken from the system, handed out or not
  };

  Statistics statistics() const;

 private:
  friend class BufferRef;
  explicit BufferPool(Device device);
  void give_back(Buffer* buffer) noexcept;

  struct State;
  std::unique_ptr<State> state_;
};

inline void BufferRef::release() {
  if (buffer_ && buffer_->references_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
    buffer_->pool_.give_back(buffer_);
  }
  buffer_ = nullptr;
}

}  // namespace troupe
