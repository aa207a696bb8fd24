// One mutable vector that several threads of a process read and write at once (Hogwild, Recht et al. 2011). The exception to
// everything else here: no Tensor, no order, no event; kernels work on copies of it, or name it in their signature. Host
// memory. It is used in one of two ways, and not in both at a time:
//
//   sparse rows    components one by one, by relaxed atomics (load, store, add)
//   whole vectors  block by block, each under its lock for as long as it takes to read or to move it (shared_copy, shared_move)
//
// Neither is a data race. A reader may see some components before an update and others after it. Whole vectors by compare and
// swap would take a lock instruction for each pair of numbers, where loops of plain ones are vectors.
#pragma once

#include "kernels/stream.hpp"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace troupe {

/// How a number is added to a shared component.
enum class SharedAdd : std::uint8_t {
  atomic,  // so that nobody comes between the load and the store: no update is lost
  racy,    // others may come between the load and the store: updates that meet there are lost
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

  /// For kernels, which access it in one of the two ways.
  float* data() const { return values_.get(); }

  /// f(first, count, lock) for one block of components after the other, each while its lock is held.
  template <class F>
  void by_block(F f) const {
    for (std::int64_t first = 0; first < elements_; first += kBlock) {
      std::unique_lock lock(blocks_[static_cast<std::size_t>(first / kBlock)].mutex);
      f(first, std::min(kBlock, elements_ - first), lock);
    }
  }

 private:
  /// Components of a block: enough for a lock to be little beside the move of a block; few enough for the second thread at a
  /// block not to wait long, and for the arrays that a move reads and writes to stay in the second-level cache.
  static constexpr std::int64_t kBlock = 4096;

  struct alignas(64) Block {  // its lock on a cache line of its own
    mutable std::mutex mutex;
  };

  struct alignas(64) Counter {  // of one writer, on a cache line of its own
    std::atomic<std::uint64_t> updates{0};
  };

  struct Free {
    void operator()(float* values) const;
  };

  std::int64_t elements_;
  std::unique_ptr<float[], Free> values_;
  std::vector<Block> blocks_;
  std::vector<Counter> counters_;  // by writer
};

/// to = what the buffer holds now. Shapes: to (n). Returns updates() as it was before.
std::uint64_t shared_copy(Stream& stream, const SharedBuffer& from, const Tensor& to);

/// buffer = from. Shapes: from (n). No update; for the start of a run.
void shared_store(Stream& stream, SharedBuffer& buffer, const Tensor& from);

/// What an update of Hogwild does, whatever the optimizer that made it: buffer += to - from, component
/// by component, and one update of `writer`. A component that still is what `from` has becomes what
/// `to` has, to the last bit, so that a lone writer loses nothing to rounding. Shapes: all (n);
/// where from and to are equal nothing is touched. `now`: what the buffer then has, as shared_copy() of the same moment would
/// find it; may be `to`. Returns updates() as it was at the beginning, of which `now` has all, and the writer's own: minus what
/// shared_copy() returned for `from`, that is the gradient's staleness.
std::uint64_t shared_move(Stream& stream,
                          SharedBuffer& buffer,
                          int writer,
                          const Tensor& from,
                          const Tensor& to,
                          const Tensor& now,
                          SharedAdd how);

/// now = values + to - from of n components, as shared_move().
TROUPE_ON_CPU(void shared_move(
    const float* values, const float* from, const float* to, float* now, std::int64_t n));

}  // namespace troupe
