#include "kernels/dot.hpp"

#include <array>

namespace troupe::cpu::TROUPE_ISA {

double dot(const Tensor& a, const Tensor& b) {
  constexpr std::size_t kSums = 16;  // so that additions need not wait for one another
  std::array<double, kSums> sums{};
  const float* x = a.data<float>();
  const float* y = b.data<float>();
  const auto n = static_cast<std::size_t>(a.elements());
  std::size_t i = 0;
  for (; i + kSums <= n; i += kSums) {
    for (std::size_t lane = 0; lane < kSums; ++lane) {
      sums[lane] += static_cast<double>(x[i + lane]) * y[i + lane];
    }
  }
  for (std::size_t lane = 0; i < n; ++i, ++lane) {
    sums[lane] += static_cast<double>(x[i]) * y[i];
  }
  double sum = 0;
  for (const double lane : sums) {
    sum += lane;
  }
  return sum;
}

}  // namespace troupe::cpu::TROUPE_ISA
