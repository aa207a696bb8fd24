#include "runtime/record/json.hpp"

#include <array>
#include <charconv>
#include <cmath>

namespace troupe {

std::string json_string(std::string_view text) {
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out.append(1, '\\').append(1, c);
    } else if (c == '\n') {
      out += "\\n";
    } else if (byte < 0x20) {
      out.append("\\u00").append(1, kHex[byte >> 4]).append(1, kHex[byte & 15]);
    } else {
      out.push_back(c);
    }
  }
  return out + '"';
}

std::string json_number(double number) {
  if (!std::isfinite(number)) {
    return "null";
  }
  std::array<char, 32> text;
  const auto end = std::to_chars(text.data(), text.data() + text.size(), number).ptr;
  return {text.data(), end};
}

JsonObject& JsonObject::raw(std::string_view key, std::string_view json) {
  const bool lines = layout_ == Layout::line_a_member;
  if (!members_.empty()) {
    members_.push_back(',');
  }
  members_.append(lines ? "\n  " : "")
      .append(json_string(key))
      .append(lines ? ": " : ":")
      .append(json);
  return *this;
}

std::string JsonObject::text() const {
  const bool lines = layout_ == Layout::line_a_member && !members_.empty();
  return '{' + members_ + (lines ? "\n}" : "}");
}

}  // namespace troupe
