// Single values of an experiment: taking them out of a message, putting them in, reading and
// writing them as text, and what is legal. Private to messages/experiment*.cpp.
//
// `where` begins an error's sentence: "run.json:3: pipeline.stages".
#pragma once

#include "messages/experiment/schema.hpp"

#include <google/protobuf/message.h>

#include <array>
#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>

namespace troupe::schema {

using Enumerator = const pb::EnumValueDescriptor*;
using Scalar = std::variant<bool, std::int64_t, std::uint64_t, double, std::string, Enumerator>;

template <class T>
constexpr bool kIsNumber = std::is_arithmetic_v<T> && !std::is_same_v<T, bool>;

/// A value of a set field, or the default of an unset one. `index` is for lists.
Scalar load(const pb::Message& message, const pb::FieldDescriptor* field, int index = 0);
/// Sets a single value, or appends to a list.
void store(pb::Message& message, const pb::FieldDescriptor* field, const Scalar& scalar);

/// The shortest decimal that reads back as the same number.
template <class Number>
std::string number_text(Number number) {
  std::array<char, 32> text;
  return {text.data(), std::to_chars(text.data(), text.data() + text.size(), number).ptr};
}

std::string text_of(const Scalar& scalar);

/// `text`, without quotes, as a value of `field`. Its bounds are not checked.
Result<Scalar> read_scalar(const pb::FieldDescriptor& field,
                           std::string_view text,
                           const std::string& where);
/// "a whole number"
std::string noun_of(const pb::FieldDescriptor& field);

/// Takes the quotes off, if any; between them a backslash takes the next character as it is.
Result<std::string> without_quotes(std::string_view text, const std::string& where);
/// Sets a single value or a whole list ("[a,b]", "[]" or one element) from its text.
Result<void> assign(pb::Message& message,
                    const pb::FieldDescriptor* field,
                    std::string_view text,
                    const std::string& where);
/// Selects an alternative; the one that is already selected keeps its fields.
Result<void> choose(pb::Message& choice, std::string_view name, const std::string& where);

/// "1..64", ">= 1", "> 0", "> 0, <= 0.999" or "".
std::string bounds_of(const pb::FieldDescriptor& field);

enum class Bounds { ignored, checked };

/// Numbers finite and, if asked for, within bounds; texts UTF-8. `where` ends in ": " or is "".
Result<void> check_values(const pb::Message& message, Bounds bounds, const std::string& where);

}  // namespace troupe::schema
