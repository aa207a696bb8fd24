#include "kernels/shared_buffer.hpp"

// Two components at a time: an atomic access of 8 bytes costs what one of 4 costs. Compilers make
// nothing wider of atomics.
namespace troupe::cpu {
namespace {

struct alignas(8) Pair {
  float first;
  float second;
};

static_assert(std::atomic_ref<Pair>::is_always_lock_free);

std::atomic_ref<Pair> pair_at(const SharedBuffer& buffer, std::int64_t i) {
  return std::atomic_ref<Pair>(*reinterpret_cast<Pair*>(buffer.data() + i));
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

void shared_add(SharedBuffer& buffer, float factor, const float* x, SharedAdd how) {
  const std::int64_t n = buffer.elements();
  if (how == SharedAdd::racy) {
    for (std::int64_t i = 0; i < n; ++i) {
      if (x[i] != 0) {
        buffer.add(i, factor * x[i], how);
      }
    }
    return;
  }
  for (std::int64_t i = 0; i < n; i += 2) {
    const float first = x[i];
    const float second = i + 1 < n ? x[i + 1] : 0.0f;
    if (first == 0 && second == 0) {
      continue;
    }
    std::atomic_ref<Pair> at = pair_at(buffer, i);
    Pair seen = at.load(std::memory_order_relaxed);
    // A pair whose other half is 0 is written back as it was: an update in between makes this fail.
    while (!at.compare_exchange_weak(seen,
                                     {seen.first + factor * first, seen.second + factor * second},
                                     std::memory_order_relaxed)) {
    }
  }
}

}  // namespace troupe::cpu
