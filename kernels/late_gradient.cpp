#include "kernels/late_gradient.hpp"

#include "kernels/dispatch.hpp"

namespace troupe {

void compensate_delay(Stream& stream,
                      Compensation kind,
                      const CompensationScalars& scalars,
                      const Tensor& g,
                      const Tensor& w,
                      const Tensor& w_read,
                      const Tensor& mean_square,
                      const Tensor& out) {
  check_tensor("compensate_delay", "g", g, stream);
  check_tensor("compensate_delay", "w", w, stream, g.shape());
  check_tensor("compensate_delay", "w_read", w_read, stream, g.shape());
  check_tensor("compensate_delay", "out", out, stream, g.shape());
  TROUPE_CHECK(static_cast<bool>(mean_square) == (kind == Compensation::adaptive),
               "[compensate_delay] the adaptive form keeps a mean square, the others none");
  if (mean_square) {
    check_tensor("compensate_delay", "mean_square", mean_square, stream, g.shape());
  }
  begin(stream, {&g, &w, &w_read, &mean_square, &out});
  TROUPE_DISPATCH(compensate_delay, stream, kind, scalars, g, w, w_read, mean_square, out);
}

void damp_by_gap(Stream& stream,
                 float reach,
                 const Tensor& g,
                 const Tensor& w,
                 const Tensor& w_read,
                 const Tensor& out) {
  TROUPE_CHECK(reach > 0, "[damp_by_gap] reach is ", reach, "; right is a positive number");
  check_tensor("damp_by_gap", "g", g, stream);
  check_tensor("damp_by_gap", "w", w, stream, g.shape());
  check_tensor("damp_by_gap", "w_read", w_read, stream, g.shape());
  check_tensor("damp_by_gap", "out", out, stream, g.shape());
  begin(stream, {&g, &w, &w_read, &out});
  TROUPE_DISPATCH(damp_by_gap, stream, reach, g, w, w_read, out);
}

void damp_by_own_steps(Stream& stream,
                       const OwnStepScalars& scalars,
                       const Tensor& g,
                       const Tensor& w,
                       const Tensor& aim,
                       const Tensor& w_read,
                       const Tensor& square,
                       const Tensor& out) {
  TROUPE_CHECK(scalars.rate > 0,
               "[damp_by_own_steps] rate is ",
               scalars.rate,
               "; right is a positive number");
  check_tensor("damp_by_own_steps", "g", g, stream);
  check_tensor("damp_by_own_steps", "w", w, stream, g.shape());
  check_tensor("damp_by_own_steps", "aim", aim, stream, g.shape());
  check_tensor("damp_by_own_steps", "w_read", w_read, stream, g.shape());
  check_tensor("damp_by_own_steps", "square", square, stream, g.shape());
  check_tensor("damp_by_own_steps", "out", out, stream, g.shape());
  begin(stream, {&g, &w, &aim, &w_read, &square, &out});
  TROUPE_DISPATCH(damp_by_own_steps, stream, scalars, g, w, aim, w_read, square, out);
}

void average_square_step(Stream& stream,
                         float decay,
                         float scale,
                         const Tensor& before,
                         const Tensor& after,
                         const Tensor& square) {
  check_tensor("average_square_step", "before", before, stream);
  check_tensor("average_square_step", "after", after, stream, before.shape());
  check_tensor("average_square_step", "square", square, stream, before.shape());
  begin(stream, {&before, &after, &square});
  TROUPE_DISPATCH(average_square_step, stream, decay, scale, before, after, square);
}

void divide_by_deviation(Stream& stream,
                         const DeviationScalars& scalars,
                         const Tensor& g,
                         const Tensor& square,
                         const Tensor& mean,
                         const Tensor& deviation,
                         const Tensor& out) {
  check_tensor("divide_by_deviation", "g", g, stream);
  check_tensor("divide_by_deviation", "square", square, stream, g.shape());
  check_tensor("divide_by_deviation", "mean", mean, stream, g.shape());
  check_tensor("divide_by_deviation", "deviation", deviation, stream, g.shape());
  check_tensor("divide_by_deviation", "out", out, stream, g.shape());
  begin(stream, {&g, &square, &mean, &deviation, &out});
  TROUPE_DISPATCH(divide_by_deviation, stream, scalars, g, square, mean, deviation, out);
}

}  // namespace troupe
