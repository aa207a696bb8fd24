#include "messages/experiment/source.hpp"

#include <algorithm>

namespace troupe::schema {

std::string Source::at(std::size_t offset) const {
  const std::string_view before = text.substr(0, offset);
  return origin + ':' + std::to_string(1 + std::count(before.begin(), before.end(), '\n'));
}

std::string adapted(std::string_view message) {
  constexpr std::size_t kShownMax = 200;
  std::string out = legible(message.substr(0, message.find_last_not_of(". \n") + 1), kShownMax);
  const auto is_lower = [](char c) {
    return c >= 'a' && c <= 'z';
  };
  if (out.size() > 1 && out[0] >= 'A' && out[0] <= 'Z' && is_lower(out[1])) {
    out[0] = static_cast<char>(out[0] - 'A' + 'a');
  }
  for (std::size_t stop = out.find(". "); stop != out.npos; stop = out.find(". ", stop)) {
    out[stop] = ';';
  }
  return out;
}

}  // namespace troupe::schema
