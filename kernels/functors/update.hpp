// The arithmetic of one optimizer step for one element, written once for host and device.
//
// A functor has `step(scalars, element)`: it reads w, g and the moments that the rule keeps, and
// leaves the new w, the new moments and the direction along which predictions reach (update.hpp).
// Explicit float operations, no fused multiply-add. To add a rule: the enumerator in UpdateRule,
// the struct here, its name in `UpdateRules`.
#pragma once

#include "kernels/hd.hpp"
#include "kernels/update.hpp"

#include <cmath>
#include <string_view>
#include <tuple>

namespace troupe {

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

struct Sgd {
  static constexpr UpdateRule rule = UpdateRule::sgd;
  static constexpr std::string_view name = "sgd";
  static constexpr int moments = 0;

  TROUPE_HD void step(const UpdateScalars& s, UpdateElement& e) const {
    const float g = detail::decayed_gradient(s, e);
    e.direction = g;
    e.w = e.w - s.rate * g;
  }
};

struct Momentum {
  static constexpr UpdateRule rule = UpdateRule::momentum;
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
  static constexpr UpdateRule rule = UpdateRule::nesterov;
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
  static constexpr UpdateRule rule = UpdateRule::spike_compensation;
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
  static constexpr UpdateRule rule = UpdateRule::adam;
  static constexpr std::string_view name = "adam";
  static constexpr int moments = 2;

  TROUPE_HD void step(const UpdateScalars& s, UpdateElement& e) const {
    detail::adam_step(s, detail::decayed_gradient(s, e), e);
  }
};

// Loshchilov & Hutter 2019, algorithm 2.
struct AdamW {
  static constexpr UpdateRule rule = UpdateRule::adamw;
  static constexpr std::string_view name = "adamw";
  static constexpr int moments = 2;

  TROUPE_HD void step(const UpdateScalars& s, UpdateElement& e) const {
    e.w = detail::shrunk(s, e.w);
    detail::adam_step(s, s.gradient_scale * e.g, e);
  }
};

struct NAdam {
  static constexpr UpdateRule rule = UpdateRule::nadam;
  static constexpr std::string_view name = "nadam";
  static constexpr int moments = 2;

  TROUPE_HD void step(const UpdateScalars& s, UpdateElement& e) const {
    detail::nadam_step(s, detail::decayed_gradient(s, e), e);
  }
};

struct NAdamW {
  static constexpr UpdateRule rule = UpdateRule::nadamw;
  static constexpr std::string_view name = "nadamw";
  static constexpr int moments = 2;

  TROUPE_HD void step(const UpdateScalars& s, UpdateElement& e) const {
    e.w = detail::shrunk(s, e.w);
    detail::nadam_step(s, s.gradient_scale * e.g, e);
  }
};

using UpdateRules =
    std::tuple<Sgd, Momentum, Nesterov, SpikeCompensation, Adam, AdamW, NAdam, NAdamW>;

/// Calls f(functor) with the functor of `rule`: one branch a tensor, none an element.
template <class F>
void with_update_rule(UpdateRule rule, F&& f) {
  const bool found = [&]<class... Rules>(std::tuple<Rules...>*) {
    return ((Rules::rule == rule ? (f(Rules{}), true) : false) || ...);
  }(static_cast<UpdateRules*>(nullptr));
  TROUPE_CHECK(found, "[with_update_rule] no functor of rule ", static_cast<int>(rule));
}

}  // namespace troupe
