#include "kernels/cuda/elementwise.cuh"
#include "kernels/functors/update.hpp"
#include "kernels/update.hpp"

#include <cstddef>

namespace troupe::cuda {

namespace {

/// Predictions that one pass writes. More of them cost further passes, which come first: they only
/// read, and do the step again in registers, so that the last pass, which writes, finds what all of
/// them found.
constexpr std::size_t kTargets = 4;

struct Target {
  float* out;
  float factor;
  bool displacement;
};

struct UpdatePointers {
  const float* w;
  const float* g;
  float* w_new;
  float* m;             // where the kernel keeps it
  float* v;             // where the kernel keeps it
  float* displacement;  // or null
};

// Bandwidth-bound: 20 B an element with momentum, 28 B with Adam, 4 B more for each prediction. The
// order of the float operations is that of cpu/update.cpp, and no multiply-add is fused
// (kernels/CMakeLists.txt), so that both agree in every bit wherever square root and division are
// rounded correctly; on both they are.
template <class Kernel>
struct UpdatePass {
  UpdatePointers p;
  UpdateScalars scalars;
  float displacement_decay;
  bool writes_state;
  int target_count;
  Target targets[kTargets];

  template <int width>
  __device__ void at(std::int64_t i) const {
    using Floats = Pack<float, width>;
    const Floats w = load<width>(p.w, i);
    const Floats g = load<width>(p.g, i);
    Floats m{};
    Floats v{};
    Floats displacement{};
    if constexpr (Kernel::moments >= 1) {
      m = load<width>(p.m, i);
    }
    if constexpr (Kernel::moments >= 2) {
      v = load<width>(p.v, i);
    }
    if (p.displacement) {
      displacement = load<width>(p.displacement, i);
    }
    Floats w_new;
    Floats direction;
    const float share = 1.0f - displacement_decay;
#pragma unroll
    for (int k = 0; k < width; ++k) {
      UpdateElement e{.w = w.lane[k], .g = g.lane[k], .m = m.lane[k], .v = v.lane[k]};
      Kernel{}.step(scalars, e);
      w_new.lane[k] = e.w;
      m.lane[k] = e.m;
      v.lane[k] = e.v;
      direction.lane[k] = e.direction;
      displacement.lane[k] = displacement_decay * displacement.lane[k] + share * (e.w - w.lane[k]);
    }
    if (writes_state) {
      store<width>(p.w_new, i, w_new);
      if constexpr (Kernel::moments >= 1) {
        store<width>(p.m, i, m);
      }
      if constexpr (Kernel::moments >= 2) {
        store<width>(p.v, i, v);
      }
      if (p.displacement) {
        store<width>(p.displacement, i, displacement);
      }
    }
#pragma unroll
    for (int t = 0; t < static_cast<int>(kTargets); ++t) {
      if (t < target_count) {
        const Target& target = targets[t];
        Floats out;
#pragma unroll
        for (int k = 0; k < width; ++k) {
          const float along = target.displacement ? displacement.lane[k] : direction.lane[k];
          out.lane[k] = w_new.lane[k] - target.factor * along;
        }
        store<width>(target.out, i, out);
      }
    }
  }
};

struct NesterovDirection {
  UpdateScalars scalars;
  const float* g;
  float* m;
  float* out;  // may be g

  template <int width>
  __device__ void at(std::int64_t i) const {
    Pack<float, width> values = load<width>(g, i);
    Pack<float, width> velocity = load<width>(m, i);
#pragma unroll
    for (int k = 0; k < width; ++k) {
      values.lane[k] = nesterov_element(scalars, values.lane[k], velocity.lane[k]);
    }
    store<width>(m, i, velocity);
    store<width>(out, i, values);
  }
};

}  // namespace

void update(Stream& stream, const UpdateArguments& arguments) {
  const UpdateArguments& a = arguments;
  const Backend::State& state = activate(stream);
  const auto data = [](const Tensor& x) {
    return x ? x.data<float>() : nullptr;
  };
  const UpdatePointers p{
      data(a.w), data(a.g), data(a.w_new), data(a.m), data(a.v), data(a.displacement)};
  const auto of_pointers = pack_width(p.w, p.g, p.w_new, p.m, p.v, p.displacement);
  with_update_kernel(a.kernel, [&](auto kernel) {
    std::size_t next = 0;
    do {
      UpdatePass<decltype(kernel)> pass{.p = p,
                                        .scalars = a.scalars,
                                        .displacement_decay = a.displacement_decay,
                                        .writes_state = a.predictions.size() - next <= kTargets,
                                        .target_count = 0,
                                        .targets = {}};
      auto width = of_pointers;
      for (; next < a.predictions.size() && pass.target_count < static_cast<int>(kTargets);
           ++next) {
        const Prediction& prediction = a.predictions[next];
        float* out = prediction.out.data<float>();
        pass.targets[pass.target_count++] = {out, prediction.factor, prediction.displacement};
        width.value = std::min(width.value, pack_width(out).value);
      }
      for_each_index(state, a.w.elements(), width, pass);
    } while (next < a.predictions.size());
  });
}

void nesterov_direction(Stream& stream,
                        const UpdateScalars& scalars,
                        const Tensor& g,
                        const Tensor& m,
                        const Tensor& out) {
  const NesterovDirection pass{
      .scalars = scalars, .g = g.data<float>(), .m = m.data<float>(), .out = out.data<float>()};
  for_each_index(activate(stream), g.elements(), pack_width(pass.g, pass.m, pass.out), pass);
}

}  // namespace troupe::cuda
