// The arithmetic of one optimizer step for one element, written once for host and device.
//
// A functor has `step(scalars, element)`: it reads w, g and the moments that the kernel keeps, and
// leaves the new w, the new moments and the direction along which predictions reach (update.hpp).
// Explicit float operations, no fused multiply-add. A new kernel is all in this file: its enumerator
// in UpdateKernel, its struct, the struct's name in `UpdateKernels`.
#pragma once

#include "kernels/check.hpp"
#include "kernels/hd.hpp"

#include <cmath>
#include <cstdint>
#include <string_view>
#include <tuple>

namespace troupe {

enum class UpdateKernel : std::uint8_t {
  sgd,                 // w -= eta g; no state
  momentum,            // v = gamma v + g; w -= eta v
  nesterov,            // v = gamma v + g; w -= eta (g + gamma v)
  spike_compensation,  // v = gamma v + g; w -= eta (a v + b g)            Kosson et al. 2020 (SC_D)
  adam,                // Kingma & Ba 2015, algorithm 1; weight decay joins g
  adamw,               // Loshchilov & Hutter 2019: w *= 1 - eta lambda first
  nadam,               // Dozat 2016 as in PyTorch; weight decay joins g
  nadamw,              // the same with decoupled decay                    AsyncPP
  adagrad,             // Duchi et al. 2011; weight decay joins g
  rmsprop,             // Tieleman & Hinton 2012 as in PyTorch; weight decay joins g
  lion,                // Chen et al. 2023, algorithm 2: w *= 1 - eta lambda first
  muon,  // w *= 1 - eta lambda; w -= eta s g, with g orthogonalised before (update.hpp)
};

/// All numbers of one step, computed on the host in double and rounded once.
struct UpdateScalars {
  float gradient_scale = 1;  // g is multiplied by it first (clipping; muon's s)
  float rate = 0;            // eta of this step
  float decay = 0;           // weight decay lambda
  float gamma = 0;           // momentum, Adam's beta1
  float beta2 = 0;           // decay of Adam's second moment and of rmsprop's mean square
  float epsilon = 0;
  float a = 1;        // spike compensation: the velocity's factor gamma^D
  float b = 0;        // spike compensation: the gradient's factor (1 - gamma^D) / (1 - gamma)
  float m_scale = 1;  // Adam: 1 / (1 - beta1^t). NAdam: mu_{t+1} / (1 - prod_{i<=t+1} mu_i)
  float g_scale = 0;  // NAdam: (1 - mu_t) / (1 - prod_{i<=t} mu_i)
  float v_scale = 1;  // Adam, NAdam: 1 / (1 - beta2^t)
};

struct UpdateElement {
  float w = 0;          // in: the weight; out: the new one
  float g = 0;          // in: the gradient as it came
  float m = 0;          // in, out: where moments >= 1
  float v = 0;          // in, out: where moments == 2
  float direction = 0;  // out
};

namespace detail {

/// The gradient with clipping's factor and weight decay in it.
TROUPE_HD inline float decayed_gradient(const UpdateScalars& s, const UpdateElement& e) {
  return s.gradient_scale * e.g + s.decay * e.w;
}

/// Adam's moments take in g; returns sqrt(v_hat) + epsilon.
TROUPE_HD inline float adam_moments(const UpdateScalars& s, float g, UpdateElement& e) {
  e.m = s.gamma * e.m + (1.0f - s.gamma) * g;
  e.v = s.beta2 * e.v + (1.0f - s.beta2) * (g * g);
  return std::sqrt(e.v * s.v_scale) + s.epsilon;
}

TROUPE_HD inline void adam_step(const UpdateScalars& s, float g, UpdateElement& e) {
  const float denominator = adam_moments(s, g, e);
  e.direction = (e.m * s.m_scale) / denominator;
  e.w = e.w - s.rate * e.direction;
}

// Dozat 2016. The step looks one momentum ahead (g's share and m's); the direction is m's share
// alone.
TROUPE_HD inline void nadam_step(const UpdateScalars& s, float g, UpdateElement& e) {
  const float denominator = adam_moments(s, g, e);
  const float ahead = s.m_scale * e.m;
  e.direction = ahead / denominator;
  e.w = e.w - s.rate * ((s.g_scale * g + ahead) / denominator);
}

/// Decoupled weight decay, before the step.
TROUPE_HD inline float shrunk(const UpdateScalars& s, float w) {
  return w * (1.0f - s.rate * s.decay);
}

}  // namespace detail

/// One element of nesterov_direction().
TROUPE_HD inline float nesterov_element(const UpdateScalars& s, float g, float& m) {
  const float scaled = s.gradient_scale * g;
  m = s.gamma * m + scaled;
  return scaled + s.gamma * m;
}

/// What normalize() multiplies by. The bound keeps zeros zero; it is PyTorch's for Muon.
TROUPE_HD inline float normalizing_factor(double sum_of_squares) {
  const double norm = std::sqrt(sum_of_squares);
  return static_cast<float>(1.0 / (norm < 1e-7 ? 1e-7 : norm));  // a NaN stays
}

struct Sgd {
  static constexpr UpdateKernel kernel = UpdateKernel::sgd;
  static constexpr std::string_view name = "sgd";
  static constexpr int moments = 0;

  TROUPE_HD void step(const UpdateScalars& s, UpdateElement& e) const {
    const float g = detail::decayed_gradient(s, e);
    e.direction = g;
    e.w = e.w - s.rate * g;
  }
};

struct Momentum {
  static constexpr UpdateKernel kernel = UpdateKernel::momentum;
  static constexpr std::string_view name = "momentum";
  static constexpr int moments = 1;

  TROUPE_HD void step(const UpdateScalars& s, UpdateElement& e) const {
    const float g = detail::decayed_gradient(s, e);
    e.m = s.gamma * e.m + g;
    e.direction = e.m;
    e.w = e.w - s.rate * e.m;
  }
};

struct Nesterov {
  static constexpr UpdateKernel kernel = UpdateKernel::nesterov;
  static constexpr std::string_view name = "nesterov";
  static constexpr int moments = 1;

  TROUPE_HD void step(const UpdateScalars& s, UpdateElement& e) const {
    const float g = detail::decayed_gradient(s, e);
    e.m = s.gamma * e.m + g;
    e.direction = e.m;
    e.w = e.w - s.rate * (g + s.gamma * e.m);
  }
};

// Kosson et al. 2020, arXiv:2003.11666, section 3.2.
struct SpikeCompensation {
  static constexpr UpdateKernel kernel = UpdateKernel::spike_compensation;
  static constexpr std::string_view name = "spike_compensation";
  static constexpr int moments = 1;

  TROUPE_HD void step(const UpdateScalars& s, UpdateElement& e) const {
    const float g = detail::decayed_gradient(s, e);
    e.m = s.gamma * e.m + g;
    e.direction = e.m;
    e.w = e.w - s.rate * (s.a * e.m + s.b * g);
  }
};

// Kingma & Ba 2015, algorithm 1.
struct Adam {
  static constexpr UpdateKernel kernel = UpdateKernel::adam;
  static constexpr std::string_view name = "adam";
  static constexpr int moments = 2;

  TROUPE_HD void step(const UpdateScalars& s, UpdateElement& e) const {
    detail::adam_step(s, detail::decayed_gradient(s, e), e);
  }
};

// Loshchilov & Hutter 2019, algorithm 2.
struct AdamW {
  static constexpr UpdateKernel kernel = UpdateKernel::adamw;
  static constexpr std::string_view name = "adamw";
  static constexpr int moments = 2;

  TROUPE_HD void step(const UpdateScalars& s, UpdateElement& e) const {
    e.w = detail::shrunk(s, e.w);
    detail::adam_step(s, s.gradient_scale * e.g, e);
  }
};

struct NAdam {
  static constexpr UpdateKernel kernel = UpdateKernel::nadam;
  static constexpr std::string_view name = "nadam";
  static constexpr int moments = 2;

  TROUPE_HD void step(const UpdateScalars& s, UpdateElement& e) const {
    detail::nadam_step(s, detail::decayed_gradient(s, e), e);
  }
};

struct NAdamW {
  static constexpr UpdateKernel kernel = UpdateKernel::nadamw;
  static constexpr std::string_view name = "nadamw";
  static constexpr int moments = 2;

  TROUPE_HD void step(const UpdateScalars& s, UpdateElement& e) const {
    e.w = detail::shrunk(s, e.w);
    detail::nadam_step(s, s.gradient_scale * e.g, e);
  }
};

// Duchi et al. 2011, with epsilon outside the root as in PyTorch. m is the sum of squares.
struct Adagrad {
  static constexpr UpdateKernel kernel = UpdateKernel::adagrad;
  static constexpr std::string_view name = "adagrad";
  static constexpr int moments = 1;

  TROUPE_HD void step(const UpdateScalars& s, UpdateElement& e) const {
    const float g = detail::decayed_gradient(s, e);
    e.m = e.m + g * g;
    e.direction = g / (std::sqrt(e.m) + s.epsilon);
    e.w = e.w - s.rate * e.direction;
  }
};

// Tieleman & Hinton 2012, lecture 6.5, as in PyTorch: the momentum is of the scaled gradient, and
// with gamma = 0 its buffer is the step itself.
struct RmsProp {
  static constexpr UpdateKernel kernel = UpdateKernel::rmsprop;
  static constexpr std::string_view name = "rmsprop";
  static constexpr int moments = 2;

  TROUPE_HD void step(const UpdateScalars& s, UpdateElement& e) const {
    const float g = detail::decayed_gradient(s, e);
    e.v = s.beta2 * e.v + (1.0f - s.beta2) * (g * g);
    e.m = s.gamma * e.m + g / (std::sqrt(e.v) + s.epsilon);
    e.direction = e.m;
    e.w = e.w - s.rate * e.m;
  }
};

// Chen et al. 2023, "Symbolic Discovery of Optimization Algorithms", algorithm 2; of two betas, gamma is the
// step's and beta2 the momentum's.
struct Lion {
  static constexpr UpdateKernel kernel = UpdateKernel::lion;
  static constexpr std::string_view name = "lion";
  static constexpr int moments = 1;

  TROUPE_HD void step(const UpdateScalars& s, UpdateElement& e) const {
    const float g = s.gradient_scale * e.g;
    const float c = s.gamma * e.m + (1.0f - s.gamma) * g;
    e.m = s.beta2 * e.m + (1.0f - s.beta2) * g;
    e.direction = c > 0 ? 1.0f : c < 0 ? -1.0f : c;  // a NaN stays
    e.w = detail::shrunk(s, e.w) - s.rate * e.direction;
  }
};

// Jordan et al. 2024, the last part: g is the orthogonalised momentum already (orthogonalize.hpp).
struct Muon {
  static constexpr UpdateKernel kernel = UpdateKernel::muon;
  static constexpr std::string_view name = "muon";
  static constexpr int moments = 0;

  TROUPE_HD void step(const UpdateScalars& s, UpdateElement& e) const {
    e.direction = s.gradient_scale * e.g;
    e.w = detail::shrunk(s, e.w) - s.rate * e.direction;
  }
};

using UpdateKernels = std::tuple<Sgd,
                                 Momentum,
                                 Nesterov,
                                 SpikeCompensation,
                                 Adam,
                                 AdamW,
                                 NAdam,
                                 NAdamW,
                                 Adagrad,
                                 RmsProp,
                                 Lion,
                                 Muon>;

/// Calls f(functor) with the functor of `kernel`: one branch a tensor, none an element.
template <class F>
void with_update_kernel(UpdateKernel kernel, F&& f) {
  const bool found = [&]<class... Kernels>(std::tuple<Kernels...>*) {
    return ((Kernels::kernel == kernel ? (f(Kernels{}), true) : false) || ...);
  }(static_cast<UpdateKernels*>(nullptr));
  TROUPE_CHECK(found, "[with_update_kernel] no functor of kernel ", static_cast<int>(kernel));
}

}  // namespace troupe
