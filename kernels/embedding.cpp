#include "kernels/embedding.hpp"

#include "kernels/dispatch.hpp"
#include "kernels/wording.hpp"

namespace troupe {

namespace {

/// ids (B, T), table (V, C), positions (T_max >= T, C) or empty, y (B, T, C): values or gradients.
void check_embedding(std::string_view op,
                     const Stream& stream,
                     const Tensor& ids,
                     const Tensor& table,
                     const Tensor& positions,
                     const Tensor& y) {
  check_tensor(op, "ids", ids, stream, DType::int32);
  TROUPE_CHECK(ids.shape().dimensions() == 2, "[", op, "] ids is ", ids.shape(), ", not (B, T)");
  const std::int64_t times = ids.shape()[1];
  check_tensor(op, "table", table, stream);
  TROUPE_CHECK(
      table.shape().dimensions() == 2, "[", op, "] the table is ", table.shape(), ", not (V, C)");
  const std::int64_t channels = table.shape()[1];
  check_tensor(op, "y", y, stream, Shape{ids.shape()[0], times, channels});
  if (positions) {
    check_tensor(op, "positions", positions, stream);
    const Shape& shape = positions.shape();
    TROUPE_CHECK(
        shape.dimensions() == 2 && shape[0] >= times && shape[1] == channels,
        fill_in(
            "[{}] positions is {}, not (T_max, {}) with T_max >= {}", op, shape, channels, times));
  }
}

}  // namespace

void embedding_forward(Stream& stream,
                       const Tensor& ids,
                       const Tensor& table,
                       const Tensor& positions,
                       const Tensor& y,
                       std::int64_t first) {
  check_embedding("embedding_forward", stream, ids, table, positions, y);
  begin(stream, {&ids, &table, &positions, &y});
  TROUPE_DISPATCH(embedding_forward, stream, ids, table, positions, y, first);
}

void embedding_gradient(Stream& stream,
                        const Tensor& ids,
                        const Tensor& dy,
                        const Tensor& dtable,
                        const Tensor& dpositions,
                        bool accumulate,
                        std::int64_t first) {
  check_embedding("embedding_gradient", stream, ids, dtable, dpositions, dy);
  begin(stream, {&ids, &dy, &dtable, &dpositions});
  TROUPE_DISPATCH(embedding_gradient, stream, ids, dy, dtable, dpositions, accumulate, first);
}

}  // namespace troupe
