#include "kernels/lstm.hpp"

#include "kernels/functors/lstm.hpp"

#include <cstring>

namespace troupe::cpu::TROUPE_ISA {

namespace {

const float* data_or_null(const Tensor& x) {
  return x ? x.data<float>() : nullptr;
}

}  // namespace

void swap_leading(Stream& /*stream*/, const Tensor& x, const Tensor& y) {
  const std::int64_t M = x.shape()[0];
  const std::int64_t N = x.shape()[1];
  const std::int64_t C = x.shape()[2];
  const float* from = x.data<float>();
  float* to = y.data<float>();
  for (std::int64_t n = 0; n < N; ++n) {
    for (std::int64_t m = 0; m < M; ++m) {
      std::memcpy(to + (n * M + m) * C,
                  from + (m * N + n) * C,
                  static_cast<std::size_t>(C) * sizeof(float));
    }
  }
}

void lstm_cell_forward(Stream& /*stream*/,
                       const Tensor& gates,
                       const Tensor& cell_before,
                       const Tensor& cell,
                       const Tensor& hidden) {
  const std::int64_t B = cell.shape()[0];
  const std::int64_t H = cell.shape()[1];
  const float* before = data_or_null(cell_before);
  for (std::int64_t b = 0; b < B; ++b) {
    float* gate = gates.data<float>() + b * 4 * H;
    float* c = cell.data<float>() + b * H;
    float* h = hidden.data<float>() + b * H;
    const auto row = [&](auto state_before) {
#pragma GCC ivdep
      for (std::int64_t k = 0; k < H; ++k) {
        const LstmCell result = LstmCell::forward(
            {gate[k], gate[H + k], gate[2 * H + k], gate[3 * H + k]}, state_before(k));
        gate[k] = result.gates.i;
        gate[H + k] = result.gates.f;
        gate[2 * H + k] = result.gates.g;
        gate[3 * H + k] = result.gates.o;
        c[k] = result.cell;
        h[k] = result.hidden;
      }
    };
    if (before) {
      row([&](std::int64_t k) { return before[b * H + k]; });
    } else {
      row([](std::int64_t) { return 0.0f; });
    }
  }
}

void lstm_cell_backward(Stream& /*stream*/, const LstmCellGradients& a) {
  const std::int64_t B = a.cell.shape()[0];
  const std::int64_t H = a.cell.shape()[1];
  const float* before = data_or_null(a.cell_before);
  for (std::int64_t b = 0; b < B; ++b) {
    const float* gate = a.gates.data<float>() + b * 4 * H;
    const float* c = a.cell.data<float>() + b * H;
    const float* dh = a.dhidden.data<float>() + b * H;
    float* dc = a.dcell.data<float>() + b * H;
    float* d = a.dgates.data<float>() + b * 4 * H;
    const auto row = [&](auto state_before) {
#pragma GCC ivdep
      for (std::int64_t k = 0; k < H; ++k) {
        const LstmCellGradient result =
            LstmCellGradient::backward({gate[k], gate[H + k], gate[2 * H + k], gate[3 * H + k]},
                                       c[k],
                                       state_before(k),
                                       dh[k],
                                       dc[k]);
        d[k] = result.gates.i;
        d[H + k] = result.gates.f;
        d[2 * H + k] = result.gates.g;
        d[3 * H + k] = result.gates.o;
        dc[k] = result.cell_before;
      }
    };
    if (before) {
      row([&](std::int64_t k) { return before[b * H + k]; });
    } else {
      row([](std::int64_t) { return 0.0f; });
    }
  }
}

}  // namespace troupe::cpu::TROUPE_ISA
