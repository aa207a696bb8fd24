#include "kernels/stream.hpp"

#include "kernels/copy_time.hpp"
#include "kernels/cpu/backend.hpp"
#include "kernels/cuda/backend.hpp"
#include "kernels/dispatch.hpp"
#include "kernels/wording.hpp"

#include <algorithm>
#include <cstring>
#include <type_traits>

namespace troupe {

Stream::Stream(Device device, Precision precision) : device_(device), precision_(precision) {
  if (device.kind == DeviceKind::cpu) {
    cpu_ = std::make_unique<cpu::Backend>();
  } else {
    cuda_ = std::make_unique<cuda::Backend>(device.index, precision);
  }
  const Result<void> able = check_precision(device, precision);
  TROUPE_CHECK(able, "[Stream] ", able.error().message);
}

Stream::~Stream() = default;

Tensor Stream::allocate(Shape shape, DType type) {
  const auto bytes = static_cast<std::size_t>(shape.elements()) * size_bytes(type);
  Tensor tensor(BufferPool::of(device_).acquire(bytes, *this), shape, type);
#ifdef __SANITIZE_ADDRESS__
  // Recycled memory hides a read of what was never written: here it is NaN.
  if (device_.kind == DeviceKind::cpu) {
    std::memset(tensor.buffer()->data(), 0xff, bytes);
  }
#endif
  return tensor;
}

Event Stream::record() {
  return cuda_ ? cuda_->record() : Event();
}

void Stream::wait(const Event& event) {
  if (cuda_) {
    cuda_->wait(event);
  } else {
    event.wait();
  }
}

void Stream::synchronize() {
  if (cuda_) {
    cuda_->synchronize();
  }
}

void copy(Stream& stream, const Tensor& src, const Tensor& dst) {
  TROUPE_CHECK(src && dst, "[copy] ", src ? "dst" : "src", " is empty");
  TROUPE_CHECK(src.shape() == dst.shape(), "[copy] src is ", src.shape(), ", dst is ", dst.shape());
  TROUPE_CHECK(
      src.type() == dst.type(),
      fill_in("[copy] src is {}, dst is {}", to_string(src.type()), to_string(dst.type())));
  TROUPE_CHECK(stream.device() == src.device() || stream.device() == dst.device(),
               fill_in("[copy] the stream is on {}, src on {}, dst on {}",
                       to_string(stream.device()),
                       to_string(src.device()),
                       to_string(dst.device())));
  begin(stream, {&src, &dst});
  const CopyTimed timed;
  if (src.device().kind == DeviceKind::cpu && dst.device().kind == DeviceKind::cpu) {
    cpu::copy(stream, src, dst);
  } else {
    cuda::copy(stream, src, dst);
  }
}

void fill(Stream& stream, const Tensor& x, double value) {
  check_tensor(
      "fill", "x", x, stream, x && x.type() == DType::float64 ? DType::float64 : DType::float32);
  begin(stream, {&x});
  TROUPE_DISPATCH(fill, stream, x, value);
}

void scale(Stream& stream, const Tensor& x, float factor) {
  check_tensor("scale", "x", x, stream);
  begin(stream, {&x});
  TROUPE_DISPATCH(scale, stream, x, factor);
}

namespace {

template <class T>
Tensor upload(Stream& stream, std::span<const T> values, Shape shape) {
  TROUPE_CHECK(static_cast<std::int64_t>(values.size()) == shape.elements(),
               fill_in("[from_host] {} values for {}", values.size(), shape));
  Tensor x = stream.allocate(shape, dtype_of<T>());
  begin(stream, {&x});
  if (values.empty()) {
    return x;
  }
  const CopyTimed timed;
  if (stream.device().kind == DeviceKind::cpu) {
    std::memcpy(x.data<T>(), values.data(), values.size_bytes());
  } else {
    cuda::upload(stream.cuda(), values.data(), x, values.size_bytes());
  }
  return x;
}

template <class T>
std::vector<double> download(const Tensor& x) {
  std::vector<T> values(static_cast<std::size_t>(x.elements()));
  if (!values.empty()) {
    x.ready().wait();  // for kernels, which is no part of the copy
    const CopyTimed timed;
    if (x.device().kind == DeviceKind::cpu) {
      std::memcpy(values.data(), x.data<T>(), values.size() * sizeof(T));
    } else {
      cuda::download(x, values.data(), values.size() * sizeof(T));
    }
  }
  if constexpr (std::is_same_v<T, BFloat16>) {
    std::vector<double> wide(values.size());
    std::transform(
        values.begin(), values.end(), wide.begin(), [](BFloat16 value) { return to_float(value); });
    return wide;
  } else {
    return {values.begin(), values.end()};
  }
}

}  // namespace

Tensor from_host(Stream& stream, std::span<const float> values, Shape shape) {
  return upload(stream, values, shape);
}

Tensor from_host(Stream& stream, std::span<const std::int32_t> values, Shape shape) {
  return upload(stream, values, shape);
}

std::vector<double> to_host(const Tensor& x) {
  TROUPE_CHECK(static_cast<bool>(x), "[to_host] x is empty");
  switch (x.type()) {
    case DType::float32:
      return download<float>(x);
    case DType::int32:
      return download<std::int32_t>(x);
    case DType::float64:
      return download<double>(x);
    case DType::bfloat16:
      return download<BFloat16>(x);
  }
  return {};
}

}  // namespace troupe
