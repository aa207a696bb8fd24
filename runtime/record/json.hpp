// JSON, written only. Numbers read back as the same bits; what JSON cannot say (infinities, NaN) is
// null.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

namespace troupe {

/// `text` between quotes, with what needs an escape escaped.
std::string json_string(std::string_view text);
/// The shortest decimal that reads back as the same number; "null" where it is not finite.
std::string json_number(double number);

/// One object, its members in the order in which they were added.
class JsonObject {
 public:
  enum class Layout : std::uint8_t { one_line, line_a_member };

  explicit JsonObject(Layout layout = Layout::one_line) : layout_(layout) {}

  template <std::integral T>
  JsonObject& add(std::string_view key, T value) {
    if constexpr (std::is_same_v<T, bool>) {
      return raw(key, value ? "true" : "false");
    } else {
      return raw(key, std::to_string(value));
    }
  }

  JsonObject& add(std::string_view key, double value) { return raw(key, json_number(value)); }

  JsonObject& add(std::string_view key, std::string_view value) {
    return raw(key, json_string(value));
  }

  JsonObject& add(std::string_view key, const char* value) { return raw(key, json_string(value)); }

  JsonObject& add(std::string_view key, const std::string& value) {
    return raw(key, json_string(value));
  }

  JsonObject& add(std::string_view key, const JsonObject& value) { return raw(key, value.text()); }

  JsonObject& add_null(std::string_view key) { return raw(key, "null"); }

  /// `json` is a JSON value already.
  JsonObject& raw(std::string_view key, std::string_view json);

  std::string text() const;

 private:
  Layout layout_;
  std::string members_;
};

}  // namespace troupe
