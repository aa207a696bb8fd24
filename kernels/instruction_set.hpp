// Which instructions the CPU kernels use. They are compiled for two levels of x86-64, and the higher one that this
// machine has is chosen once; everything else is compiled for any x86-64.
#pragma once

#include "kernels/result.hpp"

#include <cstdint>
#include <string>
#include <string_view>

namespace troupe {

enum class InstructionSet : std::uint8_t {
  v3,   // x86-64-v3: AVX2, FMA
  v4,   // x86-64-v4: AVX-512 (F, BW, CD, DQ, VL)
  one,  // the only one of a build with TROUPE_ONE_ISA, or of one for another family of processors
};

/// What a processor and its system have.
struct InstructionSupport {
  bool v3 = false;
  bool v4 = false;
};

/// The higher one of `support`, or what `wanted` says: "v3" or "v4"; empty: nothing. Error (usage) where the machine has
/// not what is wanted, or has neither.
Result<InstructionSet> choose_instruction_set(InstructionSupport support, std::string_view wanted);

/// By this machine and the environment's TROUPE_ISA. Error (usage) as above: then no CPU kernel may run.
Result<void> check_instruction_set();

/// What the CPU kernels and oneDNN use in this process. Throws ContractError where check_instruction_set() is an error.
InstructionSet instruction_set();

/// "x86-64-v3"; "native" or what else TROUPE_ONE_ISA is.
std::string to_string(InstructionSet set);

}  // namespace troupe
