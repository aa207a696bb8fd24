// Owners of what CUDA's C interfaces create.
#pragma once

#include "kernels/cuda/check.hpp"

#include <type_traits>
#include <utility>

namespace troupe::cuda {

/// One object of a CUDA library, destroyed with `destroy`; or none.
template <class T, auto destroy>
class Handle {
 public:
  Handle() = default;

  ~Handle() { reset(); }

  Handle(Handle&& other) noexcept : value_(std::exchange(other.value_, T{})) {}

  Handle& operator=(Handle&& other) noexcept {
    if (this != &other) {
      reset();
      value_ = std::exchange(other.value_, T{});
    }
    return *this;
  }

  T get() const { return value_; }

  explicit operator bool() const { return value_ != T{}; }

  /// Where a create function puts the object. Only while there is none.
  T* out() { return &value_; }

 private:
  void reset() noexcept {
    if (value_ != T{}) {
      if constexpr (std::is_same_v<decltype(destroy(value_)), cudaError_t>) {
        static_cast<void>(succeeded(destroy(value_)));
      } else {
        static_cast<void>(destroy(value_));  // the libraries keep no last error
      }
      value_ = T{};
    }
  }

  T value_{};
};

using StreamHandle = Handle<cudaStream_t, cudaStreamDestroy>;
using EventHandle = Handle<cudaEvent_t, cudaEventDestroy>;
using DeviceMemory = Handle<void*, cudaFree>;
using PinnedMemory = Handle<void*, cudaFreeHost>;

}  // namespace troupe::cuda
