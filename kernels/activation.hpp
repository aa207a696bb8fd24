// Element-wise activations. The formulas stand in functors/activation.hpp, once for both backends.
#pragma once

#include "kernels/stream.hpp"

#include <cstdint>
#include <string_view>

namespace troupe {

enum class ActivationKind : std::uint8_t { none, relu, tanh, gelu, selu, gelu_erf, silu };

std::string_view to_string(ActivationKind kind);
/// The kind whose to_string is `name`; ContractError where there is none.
ActivationKind activation_named(std::string_view name);

/// True where the derivative is taken from y = f(x), so that x need not be kept.
bool derivative_from_output(ActivationKind kind);

/// y = f(x). Shapes and types equal, float32 or the stream's operand_type(); y may be x.
void activation_forward(Stream& stream, ActivationKind kind, const Tensor& x, const Tensor& y);

/// dx = dy * f'. `saved` is y where derivative_from_output(kind), else x, of either type. Shapes
/// equal, dx of dy's type; dx may be dy.
void activation_backward(
    Stream& stream, ActivationKind kind, const Tensor& saved, const Tensor& dy, const Tensor& dx);

/// y = f(a) b, where x is a | b: a gated linear unit, with silu SwiGLU (Shazeer 2020, arXiv:2002.05202). Shapes:
/// x (R, 2H), y (R, H); types equal, float32 or the stream's operand_type().
void gate_forward(Stream& stream, ActivationKind kind, const Tensor& x, const Tensor& y);

/// The gradient by x: dx of x's shape and type, dy (R, H) of either type.
void gate_backward(
    Stream& stream, ActivationKind kind, const Tensor& x, const Tensor& dy, const Tensor& dx);

// The backends: same signatures, arguments already checked.
TROUPE_BACKENDS(activation_forward);
TROUPE_BACKENDS(activation_backward);
TROUPE_BACKENDS(gate_forward);
TROUPE_BACKENDS(gate_backward);

}  // namespace troupe
