#include "kernels/lstm.hpp"

#include "kernels/dispatch.hpp"
#include "kernels/elementwise.hpp"
#include "kernels/matmul.hpp"
#include "kernels/wording.hpp"

namespace troupe {

namespace {

struct Sizes {
  std::int64_t B;
  std::int64_t T;
  std::int64_t I;  // inputs
  std::int64_t H;  // cells

  std::int64_t steps() const { return T * B; }

  /// Steps [first, first + count) of a (T, B, width) tensor, as a matrix.
  Tensor rows(const Tensor& x, std::int64_t first, std::int64_t count) const {
    const std::int64_t width = x.shape()[2];
    return x.view(first * B * width, {count * B, width});
  }

  /// Step t of a (T, B, width) tensor.
  Tensor at(const Tensor& x, std::int64_t t) const { return rows(x, t, 1); }
};

void check_extents(std::string_view op, const Shape& steps, const Shape& w_input) {
  TROUPE_CHECK(steps.dimensions() == 3 && steps.elements() > 0 && w_input.dimensions() == 2 &&
                   w_input.elements() > 0 && w_input[0] % 4 == 0,
               fill_in("[{}] a sequence is {}, not (., ., .), or the weights of the input are {}, "
                       "not (4H, I), with all >= 1",
                       op,
                       steps,
                       w_input));
}

void swap_into(Stream& stream, const Tensor& x, const Tensor& y) {
  begin(stream, {&x, &y});
  TROUPE_DISPATCH(swap_leading, stream, x, y);
}

void check_state(std::string_view op, const LstmState& state, Stream& stream, const Sizes& s) {
  TROUPE_CHECK(!state.hidden == !state.cell, "[", op, "] a state is h and c, or neither");
  if (state.hidden) {
    check_tensor(op, "h", state.hidden, stream, Shape{s.B, s.H});
    check_tensor(op, "c", state.cell, stream, Shape{s.B, s.H});
  }
}

}  // namespace

Tensor with_leading_swapped(Stream& stream, const Tensor& x) {
  TROUPE_CHECK(
      x.shape().dimensions() == 3, "[with_leading_swapped] ", x.shape(), " is not (M, N, C)");
  const Tensor y = stream.allocate({x.shape()[1], x.shape()[0], x.shape()[2]});
  swap_into(stream, x, y);
  return y;
}

void lstm_forward(Stream& stream, const LstmForward& a) {
  constexpr std::string_view kOp = "lstm_forward";
  check_tensor(kOp, "x", a.x, stream);
  check_tensor(kOp, "w_input", a.w_input, stream);
  check_extents(kOp, a.x.shape(), a.w_input.shape());
  const Sizes s{a.x.shape()[0], a.x.shape()[1], a.x.shape()[2], a.w_input.shape()[0] / 4};
  check_tensor(kOp, "w_input", a.w_input, stream, Shape{4 * s.H, s.I});
  check_tensor(kOp, "w_hidden", a.w_hidden, stream, Shape{4 * s.H, s.H});
  check_tensor(kOp, "bias", a.bias, stream, Shape{4 * s.H});
  check_tensor(kOp, "y", a.y, stream, Shape{s.B, s.T, s.H});
  check_tensor(kOp, "gates", a.gates, stream, Shape{s.T, s.B, 4 * s.H});
  check_tensor(kOp, "cells", a.cells, stream, Shape{s.T, s.B, s.H});
  check_state(kOp, a.before, stream, s);
  check_state(kOp, a.after, stream, s);

  const RepeatedFactor recurrent(stream, a.w_hidden, true);
  const Tensor hidden = stream.allocate({s.T, s.B, s.H});
  matmul(stream,
         s.rows(with_leading_swapped(stream, a.x), 0, s.T),
         a.w_input,
         s.rows(a.gates, 0, s.T),
         {.transpose_b = true, .bias = a.bias});
  for (std::int64_t t = 0; t < s.T; ++t) {
    const Tensor gates_t = s.at(a.gates, t);
    const Tensor hidden_before = t > 0 ? s.at(hidden, t - 1) : a.before.hidden;
    if (hidden_before) {
      recurrent.multiply(stream, hidden_before, gates_t, true);
    }
    const Tensor cell_before = t > 0 ? s.at(a.cells, t - 1) : a.before.cell;
    const Tensor cell = s.at(a.cells, t);
    const Tensor hidden_t = s.at(hidden, t);
    begin(stream, {&gates_t, &cell_before, &cell, &hidden_t});
    TROUPE_DISPATCH(lstm_cell_forward, stream, gates_t, cell_before, cell, hidden_t);
  }
  swap_into(stream, hidden, a.y);
  if (a.after.hidden) {
    copy(stream, s.at(hidden, s.T - 1), a.after.hidden);
    copy(stream, s.at(a.cells, s.T - 1), a.after.cell);
  }
}

void lstm_input_gradient(Stream& stream, const LstmInputGradient& a) {
  constexpr std::string_view kOp = "lstm_input_gradient";
  check_tensor(kOp, "w_input", a.w_input, stream);
  check_tensor(kOp, "dy", a.dy, stream);
  check_extents(kOp, a.dy.shape(), a.w_input.shape());
  const Sizes s{a.dy.shape()[0], a.dy.shape()[1], a.w_input.shape()[1], a.dy.shape()[2]};
  check_tensor(kOp, "w_input", a.w_input, stream, Shape{4 * s.H, s.I});
  check_tensor(kOp, "w_hidden", a.w_hidden, stream, Shape{4 * s.H, s.H});
  check_tensor(kOp, "gates", a.gates, stream, Shape{s.T, s.B, 4 * s.H});
  check_tensor(kOp, "cells", a.cells, stream, Shape{s.T, s.B, s.H});
  check_tensor(kOp, "dgates", a.dgates, stream, Shape{s.T, s.B, 4 * s.H});
  if (a.dx) {
    check_tensor(kOp, "dx", a.dx, stream, Shape{s.B, s.T, s.I});
  }
  for (const LstmState* state : {&a.outside.before, &a.outside.dafter, &a.outside.dbefore}) {
    check_state(kOp, *state, stream, s);
  }

  const RepeatedFactor recurrent(stream, a.w_hidden, false);
  const Tensor dhidden =
      with_leading_swapped(stream, a.dy);  // (T, B, H); later steps add their share
  const Tensor dcell = stream.allocate({s.B, s.H});
  fill(stream, dcell, 0);
  if (a.outside.dafter.hidden) {
    const Tensor last = s.at(dhidden, s.T - 1);
    add(stream, last, a.outside.dafter.hidden, ActivationKind::none, last);
    copy(stream, a.outside.dafter.cell, dcell);
  }
  for (std::int64_t t = s.T - 1; t >= 0; --t) {
    const Tensor dhidden_t = s.at(dhidden, t);
    if (t + 1 < s.T) {
      recurrent.multiply(stream, s.at(a.dgates, t + 1), dhidden_t, true);
    }
    const Tensor gates_t = s.at(a.gates, t);
    const Tensor cell = s.at(a.cells, t);
    const Tensor cell_before = t > 0 ? s.at(a.cells, t - 1) : a.outside.before.cell;
    const Tensor dgates_t = s.at(a.dgates, t);
    begin(stream, {&gates_t, &cell, &cell_before, &dhidden_t, &dcell, &dgates_t});
    const LstmCellGradients step{.gates = gates_t,
                                 .cell = cell,
                                 .cell_before = cell_before,
                                 .dhidden = dhidden_t,
                                 .dcell = dcell,
                                 .dgates = dgates_t};
    TROUPE_DISPATCH(lstm_cell_backward, stream, step);
  }
  if (a.outside.dbefore.hidden) {
    recurrent.multiply(stream, s.at(a.dgates, 0), a.outside.dbefore.hidden, false);
    copy(stream, dcell, a.outside.dbefore.cell);
  }
  if (a.dx) {
    const Tensor dx_by_time = stream.allocate({s.T, s.B, s.I});
    matmul(stream, s.rows(a.dgates, 0, s.T), a.w_input, s.rows(dx_by_time, 0, s.T));
    swap_into(stream, dx_by_time, a.dx);
  }
}

void lstm_weight_gradient(Stream& stream, const LstmWeightGradient& a) {
  constexpr std::string_view kOp = "lstm_weight_gradient";
  check_tensor(kOp, "x", a.x, stream);
  check_tensor(kOp, "dw_input", a.dw_input, stream);
  check_extents(kOp, a.x.shape(), a.dw_input.shape());
  const Sizes s{a.x.shape()[0], a.x.shape()[1], a.x.shape()[2], a.dw_input.shape()[0] / 4};
  check_tensor(kOp, "y", a.y, stream, Shape{s.B, s.T, s.H});
  check_tensor(kOp, "dgates", a.dgates, stream, Shape{s.T, s.B, 4 * s.H});
  check_tensor(kOp, "dw_input", a.dw_input, stream, Shape{4 * s.H, s.I});
  check_tensor(kOp, "dw_hidden", a.dw_hidden, stream, Shape{4 * s.H, s.H});
  check_tensor(kOp, "dbias", a.dbias, stream, Shape{4 * s.H});
  if (a.hidden_before) {
    check_tensor(kOp, "hidden_before", a.hidden_before, stream, Shape{s.B, s.H});
  }

  const MatmulOptions options{.transpose_a = true, .accumulate = a.accumulate};
  const Tensor all = s.rows(a.dgates, 0, s.T);  // (T B, 4H)
  matmul(stream, all, s.rows(with_leading_swapped(stream, a.x), 0, s.T), a.dw_input, options);
  column_sum(stream, all, a.dbias, a.accumulate);
  bool onto = a.accumulate;
  if (a.hidden_before) {
    matmul(stream, s.at(a.dgates, 0), a.hidden_before, a.dw_hidden, options);
    onto = true;
  }
  if (s.T > 1) {
    const Tensor hidden = with_leading_swapped(stream, a.y);  // (T, B, H)
    matmul(stream,
           s.rows(a.dgates, 1, s.T - 1),
           s.rows(hidden, 0, s.T - 1),
           a.dw_hidden,
           {.transpose_a = true, .accumulate = onto});
  } else if (!onto) {
    fill(stream, a.dw_hidden, 0);
  }
}

}  // namespace troupe
