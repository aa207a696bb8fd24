#include "kernels/cuda/elementwise.cuh"
#include "kernels/functors/late_gradient.hpp"

namespace troupe::cuda {

namespace {

// All bandwidth-bound, 16 to 28 B an element; the order of the float operations is that of
// cpu/late_gradient.cpp, and no multiply-add is fused (kernels/CMakeLists.txt).

template <class Op>
struct Compensate {
  CompensationScalars scalars;
  const float* g;
  const float* w;
  const float* w_read;
  float* mean_square;  // where Op keeps it
  float* out;

  template <int width>
  __device__ void at(std::int64_t i) const {
    Pack<float, width> values = load<width>(g, i);
    const Pack<float, width> now = load<width>(w, i);
    const Pack<float, width> then = load<width>(w_read, i);
    Pack<float, width> kept{};
    if constexpr (Op::averages) {
      kept = load<width>(mean_square, i);
    }
#pragma unroll
    for (int k = 0; k < width; ++k) {
      values.lane[k] =
          Op{}.correct(scalars, values.lane[k], now.lane[k] - then.lane[k], kept.lane[k]);
    }
    if constexpr (Op::averages) {
      store<width>(mean_square, i, kept);
    }
    store<width>(out, i, values);
  }
};

struct Damp {
  float reach;
  const float* g;
  const float* w;
  const float* w_read;
  float* out;

  template <int width>
  __device__ void at(std::int64_t i) const {
    Pack<float, width> values = load<width>(g, i);
    const Pack<float, width> now = load<width>(w, i);
    const Pack<float, width> then = load<width>(w_read, i);
#pragma unroll
    for (int k = 0; k < width; ++k) {
      values.lane[k] = damped(values.lane[k], now.lane[k] - then.lane[k], reach);
    }
    store<width>(out, i, values);
  }
};

struct DampByOwnSteps {
  OwnStepScalars scalars;
  const float* g;
  const float* w;
  const float* aim;
  const float* w_read;
  const float* square;
  float* out;

  template <int width>
  __device__ void at(std::int64_t i) const {
    Pack<float, width> values = load<width>(g, i);
    const Pack<float, width> now = load<width>(w, i);
    const Pack<float, width> aimed = load<width>(aim, i);
    const Pack<float, width> then = load<width>(w_read, i);
    const Pack<float, width> squares = load<width>(square, i);
#pragma unroll
    for (int k = 0; k < width; ++k) {
      values.lane[k] = damped_by_own_step(
          scalars, values.lane[k], now.lane[k], aimed.lane[k] - then.lane[k], squares.lane[k]);
    }
    store<width>(out, i, values);
  }
};

struct AverageSquareStep {
  float decay;
  float scale;
  const float* before;
  const float* after;
  float* square;

  template <int width>
  __device__ void at(std::int64_t i) const {
    Pack<float, width> squares = load<width>(square, i);
    const Pack<float, width> from = load<width>(before, i);
    const Pack<float, width> to = load<width>(after, i);
#pragma unroll
    for (int k = 0; k < width; ++k) {
      squares.lane[k] =
          averaged_square(decay, squares.lane[k], scale * (from.lane[k] - to.lane[k]));
    }
    store<width>(square, i, squares);
  }
};

struct DivideByDeviation {
  DeviationScalars scalars;
  const float* g;
  float* square;
  float* mean;
  float* deviation;
  float* out;

  template <int width>
  __device__ void at(std::int64_t i) const {
    Pack<float, width> values = load<width>(g, i);
    Pack<float, width> squares = load<width>(square, i);
    Pack<float, width> means = load<width>(mean, i);
    Pack<float, width> deviations = load<width>(deviation, i);
#pragma unroll
    for (int k = 0; k < width; ++k) {
      values.lane[k] =
          by_deviation(scalars, values.lane[k], squares.lane[k], means.lane[k], deviations.lane[k]);
    }
    store<width>(square, i, squares);
    store<width>(mean, i, means);
    store<width>(deviation, i, deviations);
    store<width>(out, i, values);
  }
};

}  // namespace

void compensate_delay(Stream& stream, const CompensationArguments& a) {
  const Backend::State& state = activate(stream);
  with_compensation(a.kind, [&](auto op) {
    const Compensate<decltype(op)> pass{
        .scalars = a.scalars,
        .g = a.g.data<float>(),
        .w = a.w.data<float>(),
        .w_read = a.w_read.data<float>(),
        .mean_square = a.mean_square ? a.mean_square.data<float>() : nullptr,
        .out = a.out.data<float>()};
    const auto width = pack_width(pass.g, pass.w, pass.w_read, pass.mean_square, pass.out);
    for_each_index(state, a.g.elements(), width, pass);
  });
}

void damp_by_gap(Stream& stream,
                 float reach,
                 const Tensor& g,
                 const Tensor& w,
                 const Tensor& w_read,
                 const Tensor& out) {
  const Damp pass{.reach = reach,
                  .g = g.data<float>(),
                  .w = w.data<float>(),
                  .w_read = w_read.data<float>(),
                  .out = out.data<float>()};
  const auto width = pack_width(pass.g, pass.w, pass.w_read, pass.out);
  for_each_index(activate(stream), g.elements(), width, pass);
}

void damp_by_own_steps(Stream& stream, const OwnStepArguments& a) {
  const DampByOwnSteps pass{.scalars = a.scalars,
                            .g = a.g.data<float>(),
                            .w = a.w.data<float>(),
                            .aim = a.aim.data<float>(),
                            .w_read = a.w_read.data<float>(),
                            .square = a.square.data<float>(),
                            .out = a.out.data<float>()};
  const auto width = pack_width(pass.g, pass.w, pass.aim, pass.w_read, pass.square, pass.out);
  for_each_index(activate(stream), a.g.elements(), width, pass);
}

void average_square_step(Stream& stream,
                         float decay,
                         float scale,
                         const Tensor& before,
                         const Tensor& after,
                         const Tensor& square) {
  const AverageSquareStep pass{.decay = decay,
                               .scale = scale,
                               .before = before.data<float>(),
                               .after = after.data<float>(),
                               .square = square.data<float>()};
  const auto width = pack_width(pass.before, pass.after, pass.square);
  for_each_index(activate(stream), before.elements(), width, pass);
}

void divide_by_deviation(Stream& stream, const DeviationArguments& a) {
  const DivideByDeviation pass{.scalars = a.scalars,
                               .g = a.g.data<float>(),
                               .square = a.square.data<float>(),
                               .mean = a.mean.data<float>(),
                               .deviation = a.deviation.data<float>(),
                               .out = a.out.data<float>()};
  const auto width = pack_width(pass.g, pass.square, pass.mean, pass.deviation, pass.out);
  for_each_index(activate(stream), a.g.elements(), width, pass);
}

}  // namespace troupe::cuda
