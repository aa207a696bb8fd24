// Numbers in texts.
#pragma once

#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>

namespace troupe {

/// The number that all of `text` is, as std::from_chars reads it; nothing where it is none, or T cannot hold it.
template <class T>
std::optional<T> numeral(std::string_view text) {
  T number{};
  const char* const end = text.data() + text.size();
  const auto [read, code] = std::from_chars(text.data(), end, number);
  return code == std::errc() && read == end ? std::optional(number) : std::nullopt;
}

}  // namespace troupe
