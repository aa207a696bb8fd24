// A Tensor is a handle: a shape, a type and a counted reference to a buffer on a device. Copying a handle copies no data.
// Once a handle has been given to another actor, nobody may change its contents any more; exclusive() tells whether a
// buffer may still be written.
#pragma once

#include "kernels/buffer.hpp"
#include "kernels/device.hpp"
#include "kernels/event.hpp"
#include "kernels/functors/bfloat16.hpp"
#include "kernels/shape.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe {

enum class DType : std::uint8_t { float32, int32, float64, bfloat16 };

std::size_t size_bytes(DType type);
std::string_view to_string(DType type);

template <class T>
constexpr DType dtype_of();

template <>
constexpr DType dtype_of<float>() {
  return DType::float32;
}

template <>
constexpr DType dtype_of<std::int32_t>() {
  return DType::int32;
}

template <>
constexpr DType dtype_of<double>() {
  return DType::float64;
}

template <>
constexpr DType dtype_of<BFloat16>() {
  return DType::bfloat16;
}

class Tensor {
 public:
  Tensor() = default;  // empty: it has no buffer, and converts to false

  Tensor(BufferRef buffer, Shape shape, DType type, std::int64_t offset = 0)
      : shape_(shape), offset_(offset), buffer_(std::move(buffer)), type_(type) {}

  explicit operator bool() const { return static_cast<bool>(buffer_); }

  const Shape& shape() const { return shape_; }

  DType type() const { return type_; }

  Device device() const { return buffer_->device(); }

  std::int64_t elements() const { return shape_.elements(); }

  const BufferRef& buffer() const { return buffer_; }

  /// True where no other handle shares the buffer, so that it may be written in place.
  bool exclusive() const { return buffer_ && buffer_.use_count() == 1; }

  /// Pointer to the elements; of a GPU tensor a device pointer. The caller keeps the handle alive while it uses them.
  template <class T>
  T* data() const {
    TROUPE_CHECK(buffer_ && dtype_of<T>() == type_,
                 "[Tensor] data() of an empty tensor, or as another type");
    return reinterpret_cast<T*>(buffer_->data()) + offset_;
  }

  /// All elements of a CPU tensor.
  template <class T>
  std::span<T> span() const {
    TROUPE_CHECK(buffer_ && device().kind == DeviceKind::cpu,
                 "[Tensor] span() of a tensor that is empty or on a GPU");
    return {data<T>(), static_cast<std::size_t>(elements())};
  }

  /// A part of the same buffer: `offset` in elements from this tensor's first.
  Tensor view(std::int64_t offset, Shape shape) const;

  /// The same elements in another shape that has as many.
  Tensor reshape(Shape shape) const { return view(0, shape); }

  /// The event after which the contents are complete. Whoever hands the tensor to another thread sets it.
  const Event& ready() const { return ready_; }

  void set_ready(Event event) { ready_ = std::move(event); }

 private:
  Shape shape_;
  std::int64_t offset_ = 0;  // elements into the buffer
  BufferRef buffer_;
  Event ready_;
  DType type_ = DType::float32;
};

/// An entry of a Bundle.
struct NamedTensor {
  std::string name;
  Tensor tensor;
};

/// The tensors that one layer hands to the next: first the activation "x", then the skip connections that are open there.
using Bundle = std::vector<NamedTensor>;

}  // namespace troupe
