// Tensors as numpy arrays over the same memory, and anything that speaks DLPack or the buffer protocol as
// a tensor.
#pragma once

#include "apps/python/hold.hpp"
#include "kernels/stream.hpp"
#include "kernels/tensor.hpp"

#include <nanobind/ndarray.h>

#include <span>
#include <string>
#include <vector>

namespace troupe::python {

/// The same memory, which lives as long as the array. PythonFailed where it is a GPU's. With the GIL.
nb::object array_of(const Tensor& tensor);
nb::list arrays_of(std::span<const Tensor> tensors);

/// The same, and a GPU's memory as an object that speaks DLPack alone, for work that is put on native_stream(stream).
nb::object array_of(const Tensor& tensor, Stream& stream);
nb::list arrays_of(std::span<const Tensor> tensors, Stream& stream);

/// (index of the GPU, cudaStream_t), None on the CPU. With the GIL.
nb::object native_stream(Stream& stream);

/// Of numbers that C++ has made. With the GIL.
template <class T>
nb::object array_of(std::vector<T> values) {
  auto* const held = new std::vector<T>(std::move(values));
  const nb::capsule owner(held, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
  return nb::cast(nb::ndarray<nb::numpy, T, nb::ndim<1>>(held->data(), {held->size()}, owner));
}

/// The same memory where that is contiguous and aligned as the library wants it; else a copy, as always on a GPU: others may
/// read it there than those whose work its own library knows of. float32 or int32.
/// `what` begins the sentence of PythonFailed. With the GIL.
Tensor tensor_of(nb::handle array, Stream& stream, const std::string& what);
std::vector<Tensor> tensors_of(nb::handle arrays, Stream& stream, const std::string& what);

/// A tensor whose buffer holds a Python object: what a layer leaves in `saved`. With the GIL.
Tensor token(nb::handle object, const void* mark);

struct Token {
  nb::handle object;
  const void* mark;
};

/// PythonFailed where the tensor is a copy of a token, as after a checkpoint.
Token token_of(const Tensor& tensor);

/// -> Shape, and back as a tuple.
Shape shape_of(nb::handle sequence);
nb::tuple tuple_of(const Shape& shape);

}  // namespace troupe::python
