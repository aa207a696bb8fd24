#include "kernels/foreign.hpp"

#include "kernels/cuda/backend.hpp"
#include "kernels/dispatch.hpp"

namespace troupe {

void* native_handle(Stream& stream) {
  return stream.device().kind == DeviceKind::cuda ? stream.cuda().native_handle() : nullptr;
}

void lend(Stream& stream, const Tensor& x) {
  begin(stream, {&x});
}

void copy_foreign(Stream& stream, const void* data, const Tensor& x) {
  TROUPE_CHECK(stream.device().kind == DeviceKind::cuda, "[copy_foreign] the stream is no GPU's");
  check_tensor("copy_foreign", "x", x, stream, x.type());
  begin(stream, {&x});
  cuda::copy_within(stream.cuda(), data, x);
}

}  // namespace troupe
