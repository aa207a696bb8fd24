#include "kernels/instruction_set.hpp"

#include "tests/support/catch.hpp"

#include <cstdlib>
#include <string_view>

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
  CHECK_THAT(refused(kAvx2, "v4"), says("right on this machine is v3, as it has no"));
  CHECK_THAT(refused(kAvx512, "avx2"), says("\"avx2\"; right on this machine is v3 or v4"));
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

}  // namespace instruction_set_test
