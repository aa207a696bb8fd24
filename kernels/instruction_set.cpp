#include "kernels/instruction_set.hpp"

#include "kernels/wording.hpp"

#include <cstdlib>

namespace troupe {
namespace {

Result<InstructionSet> chosen() {
#ifdef TROUPE_ONE_ISA
  return InstructionSet::one;
#else
  const char* const wanted = std::getenv("TROUPE_ISA");
  return choose_instruction_set({.v3 = __builtin_cpu_supports("x86-64-v3") > 0,
                                 .v4 = __builtin_cpu_supports("x86-64-v4") > 0},
                                wanted ? wanted : "");
#endif
}

const Result<InstructionSet>& chosen_once() {
  static const Result<InstructionSet> once = chosen();
  return once;
}

}  // namespace

Result<InstructionSet> choose_instruction_set(InstructionSupport support, std::string_view wanted) {
  if (!support.v3) {
    return usage_error(
        "this machine lacks AVX2 and FMA (x86-64-v3), which Troupe needs: it runs on processors of "
        "2015 and later");
  }
  if (wanted.empty()) {
    return support.v4 ? InstructionSet::v4 : InstructionSet::v3;
  }
  if (wanted == "v3") {
    return InstructionSet::v3;
  }
  if (wanted == "v4" && support.v4) {
    return InstructionSet::v4;
  }
  return usage_error("TROUPE_ISA is \"{}\"; use {}",
                     wanted,
                     support.v4 ? "v3 or v4" : "v3, as this machine has no AVX-512");
}

Result<void> check_instruction_set() {
  TROUPE_TRY(chosen_once());
  return {};
}

InstructionSet instruction_set() {
  static const InstructionSet set = chosen_once().value();
  return set;
}

std::string to_string(InstructionSet set) {
  switch (set) {
    case InstructionSet::v3:
      return "x86-64-v3";
    case InstructionSet::v4:
      return "x86-64-v4";
    case InstructionSet::one:
#ifdef TROUPE_ONE_ISA
      return TROUPE_ONE_ISA;
#else
      break;
#endif
  }
  return "";
}

}  // namespace troupe
