#include "kernels/coding.hpp"
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/sum.cuh"
#include "kernels/functors/coding.hpp"

namespace troupe::cuda {

namespace {

using coding::Destination;
using coding::SignSums;

std::uint32_t* words_of(const Tensor& message) {
  return reinterpret_cast<std::uint32_t*>(message.data<std::int32_t>());
}

/// Blocks of kElementwiseBlock threads for `warps` warps, which take turns where there are more.
unsigned blocks_of_warps(std::int64_t warps) {
  constexpr std::int64_t kWarps = kElementwiseBlock / kWarp;
  return static_cast<unsigned>(std::min((warps + kWarps - 1) / kWarps, kElementwiseBlocksMax));
}

/// A loop over warps: from this thread's by steps of all that the grid has. It is the same for all lanes
/// of a warp.
__device__ std::int64_t own_warp() {
  return (std::int64_t{blockIdx.x} * kElementwiseBlock + threadIdx.x) / kWarp;
}

__device__ std::int64_t all_warps() {
  return std::int64_t{gridDim.x} * kElementwiseBlock / kWarp;
}

// -- what is to be sent -----------------------------------------------------------

/// Bandwidth-bound: 12 B an element.
struct AddLeft {
  const float* update;
  float scale;
  const float* left;  // or null
  float* x;
  std::int32_t* odd;

  template <int width>
  __device__ void at(std::int64_t i) const {
    const Pack<float, width> from = load<width>(update, i);
    Pack<float, width> rest{};
    if (left) {
      rest = load<width>(left, i);
    }
    Pack<float, width> to;
    bool met = false;
#pragma unroll
    for (int k = 0; k < width; ++k) {
      to.lane[k] = coding::plus_left(from.lane[k], scale, left ? rest.lane : nullptr, k);
      met = met || coding::magnitude(to.lane[k]) >= coding::kInfinite;
    }
    store<width>(x, i, to);
    if (met) {
      atomicOr(odd, 1);
    }
  }
};

// -- words ------------------------------------------------------------------------

/// Element i is a word. 4 B read and 2 B written a number.
template <bool bfloats>
struct EncodeHalves {
  const float* x;
  std::int64_t n;
  std::uint32_t* words;

  template <int width>
  __device__ void at(std::int64_t word) const {
    for (std::int64_t w = word; w < word + width; ++w) {
      words[w] = coding::Halves<bfloats>::word(x, 2 * w, n);
    }
  }
};

template <bool bfloats>
void encode_halves(const Backend::State& state,
                   const float* x,
                   std::int64_t n,
                   std::uint32_t* words) {
  for_each_index(state, (n + 1) / 2, EncodeHalves<bfloats>{x, n, words});
}

/// A warp a block of the code: its greatest magnitude, then its words, for which it reads the block
/// again, from the cache. words: of the numbers, behind all factors.
template <int bits>
__global__ void __launch_bounds__(kElementwiseBlock)
    encode_blocks_kernel(const float* x,
                         std::int64_t n,
                         std::int64_t block,
                         const __grid_constant__ coding::Rounding rounding,
                         std::uint32_t* factors,
                         std::uint32_t* words) {
  using Numbers = coding::Whole<bits>;
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  for (std::int64_t b = own_warp(); b * block < n; b += all_warps()) {
    const std::int64_t first = b * block;
    const std::int64_t end = first + block < n ? first + block : n;
    std::uint32_t greatest = 0;
    for (std::int64_t i = first + lane; i < end; i += kWarp) {
      greatest = std::max(greatest, coding::magnitude(x[i]));
    }
    for (int distance = kWarp / 2; distance > 0; distance /= 2) {
      greatest = std::max(greatest, __shfl_xor_sync(kAllLanes, greatest, distance));
    }
    const coding::BlockScale scale =
        coding::block_scale(std::bit_cast<float>(greatest), Numbers::most);
    if (lane == 0) {
      factors[b] = coding::bits_of(scale.factor);
    }
    constexpr std::int64_t per_word = Numbers::per_word;
    for (std::int64_t i = first + lane * per_word; i < end; i += kWarp * per_word) {
      words[i / per_word] = Numbers::word(x, i, end, scale.inverse, rounding);
    }
  }
}

template <int bits>
void encode_blocks(const Backend::State& state,
                   const MessageCode& code,
                   const float* x,
                   std::int64_t n,
                   std::uint32_t* words) {
  const std::int64_t blocks = (n + code.block - 1) / code.block;
  encode_blocks_kernel<bits><<<blocks_of_warps(blocks), kElementwiseBlock, 0, state.stream.get()>>>(
      x, n, code.block, coding::Rounding(code), words, words + blocks);
  TROUPE_CUDA_CHECK(cudaGetLastError());
}

// -- signs ------------------------------------------------------------------------
//
// A block a row, or a piece of a long row: their sums are added up in order by a second kernel.

/// Numbers of a piece. Rows of more than one piece have at most 2^16 pieces together, because there are
/// fewer than 2^31 numbers.
constexpr std::int64_t kPiece = std::int64_t{1} << 16;
static_assert((std::size_t{1} << 16) * sizeof(SignSums) <= kWorkspaceBytes);

/// Writes the means where a row is one piece, else a piece's sums. Shapes: x (rows, size), partial (rows,
/// pieces), means (rows, 2).
__global__ void __launch_bounds__(kSumBlock) sums_by_sign_kernel(const float* x,
                                                                 std::int64_t size,
                                                                 std::int64_t pieces,
                                                                 SignSums* partial,
                                                                 std::uint32_t* means) {
  const std::int64_t row = blockIdx.x / pieces;
  const std::int64_t begin = blockIdx.x % pieces * kPiece;
  const std::int64_t end = begin + kPiece < size ? begin + kPiece : size;
  SignSums sums{};
  for (std::int64_t i = begin + threadIdx.x; i < end; i += kSumBlock) {
    sums.add(x[row * size + i]);
  }
  // In thread 0. A count is exact in double.
  const SignSums all{block_sum(sums.positive),
                     block_sum(sums.negative),
                     static_cast<std::int64_t>(block_sum(static_cast<double>(sums.negatives)))};
  if (threadIdx.x != 0) {
    return;
  }
  if (pieces == 1) {
    all.means(size, means + 2 * row);
  } else {
    partial[blockIdx.x] = all;
  }
}

/// Element i is a row.
struct MeansOfPieces {
  const SignSums* partial;
  std::int64_t pieces;
  std::int64_t size;
  std::uint32_t* means;

  template <int width>
  __device__ void at(std::int64_t row) const {
    for (std::int64_t r = row; r < row + width; ++r) {
      SignSums sums{};
      for (std::int64_t piece = 0; piece < pieces; ++piece) {
        sums.add(partial[r * pieces + piece]);
      }
      sums.means(size, means + 2 * r);
    }
  }
};

/// A warp a word, a lane a bit.
__global__ void __launch_bounds__(kElementwiseBlock)
    signs_kernel(const float* x, std::int64_t n, std::uint32_t* words) {
  const std::int64_t lane = threadIdx.x % kWarp;
  for (std::int64_t w = own_warp(); w * kWarp < n; w += all_warps()) {
    const std::int64_t i = w * kWarp + lane;
    const bool minus = i < n && (coding::bits_of(x[i]) & coding::kSign) != 0;
    const std::uint32_t word = __ballot_sync(kAllLanes, minus);
    if (lane == 0) {
      words[w] = word;
    }
  }
}

void encode_signs(const Backend::State& state,
                  const MessageCode& code,
                  const float* x,
                  std::int64_t n,
                  std::uint32_t* words) {
  SignSums* const partial = state.workspace<SignSums>();
  for (const MessageRows& rows : code.rows) {
    const std::int64_t pieces = (rows.size + kPiece - 1) / kPiece;
    sums_by_sign_kernel<<<static_cast<unsigned>(rows.count * pieces),
                          kSumBlock,
                          0,
                          state.stream.get()>>>(x + rows.offset, rows.size, pieces, partial, words);
    TROUPE_CUDA_CHECK(cudaGetLastError());
    if (pieces > 1) {
      for_each_index(state, rows.count, MeansOfPieces{partial, pieces, rows.size, words});
    }
    words += 2 * rows.count;
  }
  signs_kernel<<<blocks_of_warps((n + kWarp - 1) / kWarp),
                 kElementwiseBlock,
                 0,
                 state.stream.get()>>>(x, n, words);
  TROUPE_CUDA_CHECK(cudaGetLastError());
}

// -- numbers ----------------------------------------------------------------------

template <class Words>
struct Read {
  Words words;
  Destination to;

  template <int width>
  __device__ void at(std::int64_t i) const {
    for (std::int64_t k = i; k < i + width; ++k) {
      to.put(k, words.number(k));
    }
  }
};

void read(Stream& stream,
          const MessageCode& code,
          const Tensor& message,
          std::int64_t n,
          const Destination& to) {
  const Backend::State& state = activate(stream);
  coding::with_words(
      code, words_of(message), n, [&](auto words, std::int64_t first, std::int64_t size) {
        for_each_index(state, size, Read<decltype(words)>{words, to.from(first)});
      });
}

}  // namespace

void add_left(Stream& stream,
              const Tensor& update,
              float scale,
              const Tensor& left,
              const Tensor& x,
              const Tensor& odd) {
  const Backend::State& state = activate(stream);
  const AddLeft pass{.update = update.data<float>(),
                     .scale = scale,
                     .left = left ? left.data<float>() : nullptr,
                     .x = x.data<float>(),
                     .odd = odd.data<std::int32_t>()};
  TROUPE_CUDA_CHECK(cudaMemsetAsync(pass.odd, 0, sizeof(*pass.odd), state.stream.get()));
  for_each_index(state, x.elements(), pack_width(pass.update, pass.left, pass.x), pass);
}

void encode_message(Stream& stream,
                    const MessageCode& code,
                    const Tensor& x,
                    const Tensor& message) {
  const Backend::State& state = activate(stream);
  const float* const from = x.data<float>();
  const std::int64_t n = x.elements();
  std::uint32_t* const words = words_of(message);
  if (n == 0) {
    return;
  }
  switch (code.kind) {
    case CodeKind::halves:
      return encode_halves<false>(state, from, n, words);
    case CodeKind::bfloats:
      return encode_halves<true>(state, from, n, words);
    case CodeKind::int8:
      return encode_blocks<8>(state, code, from, n, words);
    case CodeKind::int4:
      return encode_blocks<4>(state, code, from, n, words);
    case CodeKind::signs:
      return encode_signs(state, code, from, n, words);
  }
}

void decode_message(Stream& stream,
                    const MessageCode& code,
                    const Tensor& message,
                    const Tensor& out) {
  read(stream, code, message, out.elements(), {.out = out.data<float>()});
}

void keep_left(Stream& stream,
               const MessageCode& code,
               const Tensor& message,
               const Tensor& x,
               const Tensor& odd,
               const Tensor& left) {
  read(stream,
       code,
       message,
       x.elements(),
       {.x = x.data<float>(), .odd = odd.data<std::int32_t>(), .left = left.data<float>()});
}

}  // namespace troupe::cuda
