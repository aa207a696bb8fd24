// Token embedding: rows of a table, taken by their number, plus a row for each position.
#pragma once

#include "kernels/stream.hpp"

#include <cstdint>

namespace troupe {

inline constexpr std::int64_t kWholeTable = -1;

/// y[b, t] = table[ids[b, t]] + positions[t]. Shapes: ids (int32) (B, T), table (V, C), positions
/// (T_max >= T, C) or empty: none, y (B, T, C). An id outside [0, V) is a ContractError on the CPU
/// and makes its row of y NaN on a GPU.
///
/// With `first` at least 0 the table is a part of one, the rows from `first` on: y is 0 where the id is another part's, and
/// the gradient looks over such ids.
void embedding_forward(Stream& stream,
                       const Tensor& ids,
                       const Tensor& table,
                       const Tensor& positions,
                       const Tensor& y,
                       std::int64_t first = kWholeTable);

/// dtable[v] = or += the sum of dy[b, t] over all places with ids[b, t] == v; dpositions[t] = or +=
/// the sum of dy[b, t] over b. Rows that no place speaks of are zero where not accumulating. Added
/// up in the order of the places, on a GPU too. Shapes: dy (B, T, C), dtable (V, C), dpositions
/// (T_max, C) or empty: not wanted. An id outside [0, V) is a ContractError on the CPU and counts
/// for no row on a GPU.
void embedding_gradient(Stream& stream,
                        const Tensor& ids,
                        const Tensor& dy,
                        const Tensor& dtable,
                        const Tensor& dpositions,
                        bool accumulate,
                        std::int64_t first = kWholeTable);

// The backends: same signatures, arguments already checked.
TROUPE_BACKENDS(embedding_forward);
TROUPE_BACKENDS(embedding_gradient);

}  // namespace troupe
