#include "kernels/shared_move.hpp"

#include "kernels/dispatch.hpp"

namespace troupe {

std::uint64_t shared_move(Stream& stream,
                          SharedBuffer& buffer,
                          int writer,
                          const Tensor& from,
                          const Tensor& to,
                          SharedAdd how) {
  TROUPE_CHECK(stream.device().kind == DeviceKind::cpu,
               "[shared_move] a shared buffer is host memory; the stream is on ",
               to_string(stream.device()));
  check_tensor("shared_move", "from", from, stream, Shape{buffer.elements()});
  check_tensor("shared_move", "to", to, stream, Shape{buffer.elements()});
  TROUPE_CHECK(writer >= 0 && writer < buffer.writers(),
               "[shared_move] writer ",
               writer,
               " of ",
               buffer.writers());
  begin(stream, {&from, &to});
  const std::uint64_t before = buffer.updates();
  cpu::shared_move(buffer, from.data<float>(), to.data<float>(), how);
  buffer.count(writer);
  return before;
}

}  // namespace troupe
