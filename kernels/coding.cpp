#include "kernels/coding.hpp"

#include "kernels/dispatch.hpp"
#include "kernels/wording.hpp"

namespace troupe {
namespace {

constexpr std::int64_t kNumbersMax = 0x7fffffff;
constexpr std::int64_t kBlockMax = 65536;

std::int64_t ceil_div(std::int64_t n, std::int64_t by) {
  return (n + by - 1) / by;
}

/// The rows are all of n numbers.
void check_rows(std::string_view op, const MessageCode& code, std::int64_t n) {
  std::int64_t behind = 0;
  for (const MessageRows& rows : code.rows) {
    TROUPE_CHECK(
        rows.offset == behind && rows.size > 0 && rows.count > 0,
        fill_in("[{}] rows begin at {} where {} is right, or are empty", op, rows.offset, behind));
    behind += rows.size * rows.count;
  }
  TROUPE_CHECK(behind == n, "[", op, "] rows of ", behind, " numbers for ", n);
}

void check_code(std::string_view op,
                const MessageCode& code,
                const Stream& stream,
                const Tensor& x,
                const Tensor& message) {
  check_tensor(op, "the numbers", x, stream);
  const std::int64_t n = x.elements();
  TROUPE_CHECK(n <= kNumbersMax, "[", op, "] ", n, " numbers, whose places have 31 bits");
  if (code.kind == CodeKind::int8 || code.kind == CodeKind::int4) {
    TROUPE_CHECK(code.block > 0 && code.block % 8 == 0 && code.block <= kBlockMax,
                 fill_in("[{}] block {} is no multiple of 8 up to {}", op, code.block, kBlockMax));
  } else if (code.kind == CodeKind::signs) {
    check_rows(op, code, n);
  }
  check_tensor(op, "message", message, stream, Shape{code.words(n)}, DType::int32);
}

}  // namespace

std::int64_t MessageCode::row_count() const {
  std::int64_t all = 0;
  for (const MessageRows& each : rows) {
    all += each.count;
  }
  return all;
}

std::int64_t MessageCode::words(std::int64_t n) const {
  switch (kind) {
    case CodeKind::halves:
    case CodeKind::bfloats:
      return ceil_div(n, 2);
    case CodeKind::int8:
      return ceil_div(n, block) + ceil_div(n, 4);
    case CodeKind::int4:
      return ceil_div(n, block) + ceil_div(n, 8);
    case CodeKind::signs:
      return 2 * row_count() + ceil_div(n, 32);
  }
  return 0;
}

void add_left(Stream& stream,
              const Tensor& update,
              float scale,
              const Tensor& left,
              const Tensor& x,
              const Tensor& odd) {
  check_tensor("add_left", "update", update, stream);
  if (left) {
    check_tensor("add_left", "left", left, stream, update.shape());
  }
  check_tensor("add_left", "x", x, stream, update.shape());
  check_tensor("add_left", "odd", odd, stream, {1}, DType::int32);
  begin(stream, {&update, &left, &x, &odd});
  TROUPE_DISPATCH(add_left, stream, update, scale, left, x, odd);
}

void encode_message(Stream& stream,
                    const MessageCode& code,
                    const Tensor& x,
                    const Tensor& message) {
  check_code("encode_message", code, stream, x, message);
  begin(stream, {&x, &message});
  TROUPE_DISPATCH(encode_message, stream, code, x, message);
}

void decode_message(Stream& stream,
                    const MessageCode& code,
                    const Tensor& message,
                    const Tensor& out) {
  check_code("decode_message", code, stream, out, message);
  begin(stream, {&message, &out});
  TROUPE_DISPATCH(decode_message, stream, code, message, out);
}

void keep_left(Stream& stream,
               const MessageCode& code,
               const Tensor& message,
               const Tensor& x,
               const Tensor& odd,
               const Tensor& left) {
  check_code("keep_left", code, stream, x, message);
  check_tensor("keep_left", "odd", odd, stream, {1}, DType::int32);
  check_tensor("keep_left", "left", left, stream, x.shape());
  begin(stream, {&message, &x, &odd, &left});
  TROUPE_DISPATCH(keep_left, stream, code, message, x, odd, left);
}

}  // namespace troupe
