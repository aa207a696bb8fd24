#include "kernels/experts.hpp"

#include "kernels/dispatch.hpp"
#include "kernels/wording.hpp"

#include <cstdint>
#include <limits>

namespace troupe {

namespace {

/// (rows, columns); -1: any number of them.
void check_extents(std::string_view op,
                   std::string_view name,
                   const Tensor& x,
                   std::int64_t rows,
                   std::int64_t columns) {
  const Shape& s = x.shape();
  TROUPE_CHECK(
      s.dimensions() == 2 && (rows < 0 || s[0] == rows) && (columns < 0 || s[1] == columns),
      fill_in("[{}] {} is {}, not ({}, {})",
              op,
              name,
              s,
              rows < 0 ? "rows" : std::to_string(rows),
              columns < 0 ? "columns" : std::to_string(columns)));
}

void check_choices(std::string_view op,
                   std::string_view name,
                   const Tensor& x,
                   const Stream& stream,
                   std::int64_t rows) {
  check_tensor(op, name, x, stream, DType::int32);
  check_extents(op, name, x, rows, -1);
  TROUPE_CHECK(x.shape()[1] >= 1 && x.elements() <= std::numeric_limits<std::int32_t>::max(),
               fill_in("[{}] {} is {}: choices are numbered to 2^31", op, name, x.shape()));
}

}  // namespace

void choose_experts(Stream& stream,
                    const Tensor& logits,
                    const Tensor& shares,
                    const Tensor& choices,
                    const Tensor& gates) {
  const char* const op = "choose_experts";
  check_tensor(op, "logits", logits, stream);
  check_extents(op, "logits", logits, -1, -1);
  check_tensor(op, "shares", shares, stream, logits.shape());
  check_choices(op, "choices", choices, stream, logits.shape()[0]);
  check_tensor(op, "gates", gates, stream, choices.shape());
  TROUPE_CHECK(
      choices.shape()[1] <= logits.shape()[1],
      fill_in("[{}] {} of {} experts are chosen", op, choices.shape()[1], logits.shape()[1]));
  if (logits.elements() == 0) {
    return;
  }
  begin(stream, {&logits, &shares, &choices, &gates});
  TROUPE_DISPATCH(choose_experts, stream, logits, shares, choices, gates);
}

void choose_experts_gradient(Stream& stream, const ExpertChoices& c) {
  const char* const op = "choose_experts_gradient";
  check_tensor(op, "shares", c.shares, stream);
  check_extents(op, "shares", c.shares, -1, -1);
  check_choices(op, "choices", c.choices, stream, c.shares.shape()[0]);
  check_tensor(op, "gates", c.gates, stream, c.choices.shape());
  check_tensor(op, "by_gates", c.by_gates, stream, c.choices.shape());
  check_tensor(op, "firsts", c.firsts, stream, Shape{c.shares.shape()[1]}, DType::int32);
  check_tensor(op, "by_logits", c.by_logits, stream, c.shares.shape());
  if (c.shares.elements() == 0) {
    return;
  }
  begin(stream, {&c.shares, &c.choices, &c.gates, &c.by_gates, &c.firsts, &c.by_logits});
  TROUPE_DISPATCH(choose_experts_gradient, stream, c);
}

void seat_choices(Stream& stream, const ExpertSeats& s) {
  const char* const op = "seat_choices";
  check_choices(op, "choices", s.choices, stream, -1);
  check_tensor(op, "seats", s.seats, stream, s.choices.shape(), DType::int32);
  check_tensor(op, "begins", s.begins, stream, Shape{s.count + 1}, DType::int32);
  check_tensor(op, "firsts", s.firsts, stream, Shape{s.experts}, DType::int32);
  TROUPE_CHECK(s.first >= 0 && s.count >= 0 && s.first + s.count <= s.experts && s.room >= 0 &&
                   s.multiple >= 1,
               fill_in("[{}] {} experts from {} on, of {}, with room {} and multiples of {}",
                       op,
                       s.count,
                       s.first,
                       s.experts,
                       s.room,
                       s.multiple));
  const std::int64_t each = s.room + s.multiple;
  TROUPE_CHECK(each <= std::numeric_limits<std::int32_t>::max() / (s.count + 1),
               fill_in("[{}] seats are numbered to 2^31: {} experts of {}", op, s.count, s.room));
  begin(stream, {&s.choices, &s.seats, &s.begins, &s.firsts});
  TROUPE_DISPATCH(seat_choices, stream, s);
}

void gather_rows(
    Stream& stream, const Tensor& x, const Tensor& seats, const Tensor& taken, const Tensor& rows) {
  const char* const op = "gather_rows";
  check_operand(op, "x", x, stream);
  check_extents(op, "x", x, -1, -1);
  check_choices(op, "seats", seats, stream, x.shape()[0]);
  check_tensor(op, "rows", rows, stream, x.type());
  check_extents(op, "rows", rows, -1, x.shape()[1]);
  check_tensor(op, "taken", taken, stream, Shape{rows.shape()[0]}, DType::int32);
  if (rows.shape()[0] == 0) {
    return;
  }
  begin(stream, {&x, &seats, &taken, &rows});
  TROUPE_DISPATCH(gather_rows, stream, x, seats, taken, rows);
}

void add_rows(
    Stream& stream, const Tensor& rows, const Tensor& seats, const Tensor& gates, const Tensor& y) {
  const char* const op = "add_rows";
  check_operand(op, "y", y, stream);
  check_extents(op, "y", y, -1, -1);
  check_tensor(op, "rows", rows, stream, y.type());
  check_extents(op, "rows", rows, -1, y.shape()[1]);
  check_choices(op, "seats", seats, stream, y.shape()[0]);
  if (gates) {
    check_tensor(op, "gates", gates, stream, seats.shape());
  }
  if (y.elements() == 0) {
    return;
  }
  begin(stream, {&rows, &seats, &gates, &y});
  TROUPE_DISPATCH(add_rows, stream, rows, seats, gates, y);
}

void add_rows_gradient(Stream& stream,
                       const Tensor& dy,
                       const Tensor& seats,
                       const Tensor& gates,
                       const Tensor& rows,
                       const Tensor& by_gates) {
  const char* const op = "add_rows_gradient";
  check_operand(op, "dy", dy, stream);
  check_extents(op, "dy", dy, -1, -1);
  check_operand(op, "rows", rows, stream);
  check_extents(op, "rows", rows, -1, dy.shape()[1]);
  check_choices(op, "seats", seats, stream, dy.shape()[0]);
  check_tensor(op, "gates", gates, stream, seats.shape());
  check_tensor(op, "by_gates", by_gates, stream, seats.shape());
  if (seats.elements() == 0) {
    return;
  }
  begin(stream, {&dy, &seats, &gates, &rows, &by_gates});
  TROUPE_DISPATCH(add_rows_gradient, stream, dy, seats, gates, rows, by_gates);
}

}  // namespace troupe
