#include "kernels/late_gradient.hpp"

#include "kernels/dispatch.hpp"

namespace troupe {

void compensate_delay(Stream& stream, const CompensationArguments& a) {
  check_tensor("compensate_delay", "g", a.g, stream);
  check_tensor("compensate_delay", "w", a.w, stream, a.g.shape());
  check_tensor("compensate_delay", "w_read", a.w_read, stream, a.g.shape());
  check_tensor("compensate_delay", "out", a.out, stream, a.g.shape());
  TROUPE_CHECK(static_cast<bool>(a.mean_square) == (a.kind == Compensation::adaptive),
               "[compensate_delay] the adaptive form keeps a mean square, the others none");
  if (a.mean_square) {
    check_tensor("compensate_delay", "mean_square", a.mean_square, stream, a.g.shape());
  }
  begin(stream, {&a.g, &a.w, &a.w_read, &a.mean_square, &a.out});
  TROUPE_DISPATCH(compensate_delay, stream, a);
}

void damp_by_gap(Stream& stream,
                 float reach,
                 const Tensor& g,
                 const Tensor& w,
                 const Tensor& w_read,
                 const Tensor& out) {
  TROUPE_CHECK(reach > 0, "[damp_by_gap] reach is ", reach, "; expected a positive number");
  check_tensor("damp_by_gap", "g", g, stream);
  check_tensor("damp_by_gap", "w", w, stream, g.shape());
  check_tensor("damp_by_gap", "w_read", w_read, stream, g.shape());
  check_tensor("damp_by_gap", "out", out, stream, g.shape());
  begin(stream, {&g, &w, &w_read, &out});
  TROUPE_DISPATCH(damp_by_gap, stream, reach, g, w, w_read, out);
}

void damp_by_own_steps(Stream& stream, const OwnStepArguments& a) {
  TROUPE_CHECK(a.scalars.rate > 0,
               "[damp_by_own_steps] rate is ",
               a.scalars.rate,
               "; expected a positive number");
  check_tensor("damp_by_own_steps", "g", a.g, stream);
  check_tensor("damp_by_own_steps", "w", a.w, stream, a.g.shape());
  check_tensor("damp_by_own_steps", "aim", a.aim, stream, a.g.shape());
  check_tensor("damp_by_own_steps", "w_read", a.w_read, stream, a.g.shape());
  check_tensor("damp_by_own_steps", "square", a.square, stream, a.g.shape());
  check_tensor("damp_by_own_steps", "out", a.out, stream, a.g.shape());
  begin(stream, {&a.g, &a.w, &a.aim, &a.w_read, &a.square, &a.out});
  TROUPE_DISPATCH(damp_by_own_steps, stream, a);
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

void divide_by_deviation(Stream& stream, const DeviationArguments& a) {
  check_tensor("divide_by_deviation", "g", a.g, stream);
  check_tensor("divide_by_deviation", "square", a.square, stream, a.g.shape());
  check_tensor("divide_by_deviation", "mean", a.mean, stream, a.g.shape());
  check_tensor("divide_by_deviation", "deviation", a.deviation, stream, a.g.shape());
  check_tensor("divide_by_deviation", "out", a.out, stream, a.g.shape());
  begin(stream, {&a.g, &a.square, &a.mean, &a.deviation, &a.out});
  TROUPE_DISPATCH(divide_by_deviation, stream, a);
}

}  // namespace troupe
