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
  // Catch returns how many assertions failed: four of them must not look like a skip.
  if (Catch::Session().run(argc, argv) != 0) {
    return 1;
  }
  return skipped().empty() ? 0 : kSkipReturnCode;
}
