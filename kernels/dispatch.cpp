#include "kernels/dispatch.hpp"

#include "kernels/cuda/backend.hpp"

namespace troupe {

void begin(Stream& stream, std::initializer_list<const Tensor*> tensors) {
  for (const Tensor* x : tensors) {
    if (!*x) {
      continue;
    }
    if (x->ready()) {
      stream.wait(x->ready());
    }
    if (x->device().kind == DeviceKind::cuda && stream.device().kind == DeviceKind::cuda) {
      cuda::note_use(*x->buffer(), stream.cuda());
    }
  }
}

void check_tensor(
    std::string_view op, std::string_view name, const Tensor& x, const Stream& stream, DType type) {
  TROUPE_CHECK(static_cast<bool>(x), "[", op, "] ", name, " is empty");
  TROUPE_CHECK(x.type() == type,
               "[",
               op,
               "] ",
               name,
               " is ",
               to_string(x.type()),
               ", not ",
               to_string(type));
  TROUPE_CHECK(x.device() == stream.device(),
               "[",
               op,
               "] ",
               name,
               " is on ",
               to_string(x.device()),
               ", the stream on ",
               to_string(stream.device()));
}

void check_tensor(std::string_view op,
                  std::string_view name,
                  const Tensor& x,
                  const Stream& stream,
                  const Shape& shape,
                  DType type) {
  check_tensor(op, name, x, stream, type);
  TROUPE_CHECK(x.shape() == shape, "[", op, "] ", name, " is ", x.shape(), ", not ", shape);
}

void check_operand(std::string_view op,
                   std::string_view name,
                   const Tensor& x,
                   const Stream& stream) {
  const bool converted = x && x.type() == stream.operand_type();
  check_tensor(op, name, x, stream, converted ? stream.operand_type() : DType::float32);
}

void fail_without(const GpuLibrary& library, std::string_view op) {
  throw ContractError(concat("[", op, "] ", library.advice));
}

}  // namespace troupe
