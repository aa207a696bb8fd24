// Element-wise activations, written once for host and device.
//
// A functor has `forward(x) = f(x)` and `backward(saved, dy) = dy * f'`, side by side. `saved` is y
// = f(x) where `from_output` (one saved tensor serves this layer and the next), else x. To add one:
// the enumerator in ActivationKind, the struct here, its name in `Activations`. Both backends and
// the tests go over that list.
#pragma once

#include "kernels/activation.hpp"
#include "kernels/functors/math.hpp"
#include "kernels/hd.hpp"

#include <string_view>
#include <tuple>

namespace troupe {

struct Identity {
  static constexpr ActivationKind kind = ActivationKind::none;
  static constexpr std::string_view name = "none";
  static constexpr bool from_output = true;

  TROUPE_HD float forward(float x) const { return x; }

  TROUPE_HD float backward(float /*y*/, float dy) const { return dy; }
};

struct Relu {
  static constexpr ActivationKind kind = ActivationKind::relu;
  static constexpr std::string_view name = "relu";
  static constexpr bool from_output = true;

  // A NaN is handed on: divergence must be seen. f'(0) is taken as 0, as PyTorch does.
  TROUPE_HD float forward(float x) const { return x < 0.0f ? 0.0f : x; }

  TROUPE_HD float backward(float y, float dy) const { return y > 0.0f ? dy : 0.0f; }
};

struct Tanh {
  static constexpr ActivationKind kind = ActivationKind::tanh;
  static constexpr std::string_view name = "tanh";
  static constexpr bool from_output = true;

  TROUPE_HD float forward(float x) const { return tanh_float(x); }

  TROUPE_HD float backward(float y, float dy) const { return dy * (1.0f - y * y); }
};

// The tanh form: Hendrycks & Gimpel, arXiv:1606.08415, section 2. Differs from the erf form by up
// to 5e-4.
struct Gelu {
  static constexpr ActivationKind kind = ActivationKind::gelu;
  static constexpr std::string_view name = "gelu";
  static constexpr bool from_output = false;
  static constexpr float kSqrtTwoOverPi = 0.7978845608f;
  static constexpr float kCubic = 0.044715f;

  TROUPE_HD float forward(float x) const { return x * share(x); }

  TROUPE_HD float backward(float x, float dy) const {
    const float s = share(x);
    const float slope = 2.0f * kSqrtTwoOverPi * (1.0f + 3.0f * kCubic * x * x);  // of 2 inner
    return dy * (s + x * s * (1.0f - s) * slope);
  }

 private:
  // (1 + tanh z) / 2 = sigmoid(2 z): one exponential, and no cancellation far below 0.
  TROUPE_HD static float share(float x) {
    return sigmoid_float(2.0f * kSqrtTwoOverPi * (x + kCubic * x * x * x));
  }
};

// Klambauer et al. 2017, arXiv:1706.02515, section 2. For x <= 0 the slope is y + scale * alpha.
struct Selu {
  static constexpr ActivationKind kind = ActivationKind::selu;
  static constexpr std::string_view name = "selu";
  static constexpr bool from_output = true;
  static constexpr float kScale = 1.0507009873554805f;
  static constexpr float kScaleAlpha = 1.7580993408473766f;

  // Both sides are computed and one is taken, so that loops vectorise.
  TROUPE_HD float forward(float x) const {
    const float linear = kScale * x;
    const float bent = kScaleAlpha * expm1_float(x);
    return x > 0.0f ? linear : bent;
  }

  TROUPE_HD float backward(float y, float dy) const {
    const float bent = y + kScaleAlpha;
    return dy * (y > 0.0f ? kScale : bent);
  }
};

// x times the normal distribution function of x: Hendrycks & Gimpel, arXiv:1606.08415, section 2.
struct GeluErf {
  static constexpr ActivationKind kind = ActivationKind::gelu_erf;
  static constexpr std::string_view name = "gelu_erf";
  static constexpr bool from_output = false;
  static constexpr float kDensity = 0.3989422804f;  // 1 / sqrt(2 pi)

  TROUPE_HD float forward(float x) const { return x * normal_share_float(x); }

  TROUPE_HD float backward(float x, float dy) const {
    return dy * (normal_share_float(x) + x * kDensity * exp_float(-0.5f * x * x));
  }
};

// x sigmoid(x): Elfwing, Uchibe & Doya 2017, arXiv:1702.03118, equation 5; Swish-1 elsewhere.
struct Silu {
  static constexpr ActivationKind kind = ActivationKind::silu;
  static constexpr std::string_view name = "silu";
  static constexpr bool from_output = false;

  TROUPE_HD float forward(float x) const { return x * sigmoid_float(x); }

  TROUPE_HD float backward(float x, float dy) const {
    const float s = sigmoid_float(x);
    return dy * (s + x * s * (1.0f - s));
  }
};

using Activations = std::tuple<Identity, Relu, Tanh, Gelu, Selu, GeluErf, Silu>;

/// The gradients of f(a) b by a and by b.
template <class Op>
struct Gate {
  TROUPE_HD void backward(float a, float b, float dy, float& da, float& db) const {
    const float f = Op{}.forward(a);
    da = Op{}.backward(Op::from_output ? f : a, dy * b);
    db = dy * f;
  }
};

/// Calls f(functor) with the functor of `kind`: one branch a tensor, none an element.
template <class F>
void with_activation(ActivationKind kind, F&& f) {
  const bool found = [&]<class... Ops>(std::tuple<Ops...>*) {
    return ((Ops::kind == kind ? (f(Ops{}), true) : false) || ...);
  }(static_cast<Activations*>(nullptr));
  TROUPE_CHECK(found, "[with_activation] there is no functor of this kind");
}

}  // namespace troupe
