// Skipping: Catch2 v2 has no SKIP, so a test that lacks what it needs says so here and main() exits
// with ctest's SKIP_RETURN_CODE, unless another test case of the same binary failed.
#pragma once

#include <string>

namespace troupe::test {

/// Use as `if (!gpu) return skip("no GPU");` in a test case.
void skip(const std::string& reason);

}  // namespace troupe::test
