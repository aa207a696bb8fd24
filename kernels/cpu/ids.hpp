// What kernels say of an index that data brought.
#pragma once

#include <cstdint>

namespace troupe::cpu {

/// Throws ContractError: "[op] what 7 of row 3 is not in [0, 5)", unless 0 <= id < end.
void check_id(
    const char* op, const char* what, std::int64_t id, std::int64_t row, std::int64_t end);

}  // namespace troupe::cpu
