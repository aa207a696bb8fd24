#include "kernels/shared_move.hpp"

namespace troupe::cpu {
namespace {

float moved(float seen, float from, float to) {
  return seen == from ? to : seen + (to - from);
}

struct alignas(8) Pair {  // as in cpu/shared_buffer.cpp: 8 bytes at the price of 4
  float first;
  float second;
};

static_assert(std::atomic_ref<Pair>::is_always_lock_free);

}  // namespace

void shared_move(SharedBuffer& buffer, const float* from, const float* to, SharedAdd how) {
  const std::int64_t n = buffer.elements();
  std::int64_t i = 0;
  for (; i + 2 <= n && how == SharedAdd::atomic; i += 2) {
    if (from[i] == to[i] && from[i + 1] == to[i + 1]) {
      continue;
    }
    std::atomic_ref<Pair> at(*reinterpret_cast<Pair*>(buffer.data() + i));
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

}  // namespace troupe::cpu
