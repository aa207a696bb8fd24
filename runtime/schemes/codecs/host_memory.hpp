// Tensors of codecs, which work in host memory. Private to runtime/schemes.
#pragma once

#include "kernels/stream.hpp"
#include "messages/update.hpp"

#include <algorithm>
#include <cstdint>

namespace troupe {

inline Tensor host_tensor(std::int64_t n, DType type) {
  thread_local Stream host{Device{}};
  return host.allocate({n}, type);
}

/// x where it is on the host, else its copy there.
inline Tensor on_host(Stream& stream, const Tensor& x) {
  if (x.device().kind == DeviceKind::cpu) {
    return x;
  }
  Tensor copied = host_tensor(x.elements(), x.type());
  copy(stream, x, copied);
  return copied;
}

/// x, which is on the host, where the stream's device is another: its copy there.
inline Tensor on_device(Stream& stream, const Tensor& x) {
  if (stream.device().kind == DeviceKind::cpu) {
    return x;
  }
  Tensor there = stream.allocate(x.shape());
  copy(stream, x, there);
  return there;
}

inline Tensor zeros_on_host(std::int64_t n) {
  Tensor made = host_tensor(n, DType::float32);
  std::fill_n(made.data<float>(), n, 0.0f);
  return made;
}

/// A link's memory before its first message: what was left out, empty without feedback, and `kept` numbers of
/// the codec's own.
inline void begin_link(LinkState& state, std::int64_t n, std::int64_t kept, bool feedback) {
  if (state.tensors.empty()) {
    state.tensors.resize(2);
    state.tensors[0] = feedback ? zeros_on_host(n) : Tensor{};
    state.tensors[1] = kept > 0 ? zeros_on_host(kept) : Tensor{};
  }
}

}  // namespace troupe
