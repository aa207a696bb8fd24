#include "kernels/dispatch.hpp"

#include "kernels/cuda/backend.hpp"
#include "kernels/wording.hpp"

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
               fill_in("[{}] {} is {}, not {}", op, name, to_string(x.type()), to_string(type)));
  TROUPE_CHECK(x.device() == stream.device(),
               fill_in("[{}] {} is on {}, the stream on {}",
                       op,
                       name,
                       to_string(x.device()),
                       to_string(stream.device())));
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
