#include "kernels/shared_buffer.hpp"

#include "kernels/dispatch.hpp"
#include "kernels/wording.hpp"

#include <algorithm>
#include <new>

namespace troupe {
namespace {

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
    : elements_(elements),
      blocks_(
          static_cast<std::size_t>((std::max<std::int64_t>(0, elements) + kBlock - 1) / kBlock)),
      counters_(static_cast<std::size_t>(std::max(0, writers))) {
  TROUPE_CHECK(elements >= 1 && writers >= 1,
               fill_in("[SharedBuffer] {} elements, {} writers", elements, writers));
  values_.reset(new (kAlign) float[static_cast<std::size_t>(elements)]{});
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
  from.by_block([&](std::int64_t first, std::int64_t n, auto&) {
    std::copy_n(from.data() + first, n, to.data<float>() + first);
  });
  return before;
}

void shared_store(Stream& stream, SharedBuffer& buffer, const Tensor& from) {
  check_vector("shared_store", buffer, from, stream);
  buffer.by_block([&](std::int64_t first, std::int64_t n, auto&) {
    std::copy_n(from.data<float>() + first, n, buffer.data() + first);
  });
}

std::uint64_t shared_move(Stream& stream,
                          SharedBuffer& buffer,
                          int writer,
                          const Tensor& from,
                          const Tensor& to,
                          const Tensor& now,
                          SharedAdd how) {
  for (const Tensor* x : {&from, &to, &now}) {
    check_vector("shared_move", buffer, *x, stream);
  }
  TROUPE_CHECK(writer >= 0 && writer < buffer.writers(),
               fill_in("[shared_move] writer {} of {}", writer, buffer.writers()));
  const std::uint64_t before = buffer.updates();
  buffer.by_block([&](std::int64_t first, std::int64_t n, std::unique_lock<std::mutex>& lock) {
    float* const values = buffer.data() + first;
    float* const made = now.data<float>() + first;
    TROUPE_CPU(shared_move)(values, from.data<float>() + first, to.data<float>() + first, made, n);
    if (how == SharedAdd::racy) {
      lock.unlock();
      lock.lock();  // who has come between is written over
    }
    std::copy_n(made, n, values);
  });
  buffer.count(writer);
  return before;
}

}  // namespace troupe
