// Messages by kernels against the host's loops, whose words they are to be.
#include "kernels/codes.hpp"
#include "tests/kernels/coding_fixture.hpp"

#include <algorithm>
#include <cstring>

namespace coding_test {

using namespace troupe;
using namespace troupe::test;

namespace {

void halves_by_loops(const MessageCode& code, const Floats& x, WordList& words) {
  const bool halves = code.kind == CodeKind::halves;
  (halves ? codes::to_halves : codes::to_bfloats)(x.data(),
                                                  reinterpret_cast<std::uint16_t*>(words.data()),
                                                  static_cast<std::int64_t>(x.size()));
}

void blocks_by_loops(const MessageCode& code, const Floats& x, WordList& words) {
  const auto n = static_cast<std::int64_t>(x.size());
  const float most = code.kind == CodeKind::int8 ? 127.0f : 7.0f;
  const std::int64_t blocks = (n + code.block - 1) / code.block;
  std::vector<std::uint32_t> draws;
  for (std::uint64_t i = 0; i < x.size(); ++i) {
    draws.push_back(static_cast<std::uint32_t>(kRandom.bits(i) >> 32));
  }
  std::vector<std::int8_t> whole(x.size());
  for (std::int64_t b = 0; b < blocks; ++b) {
    const std::int64_t first = b * code.block;
    const std::int64_t size = std::min(code.block, n - first);
    float factor = codes::greatest(x.data() + first, size) / most;
    float inverse = 1 / factor;
    if (!std::isfinite(inverse)) {
      factor = inverse = 0;
    }
    words[static_cast<std::size_t>(b)] = std::bit_cast<std::uint32_t>(factor);
    std::int8_t* const to = whole.data() + first;
    code.random
        ? codes::to_int8_at_random(x.data() + first, inverse, most, draws.data() + first, to, size)
        : codes::to_int8(x.data() + first, inverse, most, to, size);
  }
  auto* const numbers = reinterpret_cast<std::uint8_t*>(words.data() + blocks);
  if (code.kind == CodeKind::int4) {
    codes::pack_int4(whole.data(), numbers, n);
  } else if (n > 0) {
    std::memcpy(numbers, whole.data(), x.size());
  }
}

void signs_by_loops(const MessageCode& code, const Floats& x, WordList& words) {
  std::size_t at = 0;
  for (const MessageRows& rows : code.rows) {
    for (std::int64_t r = 0; r < rows.count; ++r) {
      const codes::Signs sums =
          codes::sums_by_sign(x.data() + rows.offset + r * rows.size, rows.size);
      const auto mean = [](double sum, std::int64_t count) {
        return std::bit_cast<std::uint32_t>(
            count > 0 ? static_cast<float>(sum / static_cast<double>(count)) : 0.0f);
      };
      words[at++] = mean(sums.positive, rows.size - sums.negatives);
      words[at++] = mean(sums.negative, sums.negatives);
    }
  }
  codes::signs_of(x.data(), words.data() + at, static_cast<std::int64_t>(x.size()));
}

/// The message with its host loops.
WordList by_loops(const MessageCode& code, const Floats& x) {
  WordList words(static_cast<std::size_t>(code.words(static_cast<std::int64_t>(x.size()))));
  code.kind == CodeKind::signs ? signs_by_loops(code, x, words)
  : code.block > 0             ? blocks_by_loops(code, x, words)
                               : halves_by_loops(code, x, words);
  return words;
}

}  // namespace

TEST_CASE("kernels make the words of the host's loops", "[kernels]") {
  Stream stream{Device{}};
  for (const std::int64_t n : kSizes) {
    const Floats x = odd_numbers(n);
    for (const MessageCode& code : exact_codes()) {
      INFO(name_of(code, n));
      const Tensor message = stream.allocate({code.words(n)}, DType::int32);
      encode_message(stream, code, tensor(stream, x), message);
      CHECK(words_in(message) == by_loops(code, x));
    }
  }
}

TEST_CASE("signs are the loops', and their means up to the order of the sums", "[kernels]") {
  Stream stream{Device{}};
  for (const std::int64_t n : kSizes) {
    const std::vector<MessageRows> rows = rows_of(n);
    const MessageCode code{.kind = CodeKind::signs, .rows = rows};
    const Floats x = normal_numbers(n);
    const Tensor message = stream.allocate({code.words(n)}, DType::int32);
    encode_message(stream, code, tensor(stream, x), message);
    const WordList got = words_in(message);
    const WordList right = by_loops(code, x);
    const auto means = static_cast<std::ptrdiff_t>(2 * code.row_count());
    CHECK(WordList(got.begin() + means, got.end()) == WordList(right.begin() + means, right.end()));
    for (std::ptrdiff_t i = 0; i < means; ++i) {
      // The loops add 64 numbers in float32 before double takes over.
      const auto at = static_cast<std::size_t>(i);
      CHECK(std::bit_cast<float>(got[at]) ==
            Approx(std::bit_cast<float>(right[at])).epsilon(1e-5).margin(0));
    }
  }
}

TEST_CASE("what is sent and what is left are what was to be sent", "[kernels]") {
  Stream stream{Device{}};
  for (const std::int64_t n : kSizes) {
    Floats x = odd_numbers(n);
    const std::vector<MessageRows> rows = rows_of(n);
    std::vector<MessageCode> all = exact_codes();
    all.push_back({.kind = CodeKind::signs, .rows = rows});
    for (const MessageCode& code : all) {
      INFO(name_of(code, n));
      const Made made = make(stream, code, x);
      WordList sent;
      WordList left;
      for (std::size_t i = 0; i < x.size(); ++i) {
        const float sum = 0.3f * x[i] + 0.25f;
        sent.push_back(std::bit_cast<std::uint32_t>(sum));
        left.push_back(std::bit_cast<std::uint32_t>(sum - std::bit_cast<float>(made.decoded[i])));
      }
      CHECK(made.odd == 0);
      CHECK(made.sent == sent);
      CHECK(made.left == left);
    }
    if (n == 0) {
      continue;
    }
    // Where a number is not finite, what was left stays.
    x.back() = kInf;
    const Made odd = make(stream, {.kind = CodeKind::int8, .block = 64}, x);
    CHECK(odd.odd == 1);
    CHECK(odd.left == WordList(x.size(), std::bit_cast<std::uint32_t>(0.25f)));
  }
}

TEST_CASE("codes that are none are refused", "[kernels]") {
  Stream stream{Device{}};
  const Tensor x = stream.allocate({40});
  const Tensor message = stream.allocate({20}, DType::int32);
  const std::vector<MessageRows> rows{{0, 3, 13}};
  CHECK_THROWS_WITH(encode_message(stream, {.kind = CodeKind::int8, .block = 12}, x, message),
                    says("no multiple of 8"));
  CHECK_THROWS_WITH(encode_message(stream, {.kind = CodeKind::signs, .rows = rows}, x, message),
                    says("rows of 39 numbers for 40"));
  CHECK_THROWS_WITH(encode_message(stream, {.kind = CodeKind::halves}, x, x), says("int32"));
  CHECK_THROWS_WITH(
      decode_message(stream, {.kind = CodeKind::halves}, message, x.view(0, {39}).view(0, {3})),
      says("not"));
}

}  // namespace coding_test
