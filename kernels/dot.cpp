#include "kernels/dot.hpp"

#include "kernels/dispatch.hpp"

namespace troupe {

double dot(Stream& stream, const Tensor& a, const Tensor& b) {
  TROUPE_CHECK(stream.device().kind == DeviceKind::cpu,
               "[dot] runs on cpu only, not on ",
               to_string(stream.device()));
  check_tensor("dot", "a", a, stream);
  check_tensor("dot", "b", b, stream, a.shape());
  begin(stream, {&a, &b});
  return TROUPE_CPU(dot)(a, b);
}

}  // namespace troupe
