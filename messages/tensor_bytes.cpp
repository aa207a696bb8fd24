#include "messages/tensor_bytes.hpp"

namespace troupe {
namespace {

template <class T>
std::span<std::byte> typed_bytes(const Tensor& tensor) {
  return {reinterpret_cast<std::byte*>(tensor.data<T>()),
          static_cast<std::size_t>(tensor.elements()) * sizeof(T)};
}

}  // namespace

std::span<std::byte> bytes_of(const Tensor& tensor) {
  switch (tensor.type()) {
    case DType::float32:
      return typed_bytes<float>(tensor);
    case DType::int32:
      return typed_bytes<std::int32_t>(tensor);
    case DType::float64:
      return typed_bytes<double>(tensor);
    case DType::bfloat16:
      return typed_bytes<BFloat16>(tensor);
  }
  return {};
}

}  // namespace troupe
