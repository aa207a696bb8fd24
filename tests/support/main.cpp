#define CATCH_CONFIG_RUNNER
#include "tests/support/catch.hpp"
#include "tests/support/skip.hpp"

#include <iostream>
#include <set>

namespace {

constexpr int kSkipReturnCode = 4;

std::set<std::string>& skipped() {
  static std::set<std::string> reasons;
  return reasons;
}

}  // namespace

namespace troupe::test {

void skip(const std::string& reason) {
  if (skipped().insert(reason).second) {
    std::cout << "skipped: " << reason << '\n';
  }
}

}  // namespace troupe::test

int main(int argc, char** argv) {
  const int failed = Catch::Session().run(argc, argv);
  return failed == 0 && !skipped().empty() ? kSkipReturnCode : failed;
}
