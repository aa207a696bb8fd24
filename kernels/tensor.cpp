#include "kernels/tensor.hpp"

#include "kernels/wording.hpp"

namespace troupe {

std::size_t size_bytes(DType type) {
  switch (type) {
    case DType::float32:
    case DType::int32:
      return 4;
    case DType::float64:
      return 8;
    case DType::bfloat16:
      return 2;
  }
  return 0;
}

std::string_view to_string(DType type) {
  switch (type) {
    case DType::float32:
      return "float32";
    case DType::int32:
      return "int32";
    case DType::float64:
      return "float64";
    case DType::bfloat16:
      return "bfloat16";
  }
  return "unknown";
}

Tensor Tensor::view(std::int64_t offset, Shape shape) const {
  TROUPE_CHECK(buffer_, "[Tensor] view of an empty tensor");
  TROUPE_CHECK(offset >= 0 && offset + shape.elements() <= elements(),
               fill_in("[Tensor] view of {} at {} does not fit into {}", shape, offset, shape_));
  Tensor part(buffer_, shape, type_, offset_ + offset);
  part.ready_ = ready_;
  return part;
}

}  // namespace troupe
