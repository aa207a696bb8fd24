// Contract checks. A failed one is a bug of ours: nobody handles it, the actor dies and its cause
// is told.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

namespace troupe {

/// Something that Troupe itself promised did not hold. Never used for what users or peers send.
class ContractError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

template <class... Ts>
std::string concat(const Ts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

/// Not a template, nor inline: what the CPU kernels use must not be compiled along with them (kernels/CMakeLists.txt).
std::string concat(const char* text);

[[noreturn]] void contract_failed(const char* condition, const std::string& message);

}  // namespace troupe

/// TROUPE_CHECK(rows > 0, "[softmax] no rows: x is ", x.shape()). On in every build.
#define TROUPE_CHECK(condition, ...)                                        \
  do {                                                                      \
    if (!(condition)) [[unlikely]]                                          \
      ::troupe::contract_failed(#condition, ::troupe::concat(__VA_ARGS__)); \
  } while (false)
