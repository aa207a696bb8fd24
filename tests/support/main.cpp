#define CATCH_CONFIG_RUNNER
#include "tests/support/catch.hpp"
#include "tests/support/skip.hpp"

#include <cstdlib>

namespace {

constexpr int kSkipReturnCode = 4;

}  // namespace

int main(int argc, char** argv) {
  // Programs that tests start leave no files where the tests run.
  ::setenv("TROUPE_RUNS", "none", 1);
  // Catch returns how many assertions failed: four of them must not look like a skip.
  if (Catch::Session().run(argc, argv) != 0) {
    return 1;
  }
  return troupe::test::skipped() ? kSkipReturnCode : 0;
}
