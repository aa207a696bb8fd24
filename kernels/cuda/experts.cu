// A mixture of experts. Nothing is added by atomic operations: a row of y or of a gradient belongs to one thread or warp, which adds in
// the order of the row's choices, and seats are given by counting choices in their order. So a repetition gives the same bits, and
// what is added in float gives the CPU's.
//
// What it costs at least, for R = 12 x 1024 rows of C = 768 in bfloat16 (18.9 MB), k = 2 of E = 8 experts, at 4 TB/s: gather_rows
// reads x and writes k rows of each, 57 MB, 14 us (the second reading of x is from the cache); add_rows the other way round, 14 us; its
// gradient reads dy and the rows, and writes these, 94 MB, 24 us; the gather's gradient is add_rows again, 14 us. Together 66 us
// a layer forward and backward; in float32 132. The experts' products beside them, with H = 2048 hidden, are 3 x 2 k R x 3 C H =
// 700 GFLOP, 1.7 ms at 400 TFLOP/s. Choosing and seating move R (2 E + 4 k) numbers, below 2 us; seating is as long as its passes
// over R k choices with two barriers each, some 10 us.
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/sum.cuh"
#include "kernels/experts.hpp"
#include "kernels/functors/experts.hpp"
#include "kernels/functors/math.hpp"

namespace troupe::cuda {

namespace {

constexpr int kRowBlock = 256;  // threads; a warp has a row, or a choice

/// f.row(r, lane) for r < R, by the lanes of a warp together.
template <class F>
__global__ void __launch_bounds__(kRowBlock)
    for_each_warp_kernel(std::int64_t R, const __grid_constant__ F f) {
  constexpr std::int64_t kWarps = kRowBlock / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  for (std::int64_t r = std::int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp; r < R;
       r += std::int64_t{gridDim.x} * kWarps) {
    f.row(r, lane);
  }
}

template <class F>
void for_each_warp(const Backend::State& state, std::int64_t R, const F& f) {
  constexpr std::int64_t kWarps = kRowBlock / kWarp;
  const std::int64_t blocks = std::min((R + kWarps - 1) / kWarps, kElementwiseBlocksMax);
  for_each_warp_kernel<<<static_cast<unsigned>(blocks), kRowBlock, 0, state.stream.get()>>>(R, f);
  TROUPE_CUDA_CHECK(cudaGetLastError());
}

/// In all lanes.
__device__ double sum_of_lanes(double value) {
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    value += __shfl_xor_sync(kAllLanes, value, distance);
  }
  return value;
}

// -- choosing ---------------------------------------------------------------------

struct Choose {
  const float* logits;    // (R, E)
  float* shares;          // (R, E), may be logits
  std::int32_t* choices;  // (R, k)
  float* gates;           // (R, k)
  std::int64_t E;
  std::int64_t k;

  __device__ void row(std::int64_t r, int lane) const {
    const float* x = logits + r * E;
    float* const share = shares + r * E;
    std::int32_t* const chosen = choices + r * k;
    Candidate last = before_all();
    float largest = 0;
    for (std::int64_t j = 0; j < k; ++j) {
      last = best_behind(last, x, lane);
      largest = j == 0 ? last.logit : largest;
      if (lane == 0) {
        chosen[j] = last.expert;
      }
    }
    double sum = 0;
    for (std::int64_t e = lane; e < E; e += kWarp) {
      share[e] = exp_float(x[e] - largest);
      sum += static_cast<double>(share[e]);
    }
    sum = sum_of_lanes(sum);
    for (std::int64_t e = lane; e < E; e += kWarp) {
      share[e] = static_cast<float>(static_cast<double>(share[e]) / sum);
    }
    __syncwarp();  // All lanes see the row's shares and choices.
    double of_chosen = k > 1 ? 0 : 1;
    for (std::int64_t j = 0; k > 1 && j < k; ++j) {
      of_chosen += static_cast<double>(share[chosen[j]]);
    }
    for (std::int64_t j = lane; j < k; j += kWarp) {
      gates[r * k + j] = static_cast<float>(static_cast<double>(share[chosen[j]]) / of_chosen);
    }
  }

  /// The first candidate behind `last`, in all lanes.
  __device__ Candidate best_behind(const Candidate& last, const float* x, int lane) const {
    Candidate best = behind_all();
    for (std::int64_t e = lane; e < E; e += kWarp) {
      const Candidate c = Candidate::of(x[e], static_cast<std::int32_t>(e));
      if (last.is_before(c) && c.is_before(best)) {
        best = c;
      }
    }
    for (int distance = kWarp / 2; distance > 0; distance /= 2) {
      const Candidate other{__shfl_xor_sync(kAllLanes, best.logit, distance),
                            __shfl_xor_sync(kAllLanes, best.expert, distance)};
      best = other.is_before(best) ? other : best;
    }
    return best;
  }
};

struct ChooseGradient {
  const float* shares;          // (R, E)
  const std::int32_t* choices;  // (R, k)
  const float* gates;           // (R, k)
  const float* by_gates;        // (R, k)
  const std::int32_t* firsts;   // (E)
  double balance;               // of one first choice
  std::int64_t E;
  std::int64_t k;
  float* by_logits;  // (R, E)

  __device__ void row(std::int64_t r, int lane) const {
    const float* share = shares + r * E;
    const std::int32_t* chosen = choices + r * k;
    const float* by_gate = by_gates + r * k;
    float* const to = by_logits + r * E;
    GateGradient gate;
    if (k > 1) {
      gate.sum = 0;
      for (std::int64_t j = 0; j < k; ++j) {
        gate.mean += static_cast<double>(gates[r * k + j]) * static_cast<double>(by_gate[j]);
        gate.sum += static_cast<double>(share[chosen[j]]);
      }
    }
    double along = 0;
    for (std::int64_t e = lane; e < E; e += kWarp) {
      along += balance * firsts[e] * static_cast<double>(share[e]);
    }
    for (std::int64_t j = lane; j < k; j += kWarp) {
      along += gate.by_share(by_gate[j]) * static_cast<double>(share[chosen[j]]);
    }
    along = sum_of_lanes(along);
    for (std::int64_t e = lane; e < E; e += kWarp) {
      to[e] = by_logit(share[e], balance * firsts[e], along);
    }
    __syncwarp();  // What follows is written over it.
    for (std::int64_t j = lane; j < k; j += kWarp) {
      const std::int32_t e = chosen[j];
      to[e] = by_logit(share[e], balance * firsts[e] + gate.by_share(by_gate[j]), along);
    }
  }
};

// -- seats ------------------------------------------------------------------------

constexpr int kSeatBlock = 512;  // threads
constexpr int kSeatsEach = 8;    // choices of a thread at a time

struct Seating {
  const std::int32_t* choices;  // (R, k)
  std::int64_t R;
  std::int64_t k;
  std::int64_t first;
  std::int64_t count;
  std::int64_t room;
  std::int32_t* seats;   // (R, k): counted from the expert's first
  std::int32_t* taken;   // (count)
  std::int32_t* firsts;  // (E)
};

/// A block goes through all choices for one expert and counts those of it. A warp has kSeatsEach times 32 neighbours of them. The
/// choices, a hundred kilobytes, stay in the cache for all blocks.
__global__ void __launch_bounds__(kSeatBlock) seat_kernel(const __grid_constant__ Seating s) {
  constexpr int kWarps = kSeatBlock / kWarp;
  __shared__ int of_warps[kWarps];
  const std::int32_t expert = static_cast<std::int32_t>(blockIdx.x);
  const std::int64_t own = expert - s.first;
  const std::int64_t room = own >= 0 && own < s.count ? s.room : 0;
  const std::int64_t all = s.R * s.k;
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / kWarp;
  const unsigned before = (1u << (thread % kWarp)) - 1u;  // the warp's earlier lanes
  std::int64_t seated = 0;
  int firsts = 0;
  for (std::int64_t begin = 0; begin < all; begin += kSeatBlock * kSeatsEach) {
    std::int32_t places[kSeatsEach];
    int ranks[kSeatsEach];
    int of_warp = 0;
#pragma unroll
    for (int n = 0; n < kSeatsEach; ++n) {
      // First choices of all rows, then second ones.
      const std::int64_t i = begin + (warp * kSeatsEach + n) * kWarp + thread % kWarp;
      const Place place(i < all ? i : 0, s.R);  // the jth choice, of row `column`
      places[n] = static_cast<std::int32_t>(place.column * s.k + place.row);
      const bool mine = i < all && s.choices[places[n]] == expert;
      const unsigned lanes = __ballot_sync(kAllLanes, mine);
      ranks[n] = mine ? of_warp + __popc(lanes & before) : -1;
      of_warp += __popc(lanes);
      firsts += mine && i < s.R ? 1 : 0;
    }
    if (thread % kWarp == 0) {
      of_warps[warp] = of_warp;
    }
    __syncthreads();
    std::int64_t offset = seated;
    for (int other = 0; other < kWarps; ++other) {
      offset += other < warp ? of_warps[other] : 0;
      seated += of_warps[other];
    }
#pragma unroll
    for (int n = 0; n < kSeatsEach; ++n) {
      if (ranks[n] >= 0) {
        const std::int64_t rank = offset + ranks[n];
        s.seats[places[n]] = rank < room ? static_cast<std::int32_t>(rank) : -1;
      }
    }
    __syncthreads();  // The counts may be written anew.
  }
  // Of integers below 2^24 each, so exact.
  const auto of_block = static_cast<int>(sum_of_lanes(firsts));
  if (thread % kWarp == 0) {
    of_warps[warp] = of_block;
  }
  __syncthreads();
  if (thread == 0) {
    int sum = 0;
    for (const int of_warp : of_warps) {
      sum += of_warp;
    }
    s.firsts[expert] = sum;
    if (own >= 0 && own < s.count) {
      s.taken[own] = static_cast<std::int32_t>(seated < room ? seated : room);
    }
  }
}

/// Where the rows of the ith expert begin: at most 1,025 threads with as many additions.
struct Begin {
  const std::int32_t* taken;  // (count)
  std::int64_t room;
  bool whole;
  std::int64_t multiple;
  std::int32_t* begins;  // (count + 1)

  template <int one>
  __device__ void at(std::int64_t i) const {
    std::int64_t begin = 0;
    for (std::int64_t own = 0; own < i; ++own) {
      begin += ((whole ? room : taken[own]) + multiple - 1) / multiple * multiple;
    }
    begins[i] = static_cast<std::int32_t>(begin);
  }
};

struct AddBegin {
  const std::int32_t* choices;  // (R, k)
  const std::int32_t* begins;   // (count + 1)
  std::int64_t first;
  std::int32_t* seats;  // (R, k)

  template <int one>
  __device__ void at(std::int64_t i) const {
    if (seats[i] >= 0) {
      seats[i] += begins[choices[i] - first];
    }
  }
};

struct Take {
  const std::int32_t* seats;  // (R, k)
  std::int32_t* taken;        // (N)

  template <int one>
  __device__ void at(std::int64_t i) const {
    if (seats[i] >= 0) {
      taken[seats[i]] = static_cast<std::int32_t>(i);
    }
  }
};

// -- rows -------------------------------------------------------------------------

template <class T>
struct Gather {
  const T* x;                 // (R, C)
  const std::int32_t* taken;  // (N)
  std::int64_t k;
  std::int64_t C;
  T* rows;  // (N, C)

  template <int width>
  __device__ void at(std::int64_t i) const {
    const Place place(i, C);
    const std::int32_t choice = taken[place.row];
    Pack<T, width> values{};
    if (choice >= 0) {
      values = load<width>(x, Place(choice, k).row * C + place.column);
    }
    store<width>(rows, i, values);
  }
};

template <class T>
struct AddRows {
  const T* rows;              // (N, C)
  const std::int32_t* seats;  // (R, k)
  const float* gates;         // (R, k), or null
  std::int64_t k;
  std::int64_t C;
  T* y;  // (R, C)

  template <int width>
  __device__ void at(std::int64_t i) const {
    const Place place(i, C);
    float sums[width] = {};
    for (std::int64_t choice = place.row * k; choice < (place.row + 1) * k; ++choice) {
      if (const std::int32_t seat = seats[choice]; seat >= 0) {
        const Pack<T, width> values = load<width>(rows, seat * C + place.column);
        const float gate = gates ? gates[choice] : 1.0f;
#pragma unroll
        for (int c = 0; c < width; ++c) {
          sums[c] += gate * to_float(values.lane[c]);
        }
      }
    }
    Pack<T, width> sum;
#pragma unroll
    for (int c = 0; c < width; ++c) {
      sum.lane[c] = from_float<T>(sums[c]);
    }
    store<width>(y, i, sum);
  }
};

/// A warp has a choice. `packed`: whether all rows are whole packs that can be read as such; which lane has which columns, and so the
/// order of additions, does not depend on it.
template <class D, class T, bool packed>
struct AddRowsGradient {
  static constexpr int kWidth = 16 / sizeof(T);

  const D* dy;                // (R, C)
  const std::int32_t* seats;  // (R, k)
  const float* gates;         // (R, k)
  std::int64_t k;
  std::int64_t C;
  T* rows;          // (N, C)
  float* by_gates;  // (R, k)

  __device__ void row(std::int64_t choice, int lane) const {
    const std::int32_t seat = seats[choice];
    double sum = 0;
    if (seat >= 0) {
      const D* d = dy + Place(choice, k).row * C;
      T* const own = rows + seat * C;
      const float gate = gates[choice];
      for (std::int64_t c = lane * kWidth; c < C; c += kWarp * kWidth) {
        sum += static_cast<double>(at(d, own, gate, c));
      }
    }
    sum = sum_of_lanes(sum);
    if (lane == 0) {
      by_gates[choice] = static_cast<float>(sum);
    }
  }

  /// The product of kWidth columns, before the row's are replaced.
  __device__ NumberOf<D, T> at(const D* d, T* own, float gate, std::int64_t c) const {
    NumberOf<D, T> sum = 0;
    const auto replaced = [&](const D& by_y, const T& value) {
      const float by = to_float(by_y);
      sum += static_cast<NumberOf<D, T>>(by) * static_cast<NumberOf<D, T>>(to_float(value));
      return from_float<T>(gate * by);
    };
    if constexpr (packed) {
      const Pack<D, kWidth> by = load<kWidth>(d, c);
      Pack<T, kWidth> values = load<kWidth>(own, c);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        values.lane[i] = replaced(by.lane[i], values.lane[i]);
      }
      store<kWidth>(own, c, values);
    } else {
      for (std::int64_t i = c; i < c + kWidth && i < C; ++i) {
        own[i] = replaced(d[i], own[i]);
      }
    }
    return sum;
  }
};

}  // namespace

void choose_experts(Stream& stream,
                    const Tensor& logits,
                    const Tensor& shares,
                    const Tensor& choices,
                    const Tensor& gates) {
  for_each_warp(activate(stream),
                logits.shape()[0],
                Choose{.logits = logits.data<float>(),
                       .shares = shares.data<float>(),
                       .choices = choices.data<std::int32_t>(),
                       .gates = gates.data<float>(),
                       .E = logits.shape()[1],
                       .k = choices.shape()[1]});
}

void choose_experts_gradient(Stream& stream, const ExpertChoices& c) {
  const auto R = static_cast<double>(c.shares.shape()[0]);
  const std::int64_t E = c.shares.shape()[1];
  for_each_warp(activate(stream),
                c.shares.shape()[0],
                ChooseGradient{.shares = c.shares.data<float>(),
                               .choices = c.choices.data<std::int32_t>(),
                               .gates = c.gates.data<float>(),
                               .by_gates = c.by_gates.data<float>(),
                               .firsts = c.firsts.data<std::int32_t>(),
                               .balance = c.balance * static_cast<double>(E) / (R * R),
                               .E = E,
                               .k = c.choices.shape()[1],
                               .by_logits = c.by_logits.data<float>()});
}

void seat_choices(Stream& stream, const ExpertSeats& s) {
  const Tensor taken = stream.allocate({s.count}, DType::int32);
  const Backend::State& state = activate(stream);
  const auto* choices = s.choices.data<std::int32_t>();
  auto* const seats = s.seats.data<std::int32_t>();
  auto* const begins = s.begins.data<std::int32_t>();
  const Seating seating{.choices = choices,
                        .R = s.choices.shape()[0],
                        .k = s.choices.shape()[1],
                        .first = s.first,
                        .count = s.count,
                        .room = s.room,
                        .seats = seats,
                        .taken = taken.data<std::int32_t>(),
                        .firsts = s.firsts.data<std::int32_t>()};
  seat_kernel<<<static_cast<unsigned>(s.experts), kSeatBlock, 0, state.stream.get()>>>(seating);
  TROUPE_CUDA_CHECK(cudaGetLastError());
  for_each_index(state,
                 s.count + 1,
                 Begin{.taken = taken.data<std::int32_t>(),
                       .room = s.room,
                       .whole = s.whole_rooms,
                       .multiple = s.multiple,
                       .begins = begins});
  for_each_index(state,
                 s.choices.elements(),
                 AddBegin{.choices = choices, .begins = begins, .first = s.first, .seats = seats});
}

void gather_rows(
    Stream& stream, const Tensor& x, const Tensor& seats, const Tensor& taken, const Tensor& rows) {
  const Backend::State& state = activate(stream);
  auto* const who = taken.data<std::int32_t>();
  const auto bytes = static_cast<std::size_t>(taken.elements()) * sizeof(std::int32_t);
  TROUPE_CUDA_CHECK(cudaMemsetAsync(who, 0xff, bytes, state.stream.get()));  // -1 each
  for_each_index(state, seats.elements(), Take{.seats = seats.data<std::int32_t>(), .taken = who});
  with_type_of(x, [&]<class T>() {
    const T* from = x.data<T>();
    T* const to = rows.data<T>();
    const std::int64_t C = x.shape()[1];
    for_each_index(state,
                   rows.elements(),
                   pack_width(from, to).dividing(C),
                   Gather<T>{.x = from, .taken = who, .k = seats.shape()[1], .C = C, .rows = to});
  });
}

void add_rows(
    Stream& stream, const Tensor& rows, const Tensor& seats, const Tensor& gates, const Tensor& y) {
  const Backend::State& state = activate(stream);
  with_type_of(y, [&]<class T>() {
    const T* from = rows.data<T>();
    T* const to = y.data<T>();
    const std::int64_t C = y.shape()[1];
    for_each_index(state,
                   y.elements(),
                   pack_width(from, to).dividing(C),
                   AddRows<T>{.rows = from,
                              .seats = seats.data<std::int32_t>(),
                              .gates = gates ? gates.data<float>() : nullptr,
                              .k = seats.shape()[1],
                              .C = C,
                              .y = to});
  });
}

void add_rows_gradient(Stream& stream,
                       const Tensor& dy,
                       const Tensor& seats,
                       const Tensor& gates,
                       const Tensor& rows,
                       const Tensor& by_gates) {
  const Backend::State& state = activate(stream);
  with_type_of(dy, [&]<class D>() {
    with_type_of(rows, [&]<class T>() {
      const auto launch = [&]<bool packed>() {
        for_each_warp(state,
                      seats.elements(),
                      AddRowsGradient<D, T, packed>{.dy = dy.data<D>(),
                                                    .seats = seats.data<std::int32_t>(),
                                                    .gates = gates.data<float>(),
                                                    .k = seats.shape()[1],
                                                    .C = dy.shape()[1],
                                                    .rows = rows.data<T>(),
                                                    .by_gates = by_gates.data<float>()});
      };
      constexpr int kWidth = 16 / sizeof(T);
      if (dy.shape()[1] % kWidth == 0 && packable<kWidth>(dy.data<D>(), rows.data<T>())) {
        launch.template operator()<true>();
      } else {
        launch.template operator()<false>();
      }
    });
  });
}

}  // namespace troupe::cuda
