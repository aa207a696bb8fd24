// Token embedding. The gradient has no atomic additions: each element of it belongs to one thread,
// which adds in the order of the places, so that its bits are those of the CPU.
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/sum.cuh"
#include "kernels/embedding.hpp"

#include <limits>

namespace troupe::cuda {

namespace {

struct Embed {
  const std::int32_t* ids;  // (B, T)
  const float* table;       // (V, C)
  const float* positions;   // (T_max, C) or null
  std::int64_t T;
  std::int64_t V;
  std::int64_t C;
  std::int64_t first;  // of a part's rows; kWholeTable
  float* y;            // (B, T, C)

  template <int width>
  __device__ void at(std::int64_t i) const {
#pragma unroll
    for (int k = 0; k < width; ++k) {
      one(i + k);
    }
  }

  __device__ void one(std::int64_t i) const {
    const std::int64_t place = i / C;
    const std::int64_t c = i % C;
    const bool whole = first == kWholeTable;
    const std::int64_t id = ids[place] - (whole ? 0 : first);
    const float other = whole ? std::numeric_limits<float>::quiet_NaN() : 0.0f;
    const float value = id >= 0 && id < V ? table[id * C + c] : other;
    y[i] = positions ? value + positions[place % T * C + c] : value;
  }
};

struct PositionGradient {
  const float* dy;  // (B, T, C)
  std::int64_t B;
  std::int64_t row;  // T C
  bool accumulate;
  float* dpositions;  // (T_max, C)

  template <int width>
  __device__ void at(std::int64_t i) const {
#pragma unroll
    for (int k = 0; k < width; ++k) {
      one(i + k);
    }
  }

  __device__ void one(std::int64_t i) const {
    float sum = accumulate ? dpositions[i] : 0.0f;
    if (i < row) {
      for (std::int64_t b = 0; b < B; ++b) {
        sum += dy[b * row + i];
      }
    }
    dpositions[i] = sum;
  }
};

constexpr int kBlock = 256;

struct Found {
  std::int64_t place;
  std::int64_t row;
};

/// A block has some rows of the table: it goes through all ids, kBlock at a time, lists in order the
/// places that hold one of its rows, and adds their gradients. Every id is read once a block: cheap, as they
/// stay in the cache, compared with a sort.
__global__ void __launch_bounds__(kBlock) table_gradient_kernel(const std::int32_t* ids,
                                                                std::int64_t first,
                                                                std::int64_t places,
                                                                const float* dy,
                                                                std::int64_t V,
                                                                std::int64_t C,
                                                                int rows,
                                                                bool accumulate,
                                                                float* dtable) {
  __shared__ int counts[kBlock / kWarp];
  __shared__ Found found[kBlock];
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / kWarp;
  const unsigned before = (1u << (thread % kWarp)) - 1u;  // the warp's earlier lanes
  const std::int64_t begin_row = std::int64_t{blockIdx.x} * rows;
  const std::int64_t end_row = begin_row + rows < V ? begin_row + rows : V;
  if (!accumulate) {
    for (std::int64_t i = begin_row * C + thread; i < end_row * C; i += kBlock) {
      dtable[i] = 0.0f;
    }
  }
  for (std::int64_t begin = 0; begin < places; begin += kBlock) {
    const std::int64_t place = begin + thread;
    const std::int64_t id = place < places ? ids[place] - first : -1;
    const bool mine = id >= begin_row && id < end_row;
    // Few rows are among so many ids. Behind this barrier the lists may be written anew.
    if (!__syncthreads_or(mine)) {
      continue;
    }
    const unsigned lanes = __ballot_sync(kAllLanes, mine);
    if (thread % kWarp == 0) {
      counts[warp] = __popc(lanes);
    }
    __syncthreads();
    int offset = 0;
    int count = 0;
    for (int other = 0; other < kBlock / kWarp; ++other) {
      offset += other < warp ? counts[other] : 0;
      count += counts[other];
    }
    if (mine) {
      found[offset + __popc(lanes & before)] = {place, id};
    }
    __syncthreads();
    // A thread always has the same channels, so that it alone reads and writes them.
    for (std::int64_t c = thread; c < C; c += kBlock) {
      for (int k = 0; k < count; ++k) {
        dtable[found[k].row * C + c] += dy[found[k].place * C + c];
      }
    }
  }
}

}  // namespace

void embedding_forward(Stream& stream,
                       const Tensor& ids,
                       const Tensor& table,
                       const Tensor& positions,
                       const Tensor& y,
                       std::int64_t first) {
  const Embed embed{.ids = ids.data<std::int32_t>(),
                    .table = table.data<float>(),
                    .positions = positions ? positions.data<float>() : nullptr,
                    .T = ids.shape()[1],
                    .V = table.shape()[0],
                    .C = table.shape()[1],
                    .first = first,
                    .y = y.data<float>()};
  for_each_index(activate(stream), y.elements(), embed);
}

void embedding_gradient(Stream& stream,
                        const Tensor& ids,
                        const Tensor& dy,
                        const Tensor& dtable,
                        const Tensor& dpositions,
                        bool accumulate,
                        std::int64_t first) {
  const Backend::State& state = activate(stream);
  if (dtable.elements() > 0) {
    // Many rows have few places each, and fewer blocks then read all ids; few rows would leave multiprocessors idle.
    constexpr std::int64_t kManyRows = 8192;
    const std::int64_t V = dtable.shape()[0];
    const int rows = V < kManyRows ? 1 : 8;
    const auto blocks = static_cast<unsigned>((V + rows - 1) / rows);
    table_gradient_kernel<<<blocks, kBlock, 0, state.stream.get()>>>(
        ids.data<std::int32_t>(),
        first == kWholeTable ? 0 : first,
        ids.elements(),
        dy.data<float>(),
        V,
        dtable.shape()[1],
        rows,
        accumulate,
        dtable.data<float>());
    TROUPE_CUDA_CHECK(cudaGetLastError());
  }
  if (dpositions) {
    for_each_index(state,
                   dpositions.elements(),
                   PositionGradient{.dy = dy.data<float>(),
                                    .B = ids.shape()[0],
                                    .row = ids.shape()[1] * dtable.shape()[1],
                                    .accumulate = accumulate,
                                    .dpositions = dpositions.data<float>()});
  }
}

}  // namespace troupe::cuda
