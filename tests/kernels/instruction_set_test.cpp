#include "kernels/instruction_set.hpp"

#include "kernels/codes.hpp"
#include "tests/support/catch.hpp"

#include <cstdlib>
#include <string_view>
#include <vector>

namespace instruction_set_test {

using namespace troupe;
using troupe::test::says;

constexpr InstructionSupport kNeither{};
constexpr InstructionSupport kAvx2{.v3 = true};
constexpr InstructionSupport kAvx512{.v3 = true, .v4 = true};

TEST_CASE("the higher set that there is, unless the lower one is wanted", "[kernels]") {
  CHECK(*choose_instruction_set(kAvx512, "") == InstructionSet::v4);
  CHECK(*choose_instruction_set(kAvx512, "v4") == InstructionSet::v4);
  CHECK(*choose_instruction_set(kAvx512, "v3") == InstructionSet::v3);
  CHECK(*choose_instruction_set(kAvx2, "") == InstructionSet::v3);
  CHECK(*choose_instruction_set(kAvx2, "v3") == InstructionSet::v3);
}

TEST_CASE("what there is not is refused, whoever wants it", "[kernels]") {
  const auto refused = [](InstructionSupport support, const char* wanted) {
    const auto set = choose_instruction_set(support, wanted);
    REQUIRE_FALSE(set);
    CHECK(set.error().kind == ErrorKind::usage);
    return set.error().message;
  };
  CHECK_THAT(refused(kNeither, ""), says("lacks AVX2"));
  CHECK_THAT(refused(kNeither, "v3"), says("lacks AVX2"));
  CHECK_THAT(refused(kAvx2, "v4"),
             says("TROUPE_ISA is \"v4\"; use v3, as this machine has no AVX-512"));
  CHECK_THAT(refused(kAvx512, "avx2"), says("TROUPE_ISA is \"avx2\"; use v3 or v4"));
}

TEST_CASE("TROUPE_ISA is followed", "[kernels]") {
  REQUIRE(check_instruction_set());
  const char* const wanted = std::getenv("TROUPE_ISA");
  const std::string used = to_string(instruction_set());
  CHECK_FALSE(used.empty());
  if (wanted && *wanted && instruction_set() != InstructionSet::one) {
    CHECK(used == std::string("x86-64-") + wanted);
  }
}

TEST_CASE("many numbers are drawn as one by one, with any instructions", "[kernels]") {
  const RandomStream random(5, Purpose::test, 7);
  for (const std::int64_t n : {0, 1, 7, 8, 31, 1000}) {
    std::vector<std::uint32_t> drawn(static_cast<std::size_t>(n));
    const std::int64_t first = (std::int64_t{1} << 33) - 500;
    codes::draw(random, first, drawn.data(), n);
    for (std::int64_t i = 0; i < n; ++i) {
      REQUIRE(drawn[static_cast<std::size_t>(i)] ==
              random.bits(static_cast<std::uint64_t>(first + i)) >> 32);
    }
  }
}

}  // namespace instruction_set_test
