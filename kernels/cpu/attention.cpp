// One head of one sequence at a time, a block of queries together. Scores lie with the key as the
// row and the query as the column: a softmax then goes down columns, many queries in a vector and
// nothing to be summed across lanes, and the queries that a tile multiplies stand side by side.
// Keys behind a block's last query are never looked at; within the last few the rest is masked.
#include "kernels/attention.hpp"

#include "kernels/cpu/backend.hpp"
#include "kernels/cpu/vector.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

namespace troupe::cpu::TROUPE_ISA {

namespace {

// Rows that each need a pointer: more than these do not fit the registers beside those of the loops here.
constexpr int kRowsApart = std::min(kTileRows, 6);
// Queries whose gradient by keys and values is added at once: enough that a tile's way from and to
// memory costs little. It follows the registers and not a cache: a number that the compiler knows spares a pointer for each
// row of a tile, and two blocks of scores take 8 KiB (AVX2) for 32 keys.
constexpr std::int64_t kBlock = 2 * kTileWidth;

using PerQuery = std::array<float, static_cast<std::size_t>(kTileWidth)>;

std::int64_t padded(std::int64_t columns) {
  return (columns + kTileWidth - 1) / kTileWidth * kTileWidth;
}

/// `columns` of `count` rows of a matrix.
struct Rows {
  const float* data;
  std::int64_t stride;
  std::int64_t count;
  std::int64_t columns;

  const float* row(std::int64_t r) const { return data + r * stride; }

  Rows part(std::int64_t first, std::int64_t size) const {
    return {row(first), stride, size, columns};
  }
};

/// The scratch memory of one call, handed out piece by piece.
class Pieces {
 public:
  explicit Pieces(float* data) : next_(data) {}

  float* take(std::int64_t floats) { return std::exchange(next_, next_ + floats); }

 private:
  float* next_;
};

/// to (columns / kTileWidth, panel_rows, kTileWidth) = factor x, zeros beyond the last column.
void pack_panels(const Rows& x, float factor, std::int64_t panel_rows, float* to) {
  for (std::int64_t column = 0; column < x.columns;
       column += kTileWidth, to += panel_rows * kTileWidth) {
    const std::int64_t width = std::min(kTileWidth, x.columns - column);
    for (std::int64_t r = 0; r < x.count; ++r) {
      const float* from = x.row(r) + column;
      float* row = to + r * kTileWidth;
      if (width == kTileWidth) {
        for (std::int64_t i = 0; i < kTileWidth; i += kLanes) {
          store(row + i, factor * load(from + i));
        }
      } else {
        for (std::int64_t i = 0; i < kTileWidth; ++i) {
          row[i] = i < width ? factor * from[i] : 0.0f;
        }
      }
    }
  }
}

/// to (columns, kTileWidth) = factor x transposed, zeros beyond the last of at most kTileWidth rows.
void pack_transposed(const Rows& x, float factor, float* to) {
  const std::int64_t whole_rows = x.count / kLanes * kLanes;
  const std::int64_t whole_columns = x.columns / kLanes * kLanes;
  for (std::int64_t r = 0; r < whole_rows; r += kLanes) {
    for (std::int64_t c = 0; c < whole_columns; c += kLanes) {
      Floats square[kLanes];
      for (std::int64_t i = 0; i < kLanes; ++i) {
        square[i] = factor * load(x.row(r + i) + c);
      }
      transpose(square);
      for (std::int64_t i = 0; i < kLanes; ++i) {
        store(to + (c + i) * kTileWidth + r, square[i]);
      }
    }
  }
  for (std::int64_t c = 0; c < x.columns; ++c) {
    for (std::int64_t r = c < whole_columns ? whole_rows : 0; r < kTileWidth; ++r) {
      to[c * kTileWidth + r] = r < x.count ? factor * x.row(r)[c] : 0.0f;
    }
  }
}

/// out[r, q] = the sum over columns c of x[r, c] packed[c, q]. Shapes: packed (columns, kTileWidth),
/// rows of out `out_row` apart.
void multiply_rows(const Rows& x, const float* packed, float* out, std::int64_t out_row) {
  for_each_piece<kRowsApart>(x.count, [&](std::int64_t first, auto rows) {
    Tile<Floats, rows, kTileVectors> tile;
    tile.clear();
    tile.add_product(x.columns, x.row(first), RowsApart{x.stride}, 1, packed, kTileWidth);
    tile.write(out + first * out_row, out_row);
  });
}

/// to[q, c] = factor(q) sum_j p[j, q] packed[j, c] for queries [0, count), j in [0, keys). Shapes:
/// packed (columns / kTileWidth, panel_rows, kTileWidth), rows of p `p_row` apart, of `to` to.stride.
template <class Factor>
void multiply_columns(const float* p,
                      std::int64_t p_row,
                      std::int64_t count,
                      std::int64_t keys,
                      const float* packed,
                      std::int64_t panel_rows,
                      Factor factor,
                      float* to,
                      std::int64_t to_row,
                      std::int64_t columns) {
  for_each_piece<kTileRows>(count, [&](std::int64_t first, auto rows) {
    const float* panel = packed;
    for (std::int64_t c = 0; c < columns; c += kTileWidth, panel += panel_rows * kTileWidth) {
      Tile<Floats, rows, kTileVectors> tile;
      tile.clear();
      tile.add_product(keys, p + first, RowsSideBySide{}, p_row, panel, kTileWidth);
      tile.for_each([&](const Floats& sum, int r, int v) {
        const std::int64_t left = columns - c - v * kLanes;
        float* out = to + (first + r) * to_row + c + v * kLanes;
        const Floats result = sum * factor(first + r);
        if (left >= kLanes) {
          store(out, result);
        } else {
          store_part(out, result, std::max<std::int64_t>(left, 0));
        }
      });
    }
  });
}

/// p[j, q] = exp(p[j, q] - largest[q]) for the keys j <= first + q and 0 for the others, and their
/// sums. Row j of p is key j, column q is query first + q.
void exponentials(
    float* p, std::int64_t keys, std::int64_t first, PerQuery& largest, PerQuery& sum) {
  const auto mask = [&](float value) {
    for (std::int64_t j = first + 1; j < keys; ++j) {
      std::fill_n(p + j * kTileWidth, j - first, value);
    }
  };
  mask(-std::numeric_limits<float>::infinity());
  for (std::int64_t at = 0; at < kTileWidth; at += kLanes) {
    Floats most = broadcast(-std::numeric_limits<float>::infinity());
    for (std::int64_t j = 0; j < keys; ++j) {
      const Floats score = load(p + j * kTileWidth + at);
      most = score > most ? score : most;
    }
    Floats total{};
    for (std::int64_t j = 0; j < keys; ++j) {
      const Floats e = exponential(load(p + j * kTileWidth + at) - most);
      store(p + j * kTileWidth + at, e);
      total += e;
    }
    store(largest.data() + at, most);
    store(sum.data() + at, total);
  }
  // What exp makes of the masked ones, 1e-38, has been lost in the sums.
  mask(0.0f);
}

/// The sum of a[i] b[i].
float dot(const float* a, const float* b, std::int64_t n) {
  Floats sum{};
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    sum += load(a + i) * load(b + i);
  }
  sum += load_part(a + i, n - i) * load_part(b + i, n - i);
  float total = 0.0f;
  for (int lane = 0; lane < kLanes; ++lane) {
    total += sum[lane];
  }
  return total;
}

/// p[j, q] becomes the probability exp(p[j, q] - log_sum[q]), and dp[j, q], its gradient, that of
/// the score. Both 0 where key j is behind query first + q.
void score_gradient(float* p,
                    float* dp,
                    std::int64_t keys,
                    std::int64_t first,
                    const PerQuery& log_sum,
                    const PerQuery& delta) {
  for (std::int64_t at = 0; at < kTileWidth; at += kLanes) {
    const Floats shift = load(log_sum.data() + at);
    const Floats mean = load(delta.data() + at);
    for (std::int64_t j = 0; j < keys; ++j) {
      float* probability = p + j * kBlock + at;
      float* gradient = dp + j * kBlock + at;
      const Floats e = exponential(load(probability) - shift);
      store(probability, e);
      store(gradient, e * (load(gradient) - mean));
    }
  }
  for (std::int64_t j = first + 1; j < keys; ++j) {
    std::fill_n(p + j * kBlock, j - first, 0.0f);
    std::fill_n(dp + j * kBlock, j - first, 0.0f);
  }
}

/// to[j, c] += the sum over i in [0, queries) of p[j, i] packed[i, c] for the keys [0, keys), where
/// p[j, i] is not 0. Shapes: p (keys, kBlock), to (columns / kTileWidth, T, kTileWidth), packed (columns /
/// kTileWidth, kBlock, kTileWidth). Query 0 is behind key `first`.
void add_to_keys(const float* p,
                 std::int64_t keys,
                 std::int64_t first,
                 std::int64_t queries,
                 const float* packed,
                 std::int64_t columns,
                 std::int64_t T,
                 float* to) {
  for_each_piece<kTileRows>(keys, [&](std::int64_t key, auto rows) {
    const std::int64_t seen_from = std::max<std::int64_t>(key - first, 0) / kTileWidth * kTileWidth;
    for (std::int64_t panel = 0; panel * kTileWidth < columns; ++panel) {
      float* sums = to + (panel * T + key) * kTileWidth;
      Tile<Floats, rows, kTileVectors> tile;
      tile.for_each(
          [&](Floats& sum, int r, int v) { sum = load(sums + r * kTileWidth + v * kLanes); });
      tile.add_product(queries - seen_from,
                       p + key * kBlock + seen_from,
                       RowsEvery<static_cast<int>(kBlock)>{},
                       1,
                       packed + (panel * kBlock + seen_from) * kTileWidth,
                       kTileWidth);
      tile.write(sums, kTileWidth);
    }
  });
}

/// to[r, c] = panels[c / kTileWidth, r, c % kTileWidth].
void unpack_panels(
    const float* panels, std::int64_t rows, std::int64_t columns, float* to, std::int64_t to_row) {
  for (std::int64_t c = 0; c < columns; c += kTileWidth, panels += rows * kTileWidth) {
    const std::int64_t width = std::min(kTileWidth, columns - c);
    for (std::int64_t r = 0; r < rows; ++r) {
      const float* from = panels + r * kTileWidth;
      float* row = to + r * to_row + c;
      if (width == kTileWidth) {
        for (std::int64_t i = 0; i < kTileWidth; i += kLanes) {
          store(row + i, load(from + i));
        }
      } else {
        std::copy_n(from, width, row);
      }
    }
  }
}

struct Sizes {
  std::int64_t B;
  std::int64_t T;
  std::int64_t C;
  std::int64_t heads;
  std::int64_t D;      // C / heads
  std::int64_t group;  // heads that share keys and values
  std::int64_t W;      // columns of qkv
  bool causal;
  float scale;  // 1 / sqrt(D)

  Sizes(const AttentionForm& form, const Tensor& y)
      : B(y.shape()[0]),
        T(y.shape()[1]),
        C(y.shape()[2]),
        heads(form.heads),
        D(C / heads),
        group(heads / form.key_heads()),
        W(C + 2 * C / group),
        causal(form.causal),
        scale(1.0f / std::sqrt(static_cast<float>(D))) {}

  /// How many keys the queries before `end` see.
  std::int64_t keys_of(std::int64_t end) const { return causal ? end : T; }

  /// The last key that this query sees; T, behind all keys, where it sees them all.
  std::int64_t seen_by(std::int64_t query) const { return causal ? query : T; }

  /// Head h of sequence b in a (B, T, width) tensor, from `column` on.
  Rows head(const Tensor& x, std::int64_t b, std::int64_t h, std::int64_t column) const {
    const std::int64_t width = x.shape()[2];
    return {x.data<float>() + b * T * width + column + h * D, width, T, D};
  }
};

}  // namespace

void attention_forward(Stream& stream,
                       const AttentionForm& form,
                       const Tensor& qkv,
                       const Tensor& y,
                       const Tensor& log_sum) {
  const Sizes s(form, y);
  Pieces scratch(stream.cpu().scratch(padded(s.D) * s.T + (s.D + s.T) * kTileWidth));
  float* values = scratch.take(padded(s.D) * s.T);  // (panels, T, kTileWidth)
  float* queries = scratch.take(s.D * kTileWidth);  // (D, kTileWidth)
  float* p = scratch.take(s.T * kTileWidth);        // (T, kTileWidth)
  for (std::int64_t b = 0; b < s.B; ++b) {
    for (std::int64_t h = 0; h < s.heads; ++h) {
      const Rows q = s.head(qkv, b, h, 0);
      const Rows k = s.head(qkv, b, h / s.group, s.C);
      if (h % s.group == 0) {
        pack_panels(s.head(qkv, b, h / s.group, (s.C + s.W) / 2), 1.0f, s.T, values);
      }
      float* out = y.data<float>() + b * s.T * s.C + h * s.D;
      float* log_sum_of = log_sum.data<float>() + (b * s.heads + h) * s.T;
      for (std::int64_t first = 0; first < s.T; first += kTileWidth) {
        const std::int64_t count = std::min(kTileWidth, s.T - first);
        const std::int64_t keys = s.keys_of(first + count);
        pack_transposed(q.part(first, count), s.scale, queries);
        multiply_rows(k.part(0, keys), queries, p, kTileWidth);
        PerQuery largest;
        PerQuery sum;
        exponentials(p, keys, s.seen_by(first), largest, sum);
        multiply_columns(
            p,
            kTileWidth,
            count,
            keys,
            values,
            s.T,
            [&](std::int64_t i) { return 1.0f / sum[static_cast<std::size_t>(i)]; },
            out + first * s.C,
            s.C,
            s.D);
        for (std::int64_t i = 0; i < count; ++i) {
          const auto at = static_cast<std::size_t>(i);
          log_sum_of[first + i] = largest[at] + std::log(sum[at]);
        }
      }
    }
  }
}

void attention_backward(Stream& stream, const AttentionGradient& a) {
  const Sizes s(a.form, a.y);
  const std::int64_t panels = padded(s.D);  // floats a row, of all panels
  Pieces scratch(stream.cpu().scratch(3 * panels * s.T + 2 * panels * kBlock +
                                      2 * s.D * kTileWidth + 2 * s.T * kBlock));
  float* keys_packed = scratch.take(panels * s.T);             // (panels, T, kTileWidth)
  float* key_gradient = scratch.take(panels * s.T);            // (panels, T, kTileWidth)
  float* value_gradient = scratch.take(panels * s.T);          // (panels, T, kTileWidth)
  float* queries_packed = scratch.take(panels * kBlock);       // (panels, kBlock, kTileWidth)
  float* dy_packed = scratch.take(panels * kBlock);            // (panels, kBlock, kTileWidth)
  float* queries_transposed = scratch.take(s.D * kTileWidth);  // (D, kTileWidth)
  float* dy_transposed = scratch.take(s.D * kTileWidth);       // (D, kTileWidth)
  float* p = scratch.take(s.T * kBlock);                       // (T, kBlock)
  float* dp = scratch.take(s.T * kBlock);                      // (T, kBlock)
  for (std::int64_t b = 0; b < s.B; ++b) {
    for (std::int64_t h = 0; h < s.heads; ++h) {
      const std::int64_t kv = h / s.group;
      const Rows q = s.head(a.qkv, b, h, 0);
      const Rows k = s.head(a.qkv, b, kv, s.C);
      const Rows v = s.head(a.qkv, b, kv, (s.C + s.W) / 2);
      const Rows out = s.head(a.y, b, h, 0);
      const Rows dout = s.head(a.dy, b, h, 0);
      const float* log_sum_of = a.log_sum.data<float>() + (b * s.heads + h) * s.T;
      float* dqkv = a.dqkv.data<float>() + b * s.T * s.W;
      float* dq = dqkv + h * s.D;
      if (h % s.group == 0) {
        pack_panels(k, 1.0f, s.T, keys_packed);
        std::fill_n(key_gradient, panels * s.T, 0.0f);
        std::fill_n(value_gradient, panels * s.T, 0.0f);
      }
      for (std::int64_t first = 0; first < s.T; first += kBlock) {
        const std::int64_t count = std::min(kBlock, s.T - first);
        pack_panels(q.part(first, count), s.scale, kBlock, queries_packed);
        pack_panels(dout.part(first, count), 1.0f, kBlock, dy_packed);
        for (std::int64_t at = 0; at < count; at += kTileWidth) {
          const std::int64_t some = std::min(kTileWidth, count - at);
          const std::int64_t query = first + at;
          const std::int64_t keys = s.keys_of(query + some);
          PerQuery log_sums{};
          PerQuery delta{};
          for (std::int64_t i = 0; i < some; ++i) {
            log_sums[static_cast<std::size_t>(i)] = log_sum_of[query + i];
            delta[static_cast<std::size_t>(i)] = dot(dout.row(query + i), out.row(query + i), s.D);
          }
          pack_transposed(q.part(query, some), s.scale, queries_transposed);
          pack_transposed(dout.part(query, some), 1.0f, dy_transposed);
          multiply_rows(k.part(0, keys), queries_transposed, p + at, kBlock);
          multiply_rows(v.part(0, keys), dy_transposed, dp + at, kBlock);
          score_gradient(p + at, dp + at, keys, s.seen_by(query), log_sums, delta);
          for (std::int64_t j = keys; j < s.keys_of(first + count); ++j) {
            std::fill_n(p + j * kBlock + at, kTileWidth, 0.0f);
            std::fill_n(dp + j * kBlock + at, kTileWidth, 0.0f);
          }
          multiply_columns(
              dp + at,
              kBlock,
              some,
              keys,
              keys_packed,
              s.T,
              [&](std::int64_t) { return s.scale; },
              dq + query * s.W,
              s.W,
              s.D);
        }
        const std::int64_t keys = s.keys_of(first + count);
        const std::int64_t seen = s.seen_by(first);
        add_to_keys(p, keys, seen, count, dy_packed, s.D, s.T, value_gradient);
        add_to_keys(dp, keys, seen, count, queries_packed, s.D, s.T, key_gradient);
      }
      if ((h + 1) % s.group == 0) {
        float* to = dqkv + kv * s.D;
        unpack_panels(key_gradient, s.T, s.D, to + s.C, s.W);
        unpack_panels(value_gradient, s.T, s.D, to + (s.C + s.W) / 2, s.W);
      }
    }
  }
}

}  // namespace troupe::cpu::TROUPE_ISA
