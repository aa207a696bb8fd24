// LARS and LAMB: the norm of each parameter, and that of its step, decide how far it is moved.
#include "kernels/combine.hpp"
#include "runtime/schemes/optimizers/steps.hpp"

#include <cmath>

namespace troupe {
namespace {

/// Of all elements, summed in double. Waits for the GPU.
double norm(Stream& stream, const Tensor& x) {
  Tensor out = stream.allocate({1}, DType::float64);
  const Part all{0, x.elements()};
  sum_of_squares(stream, x, {&all, 1}, out);
  out.set_ready(stream.record());
  return std::sqrt(to_host(out)[0]);
}

}  // namespace

Tensor lars_step(Stream& stream,
                 const UpdateNumbers& numbers,
                 const OptionValues& /*values*/,
                 const UpdateTensors& t) {
  const double w = norm(stream, t.w);
  const double g = numbers.gradient_scale * norm(stream, t.g);
  const double local = w > 0 && g > 0 ? numbers.trust * w / (g + numbers.weight_decay * w) : 1;
  const Tensor& velocity = t.moments[0];
  combine(stream,
          {{numbers.momentum, velocity},
           {numbers.rate * local * numbers.gradient_scale, t.g},
           {numbers.rate * local * numbers.weight_decay, t.w}},
          velocity);
  // The velocity contains the learning rates of its time; predictions reckon with the present one.
  const Tensor direction = stream.allocate(t.g.shape());
  combine(stream, {{numbers.rate > 0 ? 1 / numbers.rate : 0, velocity}}, direction);
  combine(stream, {{1, t.w}, {-1, velocity}}, t.w_new);
  return direction;
}

Tensor lamb_step(Stream& stream,
                 const UpdateNumbers& numbers,
                 const OptionValues& /*values*/,
                 const UpdateTensors& t) {
  const Tensor direction = adam_direction(stream, numbers, t.g, t.moments[0], t.moments[1]);
  combine(stream, {{1, direction}, {numbers.weight_decay, t.w}}, direction);
  const double w = norm(stream, t.w);
  const double u = norm(stream, direction);
  combine(stream, {{w > 0 && u > 0 ? w / u : 1, direction}}, direction);
  combine(stream, {{1, t.w}, {-numbers.rate, direction}}, t.w_new);
  return direction;
}

}  // namespace troupe
