#include "kernels/cpu/backend.hpp"

#include "kernels/cpu/memory.hpp"

namespace troupe::cpu {

Arena::~Arena() {
  free_bytes(data_);
}

std::byte* Arena::at_least(std::size_t size_bytes) {
  if (size_bytes > size_bytes_) {
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
