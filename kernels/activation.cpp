#include "kernels/activation.hpp"

#include "kernels/dispatch.hpp"
#include "kernels/functors/activation.hpp"

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

}  // namespace troupe
