// Codes of every kind, numbers of every kind, and all that kernels make of them.
#pragma once

#include "kernels/coding.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/reference.hpp"

#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

namespace troupe::test {

constexpr std::int64_t kSizes[] = {0, 1, 7, 31, 33, 64, 65, 1023, 4099, 70'001};
constexpr float kInf = std::numeric_limits<float>::infinity();
inline const RandomStream kRandom(3, Purpose::test, 5);

using Floats = std::vector<float>;
using WordList = std::vector<std::uint32_t>;

/// Normal numbers; some far beyond what a half holds, some subnormal, some zeros of either sign.
inline Floats odd_numbers(std::int64_t n) {
  const RandomStream random(1, Purpose::test, 2);
  Floats x;
  for (std::int64_t i = 0; i < n; ++i) {
    const auto v = static_cast<float>(random.normal(static_cast<std::uint64_t>(i)));
    constexpr float kScales[] = {1, 1e-3f, 1e6f, 1e-6f, 1e-40f, 3e38f};
    const bool rare = random.below(static_cast<std::uint64_t>(2 * n + i), 20) == 0;
    const float scale = rare ? kScales[i % 6] : i / 512 % 7 == 6 ? 0.0f : 1.0f;
    x.push_back(std::isfinite(v * scale) ? v * scale : v);
  }
  return x;
}

inline Floats normal_numbers(std::int64_t n) {
  Stream stream{Device{}};
  const Values x = to_host(normal_tensor(stream, 4, {n}));
  return {x.begin(), x.end()};
}

inline Tensor tensor(Stream& stream, const Floats& x) {
  return from_host(stream, x, {static_cast<std::int64_t>(x.size())});
}

inline WordList words_in(const Tensor& message) {
  WordList words;
  for (const double word : to_host(message)) {
    words.push_back(static_cast<std::uint32_t>(static_cast<std::int32_t>(word)));
  }
  return words;
}

/// The bits, so that a NaN is itself and -0 is not 0.
inline WordList bits_in(const Tensor& x) {
  WordList bits;
  for (const double v : to_host(x)) {
    bits.push_back(std::bit_cast<std::uint32_t>(static_cast<float>(v)));
  }
  return bits;
}

inline std::vector<MessageCode> exact_codes() {
  std::vector<MessageCode> all{{.kind = CodeKind::halves}, {.kind = CodeKind::bfloats}};
  for (const CodeKind kind : {CodeKind::int8, CodeKind::int4}) {
    for (const std::int64_t block : {8, 24, 64, 4096, 65536}) {
      all.push_back({.kind = kind, .block = block});
      all.push_back({.kind = kind, .block = block, .random = kRandom});
    }
  }
  return all;
}

/// Rows of several lengths, the last of them long; together n.
inline std::vector<MessageRows> rows_of(std::int64_t n) {
  std::vector<MessageRows> rows;
  std::int64_t offset = 0;
  const auto take = [&](std::int64_t size, std::int64_t count) {
    if (size > 0 && count > 0) {
      rows.push_back({offset, size, count});
      offset += size * count;
    }
  };
  take(1, std::min<std::int64_t>(n, 3));
  take(29, std::min<std::int64_t>((n - offset) / 29, 11));
  take(n - offset, 1);
  return rows;
}

inline std::string name_of(const MessageCode& code, std::int64_t n) {
  return concat("kind ",
                static_cast<int>(code.kind),
                ", block ",
                code.block,
                code.random ? ", at random, n " : ", n ",
                n);
}

/// Everything that the kernels make of x, whose first number is `offset` behind an aligned address.
struct Made {
  WordList sent, message, left, decoded;
  std::int32_t odd;
};

inline Made make(Stream& stream,
                 const MessageCode& code,
                 const Floats& x,
                 std::int64_t offset = 0) {
  const auto n = static_cast<std::int64_t>(x.size());
  Floats shifted(static_cast<std::size_t>(offset), kInf);
  shifted.insert(shifted.end(), x.begin(), x.end());
  const Tensor update = tensor(stream, shifted).view(offset, {n});
  const Tensor left = tensor(stream, Floats(x.size(), 0.25f));
  const Tensor sent = stream.allocate({n});
  const Tensor odd = stream.allocate({1}, DType::int32);
  const Tensor message = stream.allocate({code.words(n)}, DType::int32);
  const Tensor out = stream.allocate({n});
  add_left(stream, update, 0.3f, left, sent, odd);
  encode_message(stream, code, sent, message);
  decode_message(stream, code, message, out);
  keep_left(stream, code, message, sent, odd, left);
  return {bits_in(sent),
          words_in(message),
          bits_in(left),
          bits_in(out),
          static_cast<std::int32_t>(to_host(odd)[0])};
}

}  // namespace troupe::test
