#include "kernels/update.hpp"

#include "kernels/tiles.hpp"

#include <algorithm>
#include <array>

namespace troupe::cpu::TROUPE_ISA {

namespace {

// One block's step, then its displacement, then each prediction: what the step wrote is still in
// the first-level cache (Tiles::update_elements), and the pass touches memory once.
using Block = std::array<float, kUpdateElementsMax>;

struct Pointers {
  const float* w;
  const float* g;
  float* w_new;
  float* m;
  float* v;
};

/// The step of n elements; `direction` and `moved` (w_new - w) are filled where they are
/// not null.
template <class Kernel, bool wants_direction, bool wants_moved>
void step_block(Kernel kernel,
                const UpdateScalars& scalars,
                const Pointers& p,
                std::int64_t n,
                float* direction,
                float* moved) {
  const UpdateScalars s = scalars;
#pragma GCC ivdep  // w_new may be w or g, but never a shifted one
  for (std::int64_t i = 0; i < n; ++i) {
    const float w = p.w[i];
    UpdateElement e{.w = w, .g = p.g[i]};
    if constexpr (Kernel::moments >= 1) {
      e.m = p.m[i];
    }
    if constexpr (Kernel::moments >= 2) {
      e.v = p.v[i];
    }
    kernel.step(s, e);
    p.w_new[i] = e.w;
    if constexpr (Kernel::moments >= 1) {
      p.m[i] = e.m;
    }
    if constexpr (Kernel::moments >= 2) {
      p.v[i] = e.v;
    }
    if constexpr (wants_direction) {
      direction[i] = e.direction;
    }
    if constexpr (wants_moved) {
      moved[i] = e.w - w;
    }
  }
}

template <class Kernel>
void step_block(Kernel kernel,
                const UpdateScalars& scalars,
                const Pointers& p,
                std::int64_t n,
                float* direction,
                float* moved) {
  if (direction && moved) {
    step_block<Kernel, true, true>(kernel, scalars, p, n, direction, moved);
  } else if (direction) {
    step_block<Kernel, true, false>(kernel, scalars, p, n, direction, moved);
  } else if (moved) {
    step_block<Kernel, false, true>(kernel, scalars, p, n, direction, moved);
  } else {
    step_block<Kernel, false, false>(kernel, scalars, p, n, direction, moved);
  }
}

void smooth(float* displacement, const float* moved, float decay, std::int64_t n) {
  const float share = 1.0f - decay;
  for (std::int64_t i = 0; i < n; ++i) {
    displacement[i] = decay * displacement[i] + share * moved[i];
  }
}

void predict(float* out, const float* w_new, const float* along, float factor, std::int64_t n) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < n; ++i) {
    out[i] = w_new[i] - factor * along[i];
  }
}

}  // namespace

void update(Stream& /*stream*/, const UpdateArguments& arguments) {
  const UpdateArguments& a = arguments;
  const std::int64_t n = a.w.elements();
  const std::int64_t block = tiles().update_elements;
  const bool wants_direction =
      std::ranges::any_of(a.predictions, [](const Prediction& p) { return !p.displacement; });
  alignas(64) Block direction;
  alignas(64) Block moved;
  const auto at = [](const Tensor& x, std::int64_t i) {
    return x ? x.data<float>() + i : nullptr;
  };
  with_update_kernel(a.kernel, [&](auto kernel) {
    for (std::int64_t begin = 0; begin < n; begin += block) {
      const std::int64_t size = std::min(block, n - begin);
      const Pointers p{
          at(a.w, begin), at(a.g, begin), at(a.w_new, begin), at(a.m, begin), at(a.v, begin)};
      step_block(kernel,
                 a.scalars,
                 p,
                 size,
                 wants_direction ? direction.data() : nullptr,
                 a.displacement ? moved.data() : nullptr);
      if (a.displacement) {
        smooth(at(a.displacement, begin), moved.data(), a.displacement_decay, size);
      }
      for (const Prediction& prediction : a.predictions) {
        predict(at(prediction.out, begin),
                p.w_new,
                prediction.displacement ? at(a.displacement, begin) : direction.data(),
                prediction.factor,
                size);
      }
    }
  });
}

void nesterov_direction(Stream& /*stream*/,
                        const UpdateScalars& scalars,
                        const Tensor& g,
                        const Tensor& m,
                        const Tensor& out) {
  const UpdateScalars s = scalars;
  const std::int64_t n = g.elements();
  const float* from = g.data<float>();
  float* velocity = m.data<float>();
  float* to = out.data<float>();
#pragma GCC ivdep  // out may be g, but never a shifted one
  for (std::int64_t i = 0; i < n; ++i) {
    to[i] = nesterov_element(s, from[i], velocity[i]);
  }
}

}  // namespace troupe::cpu::TROUPE_ISA
