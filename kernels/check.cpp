#include "kernels/check.hpp"

namespace troupe {

std::string concat(const char* text) {
  return text;
}

void contract_failed(const char* condition, const std::string& message) {
  throw ContractError(message + " [" + condition + "]");
}

}  // namespace troupe
