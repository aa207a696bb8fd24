// JSON, written only. Numbers read back as the same bits; what JSON cannot say (infinities, NaN) is
// null.
#pragma once

#include <concepts>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace troupe {

/// `text` between quotes, with what needs an escape escaped.
std::string json_string(std::string_view text);
/// The shortest decimal that reads back as the same number; "null" where it is not finite.
std::string json_number(double number);

/// A member that is there, or is left out.
template <class T>
struct OnlyIf {
  bool there;
  T value;
};

/// Left out where it is empty.
template <class T>
OnlyIf<T> unless_empty(T list) {
  return {!list.empty(), std::move(list)};
}

/// One object, its members in the order in which they were added. A struct is a member by its `void tell(auto& json) const`,
/// which calls json(name, value) or json(name, value, what it means) for each of its own; what reads the meanings takes them
/// by the same calls (lines.hpp).
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

  template <class T>
  JsonObject& add(std::string_view key, const std::optional<T>& value) {
    return value ? add(key, *value) : raw(key, "null");
  }

  template <class T>
  JsonObject& add(std::string_view key, const OnlyIf<T>& value) {
    return value.there ? add(key, value.value) : *this;
  }

  template <class T>
  JsonObject& add(std::string_view key, const std::map<std::string, T>& values) {
    JsonObject all;
    for (const auto& [name, value] : values) {
      all.add(name, value);
    }
    return add(key, all);
  }

  template <class T>

  requires requires(const T& value, JsonObject& json) { value.tell(json); }

  JsonObject& add(std::string_view key, const T& value) {
    JsonObject all;
    value.tell(all);
    return add(key, all);
  }

  template <class T>
  JsonObject& operator()(std::string_view key, const T& value, const char* /*meaning*/ = "") {
    return add(key, value);
  }

  /// `json` is a JSON value already.
  JsonObject& raw(std::string_view key, std::string_view json);

  std::string text() const;

 private:
  Layout layout_;
  std::string members_;
};

/// {"shard-0": ..., "shard-1": ...}, in the order of their numbers.
template <class T>
JsonObject by_number(const char* what, const std::map<std::int32_t, T>& values) {
  JsonObject all;
  for (const auto& [number, value] : values) {
    all.add(what + ('-' + std::to_string(number)), value);
  }
  return all;
}

/// {"1": ..., "2": ...}
template <class T>
JsonObject by_place(const std::vector<T>& values, int first = 1) {
  JsonObject all;
  for (const T& value : values) {
    all.add(std::to_string(first++), value);
  }
  return all;
}

}  // namespace troupe
