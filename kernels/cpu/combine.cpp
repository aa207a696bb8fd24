#include "kernels/combine.hpp"

#include <array>
#include <utility>

namespace troupe::cpu::TROUPE_ISA {

namespace {

template <std::size_t... k>
void sum_terms(const std::vector<Term>& terms,
               std::int64_t n,
               float* to,
               std::index_sequence<k...> /*k*/) {
  const std::array<const float*, sizeof...(k)> x{terms[k].x.data<float>()...};
  const std::array<float, sizeof...(k)> factor{static_cast<float>(terms[k].factor)...};
#pragma GCC ivdep  // `to` may be a term, but never a shifted one
  for (std::int64_t i = 0; i < n; ++i) {
    to[i] = (... + (factor[k] * x[k][i]));
  }
}

}  // namespace

void combine(Stream& /*stream*/, const std::vector<Term>& terms, const Tensor& out) {
  const auto with = [&]<std::size_t... counts>(std::index_sequence<counts...>) {
    ((terms.size() == counts + 1
          ? sum_terms(
                terms, out.elements(), out.data<float>(), std::make_index_sequence<counts + 1>())
          : void()),
     ...);
  };
  with(std::make_index_sequence<kTermsMax>());
}

}  // namespace troupe::cpu::TROUPE_ISA
