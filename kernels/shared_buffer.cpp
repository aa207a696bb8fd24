#include "kernels/shared_buffer.hpp"

#include "kernels/dispatch.hpp"
#include "kernels/wording.hpp"

#include <algorithm>
#include <new>

namespace troupe {
namespace {

constexpr std::int64_t kLine = 16;  // floats
constexpr std::align_val_t kAlign{64};

void check_vector(std::string_view op,
                  const SharedBuffer& buffer,
                  const Tensor& x,
                  Stream& stream) {
  TROUPE_CHECK(stream.device().kind == DeviceKind::cpu,
               fill_in("[{}] a shared buffer is host memory; the stream is on {}",
                       op,
                       to_string(stream.device())));
  check_tensor(op, "x", x, stream, Shape{buffer.elements()});
  begin(stream, {&x});
}

}  // namespace

SharedBuffer::SharedBuffer(std::int64_t elements, int writers)
    : elements_(elements), counters_(static_cast<std::size_t>(std::max(0, writers))) {
  TROUPE_CHECK(elements >= 1 && writers >= 1,
               fill_in("[SharedBuffer] {} elements, {} writers", elements, writers));
  const auto padded = static_cast<std::size_t>((elements + kLine - 1) / kLine * kLine);
  values_.reset(new (kAlign) float[padded]{});
}

void SharedBuffer::Free::operator()(float* values) const {
  ::operator delete[](values, kAlign);
}

std::uint64_t SharedBuffer::updates() const {
  std::uint64_t sum = 0;
  for (const Counter& counter : counters_) {
    sum += counter.updates.load(std::memory_order_relaxed);
  }
  return sum;
}

std::uint64_t shared_copy(Stream& stream, const SharedBuffer& from, const Tensor& to) {
  check_vector("shared_copy", from, to, stream);
  const std::uint64_t before = from.updates();
  TROUPE_CPU(shared_copy)(from, to.data<float>());
  return before;
}

void shared_store(Stream& stream, SharedBuffer& buffer, const Tensor& from) {
  check_vector("shared_store", buffer, from, stream);
  TROUPE_CPU(shared_store)(buffer, from.data<float>());
}

std::uint64_t shared_move(Stream& stream,
                          SharedBuffer& buffer,
                          int writer,
                          const Tensor& from,
                          const Tensor& to,
                          SharedAdd how) {
  check_vector("shared_move", buffer, from, stream);
  check_vector("shared_move", buffer, to, stream);
  TROUPE_CHECK(writer >= 0 && writer < buffer.writers(),
               fill_in("[shared_move] writer {} of {}", writer, buffer.writers()));
  const std::uint64_t before = buffer.updates();
  TROUPE_CPU(shared_move)(buffer, from.data<float>(), to.data<float>(), how);
  buffer.count(writer);
  return before;
}

}  // namespace troupe
