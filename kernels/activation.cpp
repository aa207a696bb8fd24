#include "kernels/activation.hpp"

#include "kernels/dispatch.hpp"
#include "kernels/functors/activation.hpp"
#include "kernels/wording.hpp"

#include <optional>

namespace troupe {

std::string_view to_string(ActivationKind kind) {
  std::string_view name;
  with_activation(kind, [&](auto op) { name = op.name; });
  return name;
}

ActivationKind activation_named(std::string_view name) {
  std::optional<ActivationKind> found;
  [&]<class... Ops>(std::tuple<Ops...>*) {
    ((Ops::name == name ? void(found = Ops::kind) : void()), ...);
  }(static_cast<Activations*>(nullptr));
  TROUPE_CHECK(found, "[activation_named] no activation is called ", name);
  return *found;
}

bool derivative_from_output(ActivationKind kind) {
  bool from_output = false;
  with_activation(kind, [&](auto op) { from_output = op.from_output; });
  return from_output;
}

void activation_forward(Stream& stream, ActivationKind kind, const Tensor& x, const Tensor& y) {
  check_operand("activation_forward", "x", x, stream);
  check_tensor("activation_forward", "y", y, stream, x.shape(), x.type());
  begin(stream, {&x, &y});
  TROUPE_DISPATCH(activation_forward, stream, kind, x, y);
}

void activation_backward(
    Stream& stream, ActivationKind kind, const Tensor& saved, const Tensor& dy, const Tensor& dx) {
  check_operand("activation_backward", "saved", saved, stream);
  check_operand("activation_backward", "dy", dy, stream);
  check_tensor("activation_backward", "dy", dy, stream, saved.shape(), dy.type());
  check_tensor("activation_backward", "dx", dx, stream, saved.shape(), dy.type());
  begin(stream, {&saved, &dy, &dx});
  TROUPE_DISPATCH(activation_backward, stream, kind, saved, dy, dx);
}

namespace {

/// Of y, where x is (R, 2H).
Shape gated_shape(std::string_view op, const Tensor& x, const Stream& stream) {
  check_operand(op, "x", x, stream);
  TROUPE_CHECK(x.shape().dimensions() == 2 && x.shape()[1] > 0 && x.shape()[1] % 2 == 0,
               fill_in("[{}] x is {}, not (R, 2H) with H >= 1", op, x.shape()));
  return {x.shape()[0], x.shape()[1] / 2};
}

}  // namespace

void gate_forward(Stream& stream, ActivationKind kind, const Tensor& x, const Tensor& y) {
  check_tensor("gate_forward", "y", y, stream, gated_shape("gate_forward", x, stream), x.type());
  begin(stream, {&x, &y});
  TROUPE_DISPATCH(gate_forward, stream, kind, x, y);
}

void gate_backward(
    Stream& stream, ActivationKind kind, const Tensor& x, const Tensor& dy, const Tensor& dx) {
  check_operand("gate_backward", "dy", dy, stream);
  check_tensor(
      "gate_backward", "dy", dy, stream, gated_shape("gate_backward", x, stream), dy.type());
  check_tensor("gate_backward", "dx", dx, stream, x.shape(), x.type());
  begin(stream, {&x, &dy, &dx});
  TROUPE_DISPATCH(gate_backward, stream, kind, x, dy, dx);
}

}  // namespace troupe
