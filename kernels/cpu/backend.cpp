#include "kernels/cpu/backend.hpp"

#include "kernels/cpu/memory.hpp"
#include "kernels/cpu/scratch_guard.hpp"

namespace troupe::cpu {

Arena::~Arena() {
  free_bytes(data_);
}

std::byte* Arena::at_least(std::size_t size_bytes) {
  // With guards it is exactly as large as asked for, so that a sanitizer sees our own kernels run beyond its end.
  const bool exactly = kGuardBytes > 0;
  if (size_bytes > size_bytes_ || (exactly && size_bytes < size_bytes_)) {
    free_bytes(data_);
    data_ = nullptr;
    size_bytes_ = 0;
    data_ = allocate_bytes(size_bytes);
    size_bytes_ = size_bytes;
  }
  return data_;
}

Backend::Backend() : onednn_(arena_) {}

float* Backend::scratch(std::int64_t floats) {
  return reinterpret_cast<float*>(
      arena_.at_least(static_cast<std::size_t>(floats) * sizeof(float)));
}

}  // namespace troupe::cpu
