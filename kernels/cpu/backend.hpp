// What a CPU stream owns: compiled oneDNN primitives and one scratch arena. Used by one thread at a
// time.
#pragma once

#include "kernels/cpu/onednn.hpp"

#include <cstddef>

namespace troupe::cpu {

/// Memory that grows to the largest request and stays; aligned to 64 bytes. A new request ends the
/// previous one's life.
class Arena {
 public:
  Arena() = default;
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  std::byte* at_least(std::size_t size_bytes);

 private:
  std::byte* data_ = nullptr;
  std::size_t size_bytes_ = 0;
};

class Backend {
 public:
  Backend();

  OneDnn& onednn() { return onednn_; }

  /// For one kernel call: contents undefined, and gone at the next call of anything.
  float* scratch(std::int64_t floats);

 private:
  Arena arena_;
  OneDnn onednn_;
};

}  // namespace troupe::cpu
