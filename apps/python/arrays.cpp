#include "apps/python/arrays.hpp"

#include "kernels/foreign.hpp"
#include "kernels/wording.hpp"

#include <bit>
#include <cstring>
#include <mutex>
#include <random>
#include <unordered_map>

namespace troupe::python {
namespace {

constexpr std::uintptr_t kAlignment = 64;

struct alignas(kAlignment) Slot {
  std::uint64_t id = 0;
  const void* mark = nullptr;
};

struct Tokens {
  std::mutex mutex;
  std::unordered_map<std::uint64_t, PyObject*> alive;
  // A copy in a checkpoint of another process names none of ours.
  std::uint64_t next = (std::uint64_t{std::random_device{}()} << 32) + 1;
};

Tokens& tokens() {
  static auto* const one = new Tokens;
  return *one;
}

}  // namespace

namespace {

/// `Kind`: what the array is to nanobind.
template <class Kind>
nb::object shared_array(const Tensor& tensor, int device_type) {
  auto* const held = new Tensor(tensor);
  const nb::capsule owner(held, [](void* p) noexcept { delete static_cast<Tensor*>(p); });
  std::size_t shape[Shape::kDimensionsMax];
  const auto dimensions = static_cast<std::size_t>(tensor.shape().dimensions());
  for (std::size_t i = 0; i < dimensions; ++i) {
    shape[i] = static_cast<std::size_t>(tensor.shape()[static_cast<int>(i)]);
  }
  const bool tokens = tensor.type() == DType::int32;
  void* const data = tokens ? static_cast<void*>(tensor.data<std::int32_t>())
                            : static_cast<void*>(tensor.data<float>());
  return nb::cast(nb::ndarray<Kind>(data,
                                    dimensions,
                                    shape,
                                    owner,
                                    nullptr,
                                    tokens ? nb::dtype<std::int32_t>() : nb::dtype<float>(),
                                    device_type,
                                    tensor.device().index));
}

/// Contiguous, in the memory of `Where`, where `place` says that for people.
template <class Where>
nb::ndarray<nb::c_contig, Where> given_array(nb::handle array,
                                             const std::string& what,
                                             const char* place) {
  nb::ndarray<nb::c_contig, Where> given;
  if (!nb::try_cast(array, given, false)) {  // a converted copy would have no owner
    throw PythonFailed(concat(what, " is no contiguous array or tensor in ", place, " memory"));
  }
  return given;
}

template <class Given>
std::pair<Shape, DType> form_of(const Given& given, const std::string& what) {
  const bool numbers = given.dtype() == nb::dtype<float>();
  if (!numbers && given.dtype() != nb::dtype<std::int32_t>()) {
    throw PythonFailed(what + " is neither of float32 nor of int32");
  }
  Shape shape;
  for (std::size_t i = 0; i < given.ndim(); ++i) {
    shape.push_back(static_cast<std::int64_t>(given.shape(i)));
  }
  return {shape, numbers ? DType::float32 : DType::int32};
}

}  // namespace

nb::object array_of(const Tensor& tensor) {
  if (tensor.device() != Device{}) {
    throw PythonFailed("what is written in Python is for CPUs; choose placement.devices=cpu");
  }
  return shared_array<nb::numpy>(tensor, nb::device::cpu::value);
}

nb::object array_of(const Tensor& tensor, Stream& stream) {
  if (stream.device().kind == DeviceKind::cpu) {
    return array_of(tensor);
  }
  lend(stream, tensor);
  return shared_array<nb::device::cuda>(tensor, nb::device::cuda::value);
}

nb::object native_stream(Stream& stream) {
  void* const native = native_handle(stream);
  return native == nullptr ? nb::none()
                           : nb::object(nb::make_tuple(stream.device().index,
                                                       std::bit_cast<std::uintptr_t>(native)));
}

Tensor tensor_of(nb::handle array, Stream& stream, const std::string& what) {
  if (stream.device().kind == DeviceKind::cuda) {
    const auto given = given_array<nb::device::cuda>(array, what, "the GPU's");
    const auto [shape, type] = form_of(given, what);
    const Tensor copy = stream.allocate(shape, type);
    copy_foreign(stream, given.data(), copy);
    return copy;
  }
  const auto given = given_array<nb::device::cpu>(array, what, "the CPU's");
  const auto [shape, type] = form_of(given, what);
  auto* const bytes = static_cast<std::byte*>(given.data());
  const std::size_t size = given.nbytes();
  if (std::bit_cast<std::uintptr_t>(bytes) % kAlignment == 0) {
    auto owner = std::make_shared<const Held>(nb::handle(array));
    return Tensor(BufferPool::adopt({bytes, size}, [owner = std::move(owner)] {}), shape, type);
  }
  const Tensor copy = stream.allocate(shape, type);
  std::memcpy(copy.buffer()->data(), bytes, size);
  return copy;
}

nb::list arrays_of(std::span<const Tensor> tensors) {
  nb::list all;
  for (const Tensor& tensor : tensors) {
    all.append(array_of(tensor));
  }
  return all;
}

nb::list arrays_of(std::span<const Tensor> tensors, Stream& stream) {
  nb::list all;
  for (const Tensor& tensor : tensors) {
    all.append(array_of(tensor, stream));
  }
  return all;
}

std::vector<Tensor> tensors_of(nb::handle arrays, Stream& stream, const std::string& what) {
  std::vector<Tensor> all;
  for (const nb::handle array : arrays) {
    all.push_back(tensor_of(array, stream, what));
  }
  return all;
}

Tensor token(nb::handle object, const void* mark) {
  Tokens& all = tokens();
  auto* const slot = new Slot{.mark = mark};
  {
    const std::lock_guard lock(all.mutex);
    slot->id = all.next++;
    all.alive.emplace(slot->id, object.inc_ref().ptr());
  }
  return Tensor(BufferPool::adopt({reinterpret_cast<std::byte*>(slot), sizeof(Slot)},
                                  [slot, &all] {
                                    PyObject* gone = nullptr;
                                    {
                                      const std::lock_guard lock(all.mutex);
                                      const auto at = all.alive.find(slot->id);
                                      gone = at->second;
                                      all.alive.erase(at);
                                    }
                                    give_up(gone);
                                    delete slot;
                                  }),
                {static_cast<std::int64_t>(sizeof(Slot) / sizeof(std::int32_t))},
                DType::int32);
}

Token token_of(const Tensor& tensor) {
  Slot slot;
  std::memcpy(static_cast<void*>(&slot), tensor.data<std::int32_t>(), sizeof(Slot));
  Tokens& all = tokens();
  const std::lock_guard lock(all.mutex);
  const auto at = all.alive.find(slot.id);
  if (at == all.alive.end()) {
    throw PythonFailed(
        "what a layer in Python kept for its backward is not in a checkpoint; set "
        "pipeline.activations=recompute to go on from one");
  }
  return {at->second, slot.mark};
}

Shape shape_of(nb::handle sequence) {
  Shape shape;
  for (const nb::handle extent : sequence) {
    shape.push_back(nb::cast<std::int64_t>(extent));
  }
  return shape;
}

nb::tuple tuple_of(const Shape& shape) {
  nb::list all;
  for (int i = 0; i < shape.dimensions(); ++i) {
    all.append(shape[i]);
  }
  return nb::tuple(all);
}

}  // namespace troupe::python
