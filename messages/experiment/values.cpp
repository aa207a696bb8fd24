#include "messages/experiment/values.hpp"

#include "experiment.pb.h"
#include "kernels/sequences.hpp"

#include <cmath>
#include <limits>
#include <system_error>
#include <utility>

namespace troupe::schema {

// -- in and out of messages ----------------------------------------------------------------------

Scalar load(const pb::Message& message, const pb::FieldDescriptor* field, int index) {
  const pb::Reflection& r = *message.GetReflection();
  const bool list = field->is_repeated();
  switch (field->cpp_type()) {
    case pb::FieldDescriptor::CPPTYPE_BOOL:
      return list ? r.GetRepeatedBool(message, field, index) : r.GetBool(message, field);
    case pb::FieldDescriptor::CPPTYPE_INT64:
      return list ? r.GetRepeatedInt64(message, field, index) : r.GetInt64(message, field);
    case pb::FieldDescriptor::CPPTYPE_UINT64:
      return list ? r.GetRepeatedUInt64(message, field, index) : r.GetUInt64(message, field);
    case pb::FieldDescriptor::CPPTYPE_DOUBLE:
      return list ? r.GetRepeatedDouble(message, field, index) : r.GetDouble(message, field);
    case pb::FieldDescriptor::CPPTYPE_STRING:
      return list ? r.GetRepeatedString(message, field, index) : r.GetString(message, field);
    case pb::FieldDescriptor::CPPTYPE_ENUM:
      return list ? r.GetRepeatedEnum(message, field, index) : r.GetEnum(message, field);
    default:
      contract_failed("type", "[experiment] a type that is not handled: " + field->full_name());
  }
}

void store(pb::Message& message, const pb::FieldDescriptor* field, const Scalar& scalar) {
  using R = pb::Reflection;
  const R& reflection = *message.GetReflection();
  const auto put = [&](auto set, auto add, const auto& value) {
    (reflection.*(field->is_repeated() ? add : set))(&message, field, value);
  };
  const auto by_type = [&](const auto& value) {
    using T = std::decay_t<decltype(value)>;
    if constexpr (std::is_same_v<T, bool>) {
      put(&R::SetBool, &R::AddBool, value);
    } else if constexpr (std::is_same_v<T, std::int64_t>) {
      put(&R::SetInt64, &R::AddInt64, value);
    } else if constexpr (std::is_same_v<T, std::uint64_t>) {
      put(&R::SetUInt64, &R::AddUInt64, value);
    } else if constexpr (std::is_same_v<T, double>) {
      put(&R::SetDouble, &R::AddDouble, value);
    } else if constexpr (std::is_same_v<T, std::string>) {
      put(&R::SetString, &R::AddString, value);
    } else {
      put(&R::SetEnum, &R::AddEnum, value);
    }
  };
  std::visit(by_type, scalar);
}

Result<void> choose(pb::Message& choice, std::string_view name, const std::string& where) {
  const pb::OneofDescriptor& kind = *kind_of(*choice.GetDescriptor());
  const auto* field = choice.GetDescriptor()->FindFieldByName(std::string(name));
  if (!field || field->containing_oneof() != &kind) {
    return unknown_value(where, name, alternatives_of(kind));
  }
  choice.GetReflection()->MutableMessage(&choice, field);
  return {};
}

// -- as text -------------------------------------------------------------------------------------

std::string text_of(const Scalar& scalar) {
  const auto by_type = [](const auto& value) -> std::string {
    using T = std::decay_t<decltype(value)>;
    if constexpr (std::is_same_v<T, bool>) {
      return value ? "true" : "false";
    } else if constexpr (std::is_same_v<T, std::string>) {
      return value;
    } else if constexpr (std::is_same_v<T, Enumerator>) {
      return value->name();
    } else {
      return number_text(value);
    }
  };
  return std::visit(by_type, scalar);
}

std::string noun_of(const pb::FieldDescriptor& field) {
  switch (field.cpp_type()) {
    case pb::FieldDescriptor::CPPTYPE_BOOL:
      return "true or false";
    case pb::FieldDescriptor::CPPTYPE_INT64:
      return "a whole number";
    case pb::FieldDescriptor::CPPTYPE_UINT64:
      return "a whole number of at least 0";
    case pb::FieldDescriptor::CPPTYPE_DOUBLE:
      return "a finite number";
    case pb::FieldDescriptor::CPPTYPE_STRING:
      return "a text";
    default:
      return "a name";
  }
}

namespace {

template <class Number>
Result<Scalar> read_number(const pb::FieldDescriptor& field,
                           std::string_view text,
                           const std::string& where) {
  Number number{};
  const char* const end = text.data() + text.size();
  const auto [rest, code] = std::from_chars(text.data(), end, number);
  if (code == std::errc::result_out_of_range && rest == end) {
    return usage(where + ": " + quoted(text) + " is outside the range of 64-bit numbers");
  }
  if (code != std::errc{} || rest != end || !std::isfinite(static_cast<double>(number))) {
    return usage(where + ": " + quoted(text) + " is not " + noun_of(field));
  }
  return Scalar{number};
}

}  // namespace

Result<Scalar> read_scalar(const pb::FieldDescriptor& field,
                           std::string_view text,
                           const std::string& where) {
  switch (field.cpp_type()) {
    case pb::FieldDescriptor::CPPTYPE_BOOL:
      if (text != "true" && text != "false") {
        return usage(where + ": " + quoted(text) + " is neither true nor false");
      }
      return Scalar{text == "true"};
    case pb::FieldDescriptor::CPPTYPE_INT64:
      return read_number<std::int64_t>(field, text, where);
    case pb::FieldDescriptor::CPPTYPE_UINT64:
      return read_number<std::uint64_t>(field, text, where);
    case pb::FieldDescriptor::CPPTYPE_DOUBLE:
      return read_number<double>(field, text, where);
    case pb::FieldDescriptor::CPPTYPE_STRING:
      return Scalar{std::string(text)};
    default: {
      const auto* value = field.enum_type()->FindValueByName(std::string(text));
      if (!value) {
        return unknown_value(where, text, values_of(*field.enum_type()));
      }
      return Scalar{value};
    }
  }
}

Result<std::string> without_quotes(std::string_view text, const std::string& where) {
  if (!text.starts_with('"') && !text.starts_with('\'')) {
    return std::string(text);
  }
  std::string out;
  for (std::size_t i = 1; i < text.size(); ++i) {
    if (text[i] == text.front()) {
      if (i + 1 < text.size()) {
        return usage(where + ": " + quoted(text) + " goes on after its closing quote");
      }
      return out;
    }
    if (text[i] == '\\' && i + 1 < text.size()) {
      ++i;
    }
    out.push_back(text[i]);
  }
  return usage(where + ": " + quoted(text) + " has no closing quote");
}

namespace {

/// The elements of "a, b", still in their quotes.
std::vector<std::string_view> split_at_commas(std::string_view text) {
  std::vector<std::string_view> parts;
  std::size_t begin = 0;
  bool fresh = true;  // nothing but blanks in this element so far
  char quote = 0;     // the one that is open
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quote != 0) {
      i += c == '\\';
      quote = c == quote ? '\0' : quote;
    } else if (c == ',') {
      parts.push_back(trimmed(text.substr(begin, i - begin)));
      begin = i + 1;
      fresh = true;
    } else if (fresh && (c == '"' || c == '\'')) {
      quote = c;
    } else {
      fresh = fresh && (c == ' ' || c == '\t');
    }
  }
  parts.push_back(trimmed(text.substr(begin)));
  return parts;
}

Result<std::vector<Scalar>> read_list(const pb::FieldDescriptor& field,
                                      std::string_view text,
                                      const std::string& where) {
  const std::string hint = ", a list is written [a,b] or []";
  std::vector<std::string_view> parts{text};
  if (text.starts_with('[')) {
    if (!text.ends_with(']') || text.size() < 2) {
      return usage(where + ": " + quoted(text) + " lacks its closing bracket" + hint);
    }
    const std::string_view inner = trimmed(text.substr(1, text.size() - 2));
    parts = inner.empty() ? std::vector<std::string_view>{} : split_at_commas(inner);
  }
  std::vector<Scalar> scalars;
  for (const std::string_view part : parts) {
    if (part.empty()) {
      return usage(where + ": " + quoted(text) + " lacks an element" + hint);
    }
    auto bare = without_quotes(part, where);
    TROUPE_TRY(bare);
    auto scalar = read_scalar(field, *bare, where);
    if (!scalar) {
      const bool single = !text.starts_with('[');
      return usage(scalar.error().message + (single ? hint : ""));
    }
    scalars.push_back(*std::move(scalar));
  }
  return scalars;
}

Result<std::vector<Scalar>> read_single(const pb::FieldDescriptor& field,
                                        std::string_view text,
                                        const std::string& where) {
  auto bare = without_quotes(text, where);
  TROUPE_TRY(bare);
  auto scalar = read_scalar(field, *bare, where);
  TROUPE_TRY(scalar);
  return std::vector<Scalar>{*std::move(scalar)};
}

}  // namespace

Result<void> assign(pb::Message& message,
                    const pb::FieldDescriptor* field,
                    std::string_view text,
                    const std::string& where) {
  const auto scalars =
      field->is_repeated() ? read_list(*field, text, where) : read_single(*field, text, where);
  TROUPE_TRY(scalars);
  message.GetReflection()->ClearField(&message, field);
  for (const Scalar& scalar : *scalars) {
    store(message, field, scalar);
  }
  return {};
}

// -- what is legal -------------------------------------------------------------------------------

std::string bounds_of(const pb::FieldDescriptor& field) {
  const pb::FieldOptions& options = field.options();
  const auto bound = [&](const auto& id) {
    return number_text(options.GetExtension(id));
  };
  const bool least = options.HasExtension(proto::at_least);
  const bool most = options.HasExtension(proto::at_most);
  if (least && most) {
    return bound(proto::at_least) + ".." + bound(proto::at_most);
  }
  Names parts;
  if (least) {
    parts.push_back(">= " + bound(proto::at_least));
  }
  if (options.HasExtension(proto::above)) {
    parts.push_back("> " + bound(proto::above));
  }
  if (most) {
    parts.push_back("<= " + bound(proto::at_most));
  }
  return joined(parts, ", ");
}

namespace {

bool within_bounds(const pb::FieldDescriptor& field, const Scalar& scalar) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const pb::FieldOptions& options = field.options();
  const auto bound = [&](const auto& id, double otherwise) {
    return options.HasExtension(id) ? options.GetExtension(id) : otherwise;
  };
  const auto by_type = [&](const auto& value) {
    if constexpr (kIsNumber<std::decay_t<decltype(value)>>) {
      const auto number = static_cast<double>(value);
      return number >= bound(proto::at_least, -kInfinity) &&
             number > bound(proto::above, -kInfinity) && number <= bound(proto::at_most, kInfinity);
    } else {
      return true;
    }
  };
  return std::visit(by_type, scalar);
}

Result<void> check_value(const pb::FieldDescriptor& field,
                         const Scalar& scalar,
                         Bounds bounds,
                         const std::string& where) {
  if (const auto* number = std::get_if<double>(&scalar); number && !std::isfinite(*number)) {
    return usage(where + ": " + text_of(scalar) + " is not a finite number");
  }
  const auto* text = std::get_if<std::string>(&scalar);
  if (text && valid_utf8(*text) < text->size()) {
    return usage(where + ": " + quoted(*text) + " is not valid UTF-8");
  }
  if (bounds == Bounds::checked && !within_bounds(field, scalar)) {
    return usage(where + ": " + text_of(scalar) + " is out of bounds" + legal({bounds_of(field)}));
  }
  return {};
}

}  // namespace

Result<void> check_values(const pb::Message& message, Bounds bounds, const std::string& where) {
  const pb::Reflection& reflection = *message.GetReflection();
  std::vector<const pb::FieldDescriptor*> fields;
  reflection.ListFields(message, &fields);
  for (const pb::FieldDescriptor* field : fields) {
    const std::string path = where + field->name();
    const bool list = field->is_repeated();
    const int count = list ? reflection.FieldSize(message, field) : 1;
    for (int i = 0; i < count; ++i) {
      const std::string element = list ? path + '[' + std::to_string(i) + ']' : path;
      if (is_group(*field)) {
        const auto& group = list ? reflection.GetRepeatedMessage(message, field, i)
                                 : reflection.GetMessage(message, field);
        TROUPE_TRY(check_values(group, bounds, element + '.'));
        continue;
      }
      TROUPE_TRY(check_value(*field, load(message, field, i), bounds, element));
    }
  }
  return {};
}

}  // namespace troupe::schema
