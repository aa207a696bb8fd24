// Messages word for word, from the papers' and formats' definitions: one_bit's means and signs, E3M0's numbers, QSGD's
// recursive code.
#include "tests/runtime/schemes/codecs/codec_fixture.hpp"

#include <algorithm>
#include <bit>

namespace codec_vectors_test {

using namespace troupe;
using namespace troupe::test;

namespace {

using Words32 = std::vector<std::uint32_t>;

std::uint32_t word(float x) {
  return std::bit_cast<std::uint32_t>(x);
}

/// Of what a codec's messages make of x, by the root of the sums of squares.
double relative_error(const std::string& choice, const Numbers& x) {
  const Numbers got = Ends(choice, static_cast<std::int64_t>(x.size())).sent(x);
  double error = 0;
  double all = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    error += std::pow(static_cast<double>(got[i]) - static_cast<double>(x[i]), 2);
    all += std::pow(static_cast<double>(x[i]), 2);
  }
  return std::sqrt(error / all);
}

/// Elias' omega code by its definition: behind the code stands a 0; before it, as long as the number is not 1, its
/// binary digits, and the next number is how many of these there are, less 1.
std::string omega(std::uint32_t x) {
  std::string code = "0";
  while (x > 1) {
    std::string digits;
    for (std::uint32_t rest = x; rest > 0; rest /= 2) {
      digits.insert(digits.begin(), rest % 2 == 0 ? '0' : '1');
    }
    code = digits + code;
    x = static_cast<std::uint32_t>(digits.size()) - 1;
  }
  return code;
}

/// The first bit in the lowest bit of a word, ones behind the last.
Words32 packed(std::string bits) {
  bits.resize((bits.size() + 31) / 32 * 32, '1');
  Words32 words(bits.size() / 32);
  for (std::size_t i = 0; i < bits.size(); ++i) {
    words[i / 32] |= (bits[i] == '1' ? 1u : 0u) << (i % 32);
  }
  return words;
}

Words32 behind(const Words32& words, std::size_t skipped) {
  return {words.begin() + static_cast<std::ptrdiff_t>(skipped), words.end()};
}

}  // namespace

TEST_CASE("one_bit sends the mean of what is not negative, the mean of what is, and the signs",
          "[codecs]") {
  Ends ends("up=one_bit", 6);
  const Tensor first = ends.message({1, -2, 3, -5, 0.5F, -0.5F});
  CHECK(words_in(first) == Words32{word(1.5F), word(-2.5F), 0b101010});
  CHECK(ends.read(first) == Numbers{1.5F, -2.5F, 1.5F, -2.5F, 1.5F, -2.5F});
  CHECK(ends.left() == Numbers{-0.5F, 0.5F, 1.5F, -2.5F, -1, 2});
  // With what is left the second is of 0 0 2 0 -1 1.
  const Tensor second = ends.message({0.5F, -0.5F, 0.5F, 2.5F, 0, -1});
  CHECK(words_in(second) == Words32{word(0.6F), word(-1), 0b010000});
  CHECK(ends.left() == Numbers{-0.6F, -0.6F, 2 - 0.6F, -0.6F, 0, 1 - 0.6F});
}

TEST_CASE("one_bit has two means of each row of a matrix, and of what else there is", "[codecs]") {
  struct Row {
    std::size_t first = 0;
    std::size_t size = 0;
  };

  std::vector<Row> rows;  // of the fixture's slice
  for (std::size_t r = 0; r < 20; ++r) {
    rows.push_back({13 * r, 13});
  }
  rows.insert(rows.end(), {{260, 20}, {280, 8}});
  for (std::size_t r = 0; r < 7; ++r) {
    rows.push_back({288 + 20 * r, 20});
  }
  rows.insert(rows.end(), {{428, 7}, {435, 13}});
  const Numbers x = normal(kSlice, 40);
  Ends ends("up=one_bit");
  const Words32 words = words_in(ends.message(x));
  REQUIRE(words.size() == 2 * rows.size() + kSlice / 32);
  for (std::size_t r = 0; r < rows.size(); ++r) {
    double sums[2] = {};
    double counts[2] = {};
    for (std::size_t i = rows[r].first; i < rows[r].first + rows[r].size; ++i) {
      const int negative = x[i] < 0 ? 1 : 0;
      sums[negative] += static_cast<double>(x[i]);
      counts[negative] += 1;
      const std::uint32_t bits = words[2 * rows.size() + i / 32];
      CHECK(((bits >> (i % 32)) & 1u) == static_cast<std::uint32_t>(negative));
    }
    for (const std::size_t negative : {0, 1}) {
      const double mean = counts[negative] > 0 ? sums[negative] / counts[negative] : 0;
      CHECK(std::bit_cast<float>(words[2 * r + negative]) == Approx(mean).margin(1e-6));
    }
  }
}

TEST_CASE("E3M0 is a sign and an exponent, to the nearest of its fifteen numbers", "[codecs]") {
  // A block whose greatest is 16, so that its factor is 1. Ties go to the even exponent: of 0, 1/4, 1/2, ... to every
  // other one.
  const std::vector<std::pair<float, float>> nearest = {
      {16, 16},     {-16, -16},     {12.01F, 16},   {12, 8},        {11.99F, 8},   {6, 8},
      {5.99F, 4},   {-3, -2},       {3.01F, 4},     {1.5F, 2},      {1.49F, 1},    {0.75F, 0.5F},
      {-0.76F, -1}, {0.375F, 0.5F}, {0.37F, 0.25F}, {0.25F, 0.25F}, {0.2F, 0.25F}, {-0.13F, -0.25F},
      {0.125F, 0},  {0.12F, 0},     {1e-30F, 0},    {0, 0}};
  Numbers x;
  Numbers right;
  for (const auto& [in, out] : nearest) {
    x.push_back(in);
    right.push_back(out);
  }
  Ends ends("up=e3m0", static_cast<std::int64_t>(x.size()));
  CHECK(ends.sent(x) == right);
  // Factors are the greatest magnitude over 16, whatever that is.
  for (float& v : x) {
    v *= 0.25F;
  }
  for (float& v : right) {
    v *= 0.25F;
  }
  Ends scaled("up=e3m0", static_cast<std::int64_t>(x.size()));
  const Words32 words = words_in(scaled.message(x));
  CHECK(words.size() == 1 + 3);
  CHECK(words[0] == word(0.25F));
  CHECK(words[1] == 0xc56667f7);  // the first number in the lowest bits
  CHECK(scaled.read(words_tensor(scaled.stream, words)) == right);
}

TEST_CASE("every four bits are a number of E3M0", "[codecs]") {
  Ends ends("up=e3m0", 16);
  const Numbers got = ends.read(words_tensor(ends.stream, {word(3), 0x76543210, 0xfedcba98}));
  for (std::size_t code = 0; code < 16; ++code) {
    const double magnitude = code % 8 == 0 ? 0 : std::ldexp(1.0, static_cast<int>(code % 8) - 3);
    CHECK(got[code] == static_cast<float>(code < 8 ? 3 * magnitude : -3 * magnitude));
  }
}

TEST_CASE("E3M0 loses more of normal numbers than whole numbers do, and less of long tails",
          "[codecs]") {
  constexpr std::int64_t n = 1 << 16;
  const Numbers numbers = normal(n, 50);
  Numbers student = normal(n, 51);  // t with three degrees of freedom
  const Numbers squares[] = {normal(n, 52), normal(n, 53), normal(n, 54)};
  for (std::size_t i = 0; i < student.size(); ++i) {
    const float sum = squares[0][i] * squares[0][i] + squares[1][i] * squares[1][i] +
                      squares[2][i] * squares[2][i];
    student[i] /= std::sqrt(sum / 3);
  }
  CHECK(relative_error("up=int4_block", numbers) == Approx(0.107).margin(0.002));
  CHECK(relative_error("up=e3m0", numbers) == Approx(0.188).margin(0.002));
  // With so long tails a sample's error is its own.
  CHECK(relative_error("up=int4_block", student) == Approx(0.18).margin(0.01));
  CHECK(relative_error("up=e3m0", student) == Approx(0.163).margin(0.005));
}

TEST_CASE("QSGD's recursive code is of gaps, signs and levels in Elias' omega code", "[codecs]") {
  CHECK(omega(1) == "0");  // Elias 1975, table
  CHECK(omega(2) == "100");
  CHECK(omega(3) == "110");
  CHECK(omega(4) == "101000");
  CHECK(omega(8) == "1110000");
  CHECK(omega(16) == "10100100000");

  // One number that is not 0 is the norm, and has the greatest level.
  struct One {
    std::size_t place = 0;
    int levels = 1;
    bool negative = false;
    std::string bits;
  };

  for (const One& one : std::vector<One>{{0, 1, false, "000"},
                                         {1, 1, true, "10010"},
                                         {3, 2, true, "1010001100"},
                                         {15, 8, false, "1010010000001110000"},
                                         {99, 3, true, "10110110010001110"}}) {
    INFO(one.place << ", level " << one.levels);
    Numbers x(100);
    x[one.place] = one.negative ? -3.0F : 3.0F;
    Ends ends(concat("up.qsgd.coding=recursive up.qsgd.levels=", one.levels), 100);
    const Words32 words = words_in(ends.message(x));
    CHECK(words.front() == word(3));
    CHECK(behind(words, 1) == packed(one.bits));
    CHECK(ends.read(words_tensor(ends.stream, words)) == x);
  }
  Ends none("up.qsgd.coding=recursive", 100);
  CHECK(words_in(none.message(Numbers(100))) == Words32{0});
}

TEST_CASE(
    "QSGD's recursive code says what the others say, in an eighth of the bits where most are 0",
    "[codecs]") {
  struct Case {
    std::int64_t n = 0;
    int levels = 0;
    std::int64_t bucket = 0;
  };

  for (const auto& [n, levels, bucket] :
       {Case{10000, 1, 10000}, Case{10000, 16, 512}, Case{1000, 7, 64}, Case{33, 32767, 8}}) {
    INFO(n << " numbers, " << levels << " levels, buckets of " << bucket);
    const std::string key = concat("up.qsgd.levels=", levels, " up.qsgd.bucket=", bucket);
    const Numbers x = normal(n, 60);
    Ends elias(key, n);
    Ends recursive(key + " up.qsgd.coding=recursive", n);
    const Words32 gamma = words_in(elias.message(x));
    const Words32 words = words_in(recursive.message(x));
    const Numbers got = elias.read(words_tensor(elias.stream, gamma));
    CHECK(recursive.read(words_tensor(recursive.stream, words)) == got);
    const auto buckets = static_cast<std::size_t>((n + bucket - 1) / bucket);
    std::string bits;
    std::int64_t last = -1;
    std::int64_t sent = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      const float v = got[static_cast<std::size_t>(i)];
      const float norm = std::bit_cast<float>(words[static_cast<std::size_t>(i / bucket)]);
      const long level = std::lround(std::abs(v) / norm * static_cast<float>(levels));
      if (level > 0) {
        bits += omega(static_cast<std::uint32_t>(i - last)) + (v < 0 ? '1' : '0') +
                omega(static_cast<std::uint32_t>(level));
        last = i;
        ++sent;
      }
    }
    CHECK(Words32(words.begin(), words.begin() + static_cast<std::ptrdiff_t>(buckets)) ==
          Words32(gamma.begin(), gamma.begin() + static_cast<std::ptrdiff_t>(buckets)));
    CHECK(behind(words, buckets) == packed(bits));
    if (levels == 1) {
      // Each of the gamma codes: a bit for a 0, four for another.
      CHECK(static_cast<std::int64_t>(gamma.size()) == (32 + n + 3 * sent + 31) / 32);
      CHECK(sent > 60);
      CHECK(8 * bits.size() < static_cast<std::size_t>(n));
    }
  }
}

TEST_CASE("a recursive code that is none is refused", "[codecs]") {
  Ends ends("up.qsgd.coding=recursive up.qsgd.levels=3", 40);  // one norm
  const auto verdict = [&](const std::string& bits, const Words32& more = {}) {
    Words32 words{word(1)};
    const Words32 coded = packed(bits);
    words.insert(words.end(), coded.begin(), coded.end());
    words.insert(words.end(), more.begin(), more.end());
    const auto checked =
        check_message(ends.link.codec.get(), words_tensor(ends.stream, words), ends.n);
    return checked ? std::string() : checked.error().message;
  };
  const std::string first = omega(1) + "0" + omega(1);  // a number at the next place
  CHECK(verdict("") == "");
  CHECK(verdict(omega(40) + "1" + omega(3)) == "");
  CHECK_THAT(verdict(omega(41) + "1" + omega(3)), Catch::Contains("a place"));
  CHECK_THAT(verdict(omega(40) + "1" + omega(4)), Catch::Contains("a level"));
  CHECK_THAT(verdict(first + omega(40) + "1" + omega(1)), Catch::Contains("a place"));
  CHECK_THAT(verdict(omega(0xffffffff) + "1" + omega(1)), Catch::Contains("a place"));
  CHECK_THAT(verdict(omega(40) + "1" + omega(3) + std::string(20, '0')), Catch::Contains("ends"));
  // A word of ones where the message is at its end; and a code that goes on behind it.
  CHECK_THAT(verdict("", {0xffffffff}), Catch::Contains("does not exist"));
  CHECK_THAT(verdict(omega(40) + "1" + omega(3), {0xffffffff}), Catch::Contains("does not exist"));
  CHECK_THAT(verdict(std::string(28, '0') + "1010"), Catch::Contains("ends"));
  std::string all;
  for (int i = 0; i < 40; ++i) {
    all += first;
  }
  CHECK(verdict(all) == "");
  CHECK_THAT(verdict(all + first), Catch::Contains("a place"));
}

}  // namespace codec_vectors_test
