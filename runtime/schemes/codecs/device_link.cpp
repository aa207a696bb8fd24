#include "runtime/schemes/codecs/device_link.hpp"

#include "kernels/wording.hpp"
#include "runtime/schemes/codecs/host_memory.hpp"

namespace troupe {
namespace {

/// x, or its copy where it is on another device.
Tensor here(Stream& stream, const Tensor& x) {
  if (x.device() == stream.device()) {
    return x;
  }
  Tensor copied = stream.allocate(x.shape(), x.type());
  copy(stream, x, copied);
  return copied;
}

/// A link's memory where its kernels run: zeros before the first message, and it may have been on the
/// host when a checkpoint was written.
void begin_on_device(Stream& stream, std::int64_t n, bool feedback, LinkState& state) {
  if (state.tensors.empty()) {
    state.tensors.resize(2);
    if (feedback) {
      state.tensors[0] = stream.allocate({n});
      fill(stream, state.tensors[0], 0);
    }
  } else if (feedback) {
    state.tensors[0] = here(stream, state.tensors[0]);
  }
}

}  // namespace

Tensor encode_on_device(const MessageCode& code,
                        bool feedback,
                        Stream& stream,
                        const Tensor& update,
                        double scale,
                        LinkState& state) {
  const std::int64_t n = update.elements();
  begin_on_device(stream, n, feedback, state);
  const Tensor left = feedback ? state.tensors[0] : Tensor{};
  const std::int64_t words = code.words(n);
  // The message, and behind it whether it is none: one copy brings both.
  const Tensor made = stream.allocate({words + 1}, DType::int32);
  const Tensor message = made.view(0, {words});
  const Tensor odd = made.view(words, {1});
  const Tensor x = stream.allocate({n});
  add_left(stream, here(stream, update), static_cast<float>(scale), left, x, odd);
  encode_message(stream, code, x, message);
  if (feedback) {
    keep_left(stream, code, message, x, odd, left);
  }
  const Tensor copied = host_tensor(words + 1, DType::int32);
  copy(stream, made, copied);
  if (copied.data<std::int32_t>()[words] != 0) {
    const Tensor none = host_tensor(1, DType::int32);
    *none.data<std::int32_t>() = static_cast<std::int32_t>(kNotFinite);
    return none;
  }
  ++state.messages;
  return copied.view(0, {words});
}

Tensor decoded_on_device(const MessageCode& code,
                         Stream& stream,
                         const Tensor& message,
                         std::int64_t n) {
  TROUPE_CHECK(message.elements() == code.words(n),
               fill_in("a message was not checked: it has {} words where {} are right",
                       message.elements(),
                       code.words(n)));
  Tensor out = stream.allocate({n});
  decode_message(stream, code, here(stream, message), out);
  return out;
}

}  // namespace troupe
