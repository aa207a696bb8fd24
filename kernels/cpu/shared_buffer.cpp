#include "kernels/shared_buffer.hpp"

// Two components at a time: an atomic access of 8 bytes costs what one of 4 costs. Compilers make
// nothing wider of atomics.
namespace troupe::cpu::TROUPE_ISA {
namespace {

struct alignas(8) Pair {
  float first;
  float second;
};

static_assert(std::atomic_ref<Pair>::is_always_lock_free);

std::atomic_ref<Pair> pair_at(const SharedBuffer& buffer, std::int64_t i) {
  return std::atomic_ref<Pair>(*reinterpret_cast<Pair*>(buffer.data() + i));
}

float moved(float seen, float from, float to) {
  return seen == from ? to : seen + (to - from);
}

}  // namespace

// The buffer is padded to whole cache lines, so the last pair of an odd number may be accessed too.

void shared_copy(const SharedBuffer& from, float* to) {
  const std::int64_t n = from.elements();
  std::int64_t i = 0;
  for (; i + 2 <= n; i += 2) {
    const Pair pair = pair_at(from, i).load(std::memory_order_relaxed);
    to[i] = pair.first;
    to[i + 1] = pair.second;
  }
  if (i < n) {
    to[i] = from.load(i);
  }
}

void shared_store(SharedBuffer& buffer, const float* from) {
  for (std::int64_t i = 0; i < buffer.elements(); ++i) {
    buffer.store(i, from[i]);
  }
}

void shared_move(SharedBuffer& buffer, const float* from, const float* to, SharedAdd how) {
  const std::int64_t n = buffer.elements();
  std::int64_t i = 0;
  for (; i + 2 <= n && how == SharedAdd::atomic; i += 2) {
    if (from[i] == to[i] && from[i + 1] == to[i + 1]) {
      continue;
    }
    std::atomic_ref<Pair> at = pair_at(buffer, i);
    Pair seen = at.load(std::memory_order_relaxed);
    while (!at.compare_exchange_weak(
        seen,
        {moved(seen.first, from[i], to[i]), moved(seen.second, from[i + 1], to[i + 1])},
        std::memory_order_relaxed)) {
    }
  }
  for (; i < n; ++i) {
    if (from[i] == to[i]) {
      continue;
    }
    std::atomic_ref<float> at(buffer.data()[i]);
    float seen = at.load(std::memory_order_relaxed);
    if (how == SharedAdd::racy) {
      at.store(moved(seen, from[i], to[i]), std::memory_order_relaxed);
      continue;
    }
    while (
        !at.compare_exchange_weak(seen, moved(seen, from[i], to[i]), std::memory_order_relaxed)) {
    }
  }
}

}  // namespace troupe::cpu::TROUPE_ISA
