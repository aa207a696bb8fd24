// A mixture of experts: which rows of x go to which expert, how they come there, and how what the experts make comes back.
//
// Each of R rows chooses k of E experts. A choice has the number r k + j, of row r's jth one. The experts' rows stand one expert after
// the other in matrices of N rows; a choice that got one of them has a seat, which is the row's number. Every sum has an order that
// depends on shapes and choices alone, on a GPU too, so that a repetition gives the same bits.
#pragma once

#include "kernels/stream.hpp"

#include <cstdint>

namespace troupe {

/// choices[r] = the experts of the k largest logits[r], the largest first, and of equal ones the lower number; a NaN counts as the
/// lowest. shares[r] = the softmax of logits[r]. gates[r] = the shares of the chosen ones, where k > 1 over their sum. Shapes:
/// logits, shares (R, E), which may be one, choices (int32), gates (R, k), 1 <= k <= E.
void choose_experts(Stream& stream,
                    const Tensor& logits,
                    const Tensor& shares,
                    const Tensor& choices,
                    const Tensor& gates);

struct ExpertChoices {
  const Tensor& shares;    // (R, E)
  const Tensor& choices;   // (R, k), int32
  const Tensor& gates;     // (R, k)
  const Tensor& by_gates;  // (R, k): the gradient
  const Tensor& firsts;    // (E), int32: how many rows have chosen each expert first
  /// Factor of the loss E sum_e (firsts[e] / R) (mean of shares[., e]), whose gradient is added (Fedus et al. 2022, arXiv:2101.03961,
  /// equation 4).
  double balance = 0;
  const Tensor& by_logits;  // (R, E), written; no other of these
};

/// The gradient by the logits.
void choose_experts_gradient(Stream& stream, const ExpertChoices& choices);

struct ExpertSeats {
  std::int64_t experts = 1;  // E
  std::int64_t first = 0;    // the experts that have rows here: `count` from `first` on
  std::int64_t count = 1;
  std::int64_t room = 0;  // no expert has more seats that are taken
  /// Whether each has `room` rows, so that nobody needs to know how many are taken; else it has as many as are taken.
  bool whole_rooms = false;
  std::int64_t multiple = 1;  // either is rounded up to one of it
  const Tensor& choices;      // (R, k), int32, in [0, E)
  const Tensor& seats;        // (R, k), int32, written: -1 of who has none
  const Tensor&
      begins;  // (count + 1), int32, written: where each expert's rows begin, and behind the last the end
  const Tensor& firsts;  // (E), int32, written: how many rows have chosen each expert first
};

/// Gives seats: all rows' first choices before their second ones, and earlier rows before later ones.
void seat_choices(Stream& stream, const ExpertSeats& seats);

/// rows[n] = the row of x whose choice sits there; else zeros. Shapes: x (R, C), seats (R, k), int32, rows (N, C), taken (N), int32,
/// written: the number of the choice, or -1. x and rows are of one type, float32 or the stream's operand_type().
void gather_rows(
    Stream& stream, const Tensor& x, const Tensor& seats, const Tensor& taken, const Tensor& rows);

/// y[r] = the sum over row r's choices j that have a seat of gates[r, j] rows[seat], in float32, in their order. Shapes: rows (N, C),
/// seats (R, k), int32, gates (R, k) or empty: ones, y (R, C). y and rows are of one type, float32 or the stream's operand_type().
void add_rows(
    Stream& stream, const Tensor& rows, const Tensor& seats, const Tensor& gates, const Tensor& y);

/// Of add_rows with gates: `rows` becomes the gradient by itself where somebody sits, and stays as it is elsewhere. by_gates (R, k) =
/// the gradient by the gates, 0 of those without a seat. dy (R, C) is float32 or the stream's operand_type(), whatever rows is.
void add_rows_gradient(Stream& stream,
                       const Tensor& dy,
                       const Tensor& seats,
                       const Tensor& gates,
                       const Tensor& rows,
                       const Tensor& by_gates);

// The backends: same signatures, arguments already checked.
TROUPE_BACKENDS(choose_experts);
TROUPE_BACKENDS(choose_experts_gradient);
TROUPE_BACKENDS(seat_choices);
TROUPE_BACKENDS(gather_rows);
TROUPE_BACKENDS(add_rows);
TROUPE_BACKENDS(add_rows_gradient);

}  // namespace troupe
