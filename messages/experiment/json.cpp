// JSON to and from experiments. protobuf parses the JSON, into its Struct; the step from there is
// ours, so that a choice can be a plain string, every complaint has a path, and whole numbers are
// printed as numbers.
#include "experiment.pb.h"
#include "kernels/sequences.hpp"
#include "messages/experiment/source.hpp"
#include "messages/experiment/values.hpp"

#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <cmath>
#include <map>

namespace troupe::schema {
namespace {

// JSON's numbers are doubles to most readers, protobuf's Struct among them: whole numbers are exact
// below this.
constexpr double kExactBelow = 0x1p53;

/// Brackets open at once, outside strings: protobuf gives up late and does not say why.
int depth_of(std::string_view text) {
  int depth = 0;
  int deepest = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      i += c == '\\';
      in_string = c != '"';
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      deepest = std::max(deepest, ++depth);
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return deepest;
}

bool occurs_once(std::string_view text, std::string_view part) {
  const std::size_t first = text.find(part);
  return first != text.npos && text.find(part, first + 1) == text.npos;
}

/// protobuf says "what\nexcerpt\n   ^": the excerpt is a piece of our text, and the caret stands
/// below where it stopped.
Error explain(const std::string& message, const Source& source) {
  constexpr std::string_view kTwice = "Repeated map key: '";
  if (const std::size_t found = message.find(kTwice); found != message.npos) {
    const std::size_t begin = found + kTwice.size();
    const std::string key = message.substr(begin, message.rfind('\'') - begin);
    return usage(source.origin + ": the key " + quoted(key) + " is given twice");
  }
  const std::size_t first = message.find('\n');
  const std::size_t last = message.rfind('\n');
  if (first == last) {
    return usage(source.origin + ": " + adapted(message));
  }
  const std::string what = adapted(message.substr(0, first));
  const std::string excerpt = message.substr(first + 1, last - first - 1);
  if (excerpt.empty()) {
    return usage(source.at(source.text.size()) + ": " + what);
  }
  const std::size_t caret = std::min(message.size() - last - 2, excerpt.size());
  const std::string rest = excerpt.substr(caret);
  const bool located = occurs_once(source.text, excerpt);
  return usage((located ? source.at(source.text.find(excerpt) + caret) : source.origin) + ": " +
               what + ", at " + quoted(rest.substr(0, rest.find('\n'))));
}

/// A value as --set would write it; what is no value, as a message shows it.
std::string json_text(const pb::Value& value) {
  switch (value.kind_case()) {
    case pb::Value::kNumberValue: {
      const double number = value.number_value();
      const bool whole = number == std::floor(number) && std::abs(number) < kExactBelow;
      const bool minus_zero = number == 0 && std::signbit(number);
      return whole && !minus_zero ? number_text(static_cast<std::int64_t>(number))
                                  : number_text(number);
    }
    case pb::Value::kStringValue:
      return value.string_value();
    case pb::Value::kBoolValue:
      return value.bool_value() ? "true" : "false";
    case pb::Value::kStructValue:
      return "{...}";
    case pb::Value::kListValue:
      return "[...]";
    default:
      return "null";
  }
}

/// Numbers may come as strings, the way protobuf prints those of 64 bits.
bool is_right_kind(const pb::FieldDescriptor& field, const pb::Value& value) {
  switch (field.cpp_type()) {
    case pb::FieldDescriptor::CPPTYPE_BOOL:
      return value.has_bool_value();
    case pb::FieldDescriptor::CPPTYPE_STRING:
    case pb::FieldDescriptor::CPPTYPE_ENUM:
      return value.has_string_value();
    default:
      return value.has_number_value() || value.has_string_value();
  }
}

/// Carries a JSON object over into an experiment: all of it, or an error.
class Reader {
 public:
  explicit Reader(const Source& source) : source_(source) {}

  Result<void> read(const pb::Struct& object, const std::string& path, pb::Message& group) const {
    // Sorted, so that of several errors it is always the same one that is told.
    const std::map<std::string, pb::Value> sorted(object.fields().begin(), object.fields().end());
    for (const auto& [name, value] : sorted) {
      const auto* field = group.GetDescriptor()->FindFieldByName(name);
      if (!field) {
        return unknown_key(line_of(name), *group.GetDescriptor(), path, name);
      }
      TROUPE_TRY(read_field(value, under(path, name), group, field));
    }
    return {};
  }

 private:
  Result<void> read_field(const pb::Value& value,
                          const std::string& path,
                          pb::Message& group,
                          const pb::FieldDescriptor* field) const {
    const std::string where = line_of(field->name()) + ": " + path;
    if (!field->is_repeated()) {
      return is_group(*field) ? read_group(value, path, where, group, field)
                              : read_value(value, where, group, field);
    }
    if (!value.has_list_value()) {
      return usage(where + ": " + legible(json_text(value)) + " is not a list, write [a, b]");
    }
    int index = 0;
    for (const pb::Value& element : value.list_value().values()) {
      const std::string at = '[' + std::to_string(index++) + ']';
      TROUPE_TRY(is_group(*field) ? read_group(element, path + at, where + at, group, field)
                                  : read_value(element, where + at, group, field));
    }
    return {};
  }

  Result<void> read_group(const pb::Value& value,
                          const std::string& path,
                          const std::string& where,
                          pb::Message& owner,
                          const pb::FieldDescriptor* field) const {
    const pb::Reflection& reflection = *owner.GetReflection();
    if (const auto* kind = field->containing_oneof(); kind && reflection.HasOneof(owner, kind)) {
      const std::string& other = reflection.GetOneofFieldDescriptor(owner, kind)->name();
      return two_alternatives(where.substr(0, where.rfind('.')), other, field->name());
    }
    pb::Message& group = field->is_repeated() ? *reflection.AddMessage(&owner, field)
                                              : *reflection.MutableMessage(&owner, field);
    if (value.has_string_value() && is_choice(*field)) {
      return choose(group, value.string_value(), where);
    }
    if (!value.has_struct_value()) {
      return usage(where + ": " + legible(json_text(value)) +
                   " stands where a group is due, write {...}" +
                   legal(keys_of(*field->message_type())));
    }
    return read(value.struct_value(), path, group);
  }

  Result<void> read_value(const pb::Value& value,
                          const std::string& where,
                          pb::Message& group,
                          const pb::FieldDescriptor* field) const {
    const std::string text = json_text(value);
    if (!is_right_kind(*field, value)) {
      return usage(where + ": " + (value.has_string_value() ? "the text " + quoted(text) : text) +
                   " is not " + noun_of(*field));
    }
    const bool whole = field->cpp_type() != pb::FieldDescriptor::CPPTYPE_DOUBLE;
    if (whole && std::abs(value.number_value()) >= kExactBelow) {
      return usage(where + ": " + text + " is too large to be exact in JSON, put it in quotes");
    }
    const auto scalar = read_scalar(*field, text, where);
    TROUPE_TRY(scalar);
    store(group, field, *scalar);
    return {};
  }

  /// With the line, if a key of this name occurs once: else we do not know which of them is meant.
  std::string line_of(const std::string& name) const {
    const std::string key = '"' + name + '"';
    return occurs_once(source_.text, key) ? source_.at(source_.text.find(key)) : source_.origin;
  }

  const Source& source_;
};

}  // namespace

Result<proto::Experiment> parse_json(const Source& source) {
  if (const int depth = depth_of(source.text); depth > kDepthMax) {
    return usage(source.origin + ": " + std::to_string(depth) +
                 " brackets are open at once, more than " + std::to_string(kDepthMax));
  }
  pb::Struct object;
  const auto status = pb::util::JsonStringToMessage(std::string(source.text), &object);
  if (!status.ok()) {
    return explain(std::string(status.message()), source);
  }
  proto::Experiment experiment;
  TROUPE_TRY(Reader(source).read(object, "", experiment));
  return experiment;
}

// -- printing ------------------------------------------------------------------------------------

namespace {

std::string json_string(std::string_view text) {
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string out = "\"";
  for (const char c : text) {
    const unsigned byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out.append(1, '\\').append(1, c);
    } else if (byte < 0x20 || byte == 0x7F) {
      out.append("\\u00").append(1, kHex[byte >> 4]).append(1, kHex[byte & 15]);
    } else {
      out.push_back(c);
    }
  }
  return out + '"';
}

std::string json_value(const Scalar& scalar) {
  const std::string text = text_of(scalar);
  const auto by_type = [&](const auto& value) {
    using T = std::decay_t<decltype(value)>;
    if constexpr (std::is_same_v<T, double>) {
      return text == "-0" ? "-0.0" : text;  // as an integer it would lose its sign
    } else if constexpr (kIsNumber<T>) {
      return std::abs(static_cast<double>(value)) < kExactBelow ? text : json_string(text);
    } else {
      return std::is_same_v<T, bool> ? text : json_string(text);
    }
  };
  return std::visit(by_type, scalar);
}

std::string json_object(const pb::Message& group, const std::string& indent);

std::string json_list(const pb::Message& group,
                      const pb::FieldDescriptor* field,
                      const std::string& indent) {
  const pb::Reflection& reflection = *group.GetReflection();
  Names elements;
  for (int i = 0; i < reflection.FieldSize(group, field); ++i) {
    elements.push_back(is_group(*field)
                           ? json_object(reflection.GetRepeatedMessage(group, field, i), indent)
                           : json_value(load(group, field, i)));
  }
  return '[' + joined(elements, ", ") + ']';
}

std::string json_object(const pb::Message& group, const std::string& indent) {
  const pb::Reflection& reflection = *group.GetReflection();
  const std::string below = indent + "  ";
  Names members;
  for (int i = 0; i < group.GetDescriptor()->field_count(); ++i) {
    const pb::FieldDescriptor* field = group.GetDescriptor()->field(i);
    if (!field->is_repeated() && !reflection.HasField(group, field)) {
      continue;
    }
    const std::string value = field->is_repeated() ? json_list(group, field, below)
                              : is_group(*field)
                                  ? json_object(reflection.GetMessage(group, field), below)
                                  : json_value(load(group, field));
    members.push_back(below + json_string(field->name()) + ": " + value);
  }
  return members.empty() ? "{}" : "{\n" + joined(members, ",\n") + '\n' + indent + '}';
}

}  // namespace
}  // namespace troupe::schema

namespace troupe {

std::string print_experiment_json(const proto::Experiment& experiment) {
  return schema::json_object(experiment, "") + '\n';
}

}  // namespace troupe
