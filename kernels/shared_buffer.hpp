// One mutable vector that several threads of a process read and write at once, without locks
// (Hogwild, Recht et al. 2011). The exception to everything else here: no Tensor, no order, no event;
// kernels work on copies of it, or name it in their signature. Host memory.
//
// All accesses are relaxed atomics, so that none is a data race; a reader may see some components
// before an update and others after it. Components are accessed one by one or in aligned pairs, whose
// mixture the machines that we build for keep coherent.
#pragma once

#include "kernels/stream.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace troupe {

/// How a number is added to a shared component.
enum class SharedAdd : std::uint8_t {
  atomic,  // compare and swap until nobody has come between: no update is lost
  racy,    // load, add, store: updates that meet are lost
};

class SharedBuffer {
 public:
  /// `elements` zeros, aligned to 64 bytes, and a counter for each of `writers` threads.
  SharedBuffer(std::int64_t elements, int writers);

  std::int64_t elements() const { return elements_; }

  int writers() const { return static_cast<int>(counters_.size()); }

  float load(std::int64_t i) const {
    return std::atomic_ref<float>(values_[i]).load(std::memory_order_relaxed);
  }

  void store(std::int64_t i, float value) {
    std::atomic_ref<float>(values_[i]).store(value, std::memory_order_relaxed);
  }

  void add(std::int64_t i, float value, SharedAdd how) {
    std::atomic_ref<float> at(values_[i]);
    if (how == SharedAdd::atomic) {
      at.fetch_add(value, std::memory_order_relaxed);
    } else {
      at.store(at.load(std::memory_order_relaxed) + value, std::memory_order_relaxed);
    }
  }

  /// Writer `writer` has made an update. Called by that writer's thread alone, so that the counter
  /// needs no read-modify-write and its line stays in its core's cache.
  void count(int writer) {
    std::atomic<std::uint64_t>& own = counters_[static_cast<std::size_t>(writer)].updates;
    own.store(own.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }

  /// Updates of one writer so far; and to set them, before anybody writes.
  std::uint64_t updates_of(int writer) const {
    return counters_[static_cast<std::size_t>(writer)].updates.load(std::memory_order_relaxed);
  }

  void set_updates(int writer, std::uint64_t updates) {
    counters_[static_cast<std::size_t>(writer)].updates.store(updates, std::memory_order_relaxed);
  }

  /// Updates of all writers so far. Read at the copy and again at the add, the difference is the
  /// staleness of the gradient in between.
  std::uint64_t updates() const;

  /// For kernels, which access it by relaxed atomics only.
  float* data() const { return values_.get(); }

 private:
  struct alignas(64) Counter {  // of one writer, on a cache line of its own
    std::atomic<std::uint64_t> updates{0};
  };

  struct Free {
    void operator()(float* values) const;
  };

  std::int64_t elements_;
  std::unique_ptr<float[], Free> values_;  // (elements, rounded up to a cache line)
  std::vector<Counter> counters_;          // by writer
};

/// to = what the buffer holds now. Shapes: to (n). Returns updates() as it was before.
std::uint64_t shared_copy(Stream& stream, const SharedBuffer& from, const Tensor& to);

/// buffer = from. Shapes: from (n). No update; for the start of a run.
void shared_store(Stream& stream, SharedBuffer& buffer, const Tensor& from);

/// What an update of Hogwild does, whatever the optimizer that made it: buffer += to - from, component
/// by component, and one update of `writer`. A component that still is what `from` has becomes what
/// `to` has, to the last bit, so that a lone writer loses nothing to rounding. Shapes: from, to (n);
/// where they are equal nothing is touched. Returns updates() as it was just before its own was
/// counted: minus what shared_copy returned, that is the gradient's staleness.
std::uint64_t shared_move(Stream& stream,
                          SharedBuffer& buffer,
                          int writer,
                          const Tensor& from,
                          const Tensor& to,
                          SharedAdd how);

TROUPE_ON_CPU(void shared_copy(const SharedBuffer& from, float* to));
TROUPE_ON_CPU(void shared_store(SharedBuffer& buffer, const float* from));
TROUPE_ON_CPU(
    void shared_move(SharedBuffer& buffer, const float* from, const float* to, SharedAdd how));

}  // namespace troupe
