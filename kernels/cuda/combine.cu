#include "kernels/combine.hpp"
#include "kernels/cuda/elementwise.cuh"

#include <utility>

namespace troupe::cuda {

namespace {

// Bandwidth-bound: 4 B an element and term, and 4 B written. The order of the float operations is
// that of cpu/combine.cpp.
template <std::size_t count>
struct Combine {
  const float* x[count];
  float factor[count];
  float* out;  // may be one of x

  template <int width>
  __device__ void at(std::int64_t i) const {
    Pack<float, width> sum = load<width>(x[0], i);
    for (float& lane : sum.lane) {
      lane *= factor[0];
    }
#pragma unroll
    for (std::size_t k = 1; k < count; ++k) {
      const Pack<float, width> term = load<width>(x[k], i);
#pragma unroll
      for (int l = 0; l < width; ++l) {
        sum.lane[l] += factor[k] * term.lane[l];
      }
    }
    store<width>(out, i, sum);
  }
};

template <std::size_t count>
void launch(const Backend::State& state, const std::vector<Term>& terms, const Tensor& out) {
  Combine<count> pass{};
  pass.out = out.data<float>();
  auto width = pack_width(pass.out);
  for (std::size_t k = 0; k < count; ++k) {
    pass.x[k] = terms[k].x.data<float>();
    pass.factor[k] = static_cast<float>(terms[k].factor);
    width.value = std::min(width.value, pack_width(pass.x[k]).value);
  }
  for_each_index(state, out.elements(), width, pass);
}

template <std::size_t... counts>
void launch_one_of(const Backend::State& state,
                   const std::vector<Term>& terms,
                   const Tensor& out,
                   std::index_sequence<counts...> /*counts*/) {
  ((terms.size() == counts + 1 ? launch<counts + 1>(state, terms, out) : void()), ...);
}

}  // namespace

void combine(Stream& stream, const std::vector<Term>& terms, const Tensor& out) {
  launch_one_of(activate(stream), terms, out, std::make_index_sequence<kTermsMax>());
}

}  // namespace troupe::cuda
