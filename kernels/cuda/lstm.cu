#include "kernels/cuda/elementwise.cuh"
#include "kernels/functors/lstm.hpp"
#include "kernels/lstm.hpp"

namespace troupe::cuda {

namespace {

struct SwapLeading {
  std::int64_t M;
  std::int64_t N;
  std::int64_t C;
  const float* x;  // (M, N, C)
  float* y;        // (N, M, C)

  /// Of y, one after the other: a pack may end in another row.
  template <int width>
  __device__ void at(std::int64_t i) const {
    for (std::int64_t k = i; k < i + width; ++k) {
      const std::int64_t row = k / C;  // n M + m
      y[k] = x[(row % M * N + row / M) * C + k % C];
    }
  }
};

struct CellForward {
  std::int64_t H;
  float* gates;              // (B, 4H)
  const float* cell_before;  // (B, H) or null
  float* cell;               // (B, H)
  float* hidden;             // (B, H)

  template <int width>
  __device__ void at(std::int64_t i) const {
    for (std::int64_t k = i; k < i + width; ++k) {
      float* gate = gates + k / H * 4 * H + k % H;
      const LstmCell result = LstmCell::forward({gate[0], gate[H], gate[2 * H], gate[3 * H]},
                                                cell_before ? cell_before[k] : 0.0f);
      gate[0] = result.gates.i;
      gate[H] = result.gates.f;
      gate[2 * H] = result.gates.g;
      gate[3 * H] = result.gates.o;
      cell[k] = result.cell;
      hidden[k] = result.hidden;
    }
  }
};

struct CellBackward {
  std::int64_t H;
  const float* gates;        // (B, 4H)
  const float* cell;         // (B, H)
  const float* cell_before;  // (B, H) or null
  const float* dhidden;      // (B, H)
  float* dcell;              // (B, H)
  float* dgates;             // (B, 4H)

  template <int width>
  __device__ void at(std::int64_t i) const {
    for (std::int64_t k = i; k < i + width; ++k) {
      const std::int64_t first = k / H * 4 * H + k % H;
      const float* gate = gates + first;
      const LstmCellGradient result =
          LstmCellGradient::backward({gate[0], gate[H], gate[2 * H], gate[3 * H]},
                                     cell[k],
                                     cell_before ? cell_before[k] : 0.0f,
                                     dhidden[k],
                                     dcell[k]);
      float* d = dgates + first;
      d[0] = result.gates.i;
      d[H] = result.gates.f;
      d[2 * H] = result.gates.g;
      d[3 * H] = result.gates.o;
      dcell[k] = result.cell_before;
    }
  }
};

const float* data_or_null(const Tensor& x) {
  return x ? x.data<float>() : nullptr;
}

}  // namespace

// One element a thread, never packs: neighbouring threads read and write neighbouring words as it
// is, and a step of a small layer has few elements.

void swap_leading(Stream& stream, const Tensor& x, const Tensor& y) {
  const Backend::State& state = activate(stream);
  const SwapLeading swap{.M = x.shape()[0],
                         .N = x.shape()[1],
                         .C = x.shape()[2],
                         .x = x.data<float>(),
                         .y = y.data<float>()};
  for_each_index(state, x.elements(), swap);
}

void lstm_cell_forward(Stream& stream,
                       const Tensor& gates,
                       const Tensor& cell_before,
                       const Tensor& cell,
                       const Tensor& hidden) {
  const Backend::State& state = activate(stream);
  const CellForward step{.H = cell.shape()[1],
                         .gates = gates.data<float>(),
                         .cell_before = data_or_null(cell_before),
                         .cell = cell.data<float>(),
                         .hidden = hidden.data<float>()};
  for_each_index(state, cell.elements(), step);
}

void lstm_cell_backward(Stream& stream, const LstmCellGradients& a) {
  const Backend::State& state = activate(stream);
  const CellBackward step{.H = a.cell.shape()[1],
                          .gates = a.gates.data<float>(),
                          .cell = a.cell.data<float>(),
                          .cell_before = data_or_null(a.cell_before),
                          .dhidden = a.dhidden.data<float>(),
                          .dcell = a.dcell.data<float>(),
                          .dgates = a.dgates.data<float>()};
  for_each_index(state, a.cell.elements(), step);
}

}  // namespace troupe::cuda
