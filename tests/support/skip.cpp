#include "tests/support/skip.hpp"

#include <iostream>
#include <set>

namespace troupe::test {
namespace {

std::set<std::string>& reasons() {
  static std::set<std::string> all;
  return all;
}

}  // namespace

void skip(const std::string& reason) {
  if (reasons().insert(reason).second) {
    std::cout << "skipped: " << reason << '\n';
  }
}

bool skipped() {
  return !reasons().empty();
}

}  // namespace troupe::test
