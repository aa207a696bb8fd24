#include "kernels/convert.hpp"

#include "tests/support/catch.hpp"
#include "tests/support/reference.hpp"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace convert_test {

using namespace troupe;
using namespace troupe::test;

namespace {

float float_of(std::uint32_t bits) {
  return std::bit_cast<float>(bits);
}

std::uint32_t bits_of(BFloat16 x) {
  return x.bits;
}

}  // namespace

TEST_CASE("bfloat16 is the nearest, ties to the even one", "[kernels]") {
  CHECK(bits_of(to_bfloat16(1.0f)) == 0x3f80);
  CHECK(bits_of(to_bfloat16(-2.0f)) == 0xc000);
  CHECK(bits_of(to_bfloat16(0.0f)) == 0x0000);
  CHECK(bits_of(to_bfloat16(-0.0f)) == 0x8000);
  CHECK(bits_of(to_bfloat16(float_of(0x3f807fff))) == 0x3f80);  // just below the middle
  CHECK(bits_of(to_bfloat16(float_of(0x3f808000))) == 0x3f80);  // the middle: 0x3f80 is even
  CHECK(bits_of(to_bfloat16(float_of(0x3f808001))) == 0x3f81);  // just above
  CHECK(bits_of(to_bfloat16(float_of(0x3f818000))) == 0x3f82);  // the middle: 0x3f81 is odd
  CHECK(bits_of(to_bfloat16(float_of(0xbf818000))) == 0xbf82);
  CHECK(bits_of(to_bfloat16(float_of(0x3fffffff))) == 0x4000);  // carries into the exponent
  CHECK(bits_of(to_bfloat16(float_of(0x00018000))) == 0x0002);  // subnormal
  // The greatest float is beyond the middle between the greatest bfloat16 and what would follow.
  CHECK(bits_of(to_bfloat16(std::numeric_limits<float>::max())) == 0x7f80);
  CHECK(bits_of(to_bfloat16(float_of(0x7f7f7fff))) == 0x7f7f);
  CHECK(bits_of(to_bfloat16(-std::numeric_limits<float>::infinity())) == 0xff80);
}

TEST_CASE("a NaN stays one in bfloat16, wherever its payload stands", "[kernels]") {
  for (const std::uint32_t bits :
       {0x7fc00000u, 0xffc00000u, 0x7f800001u, 0xff80ffffu, 0x7fffffffu}) {
    INFO(bits);
    const float there_and_back = to_float(to_bfloat16(float_of(bits)));
    CHECK(std::isnan(there_and_back));
    CHECK(std::signbit(there_and_back) == (bits >> 31 == 1));
  }
}

TEST_CASE("every bfloat16 survives the way to float32 and back", "[kernels]") {
  int changed = 0;
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const BFloat16 x{static_cast<std::uint16_t>(bits)};
    const bool nan = std::isnan(to_float(x));
    const std::uint32_t back = bits_of(to_bfloat16(to_float(x)));
    changed += back != (nan ? bits | 0x40u : bits);
  }
  CHECK(changed == 0);
}

TEST_CASE("rounding to bfloat16 errs by half a unit in its last place at most", "[kernels]") {
  for (const float x : normal_floats(1, 4099)) {
    const double error =
        std::abs(static_cast<double>(to_float(to_bfloat16(x))) - static_cast<double>(x));
    CHECK(error <= std::ldexp(1.0, std::ilogb(x) - 8));
  }
}

TEST_CASE("convert goes both ways, at any length and offset", "[kernels]") {
  Stream stream{Device{}};
  for (const std::int64_t n : {0, 1, 31, 33, 4099}) {
    for (const std::int64_t offset : {0, 1, 3}) {
      const Tensor x = normal_tensor(stream, 1, {n + offset}).view(offset, {n});
      const Tensor narrow = stream.allocate({n + offset}, DType::bfloat16).view(offset, {n});
      const Tensor wide = stream.allocate({n});
      convert(stream, x, narrow);
      convert(stream, narrow, wide);
      Values expected = to_host(x);
      for (double& value : expected) {
        value = static_cast<double>(to_float(to_bfloat16(static_cast<float>(value))));
      }
      CHECK(to_host(narrow) == expected);
      CHECK(to_host(wide) == expected);
    }
  }
}

TEST_CASE("convert wants one of each type, of one size", "[kernels]") {
  Stream stream{Device{}};
  const Tensor wide = stream.allocate({4});
  const Tensor narrow = stream.allocate({4}, DType::bfloat16);
  CHECK_THROWS_WITH(convert(stream, wide, wide), says("[convert] y is float32, not bfloat16"));
  CHECK_THROWS_WITH(convert(stream, narrow, narrow), says("[convert] y is bfloat16, not float32"));
  CHECK_THROWS_WITH(convert(stream, wide, stream.allocate({5}, DType::bfloat16)),
                    says("[convert] x is (4), y is (5)"));
  CHECK_THROWS_AS(convert(stream, stream.allocate({4}, DType::int32), wide), ContractError);
}

TEST_CASE("on a CPU a product's operand is the float32 tensor itself", "[kernels]") {
  Stream stream{Device{}};
  const Tensor x = normal_tensor(stream, 1, {7, 3});
  CHECK(operand(stream, x).data<float>() == x.data<float>());
  CHECK(stream.operand_type() == DType::float32);
  const Tensor narrow = stream.allocate({4}, DType::bfloat16);
  convert(stream, from_host(stream, std::vector<float>{1, 2, 3, 4}, {4}), narrow);
  CHECK(to_host(operand(stream, narrow)) == Values{1, 2, 3, 4});
}

}  // namespace convert_test
