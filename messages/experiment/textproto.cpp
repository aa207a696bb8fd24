// protobuf's parser reads; this file turns its complaints into ours, which add the path, what is
// near and what is legal.
#include "experiment.pb.h"
#include "kernels/sequences.hpp"
#include "messages/experiment/source.hpp"
#include "messages/experiment/values.hpp"

#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/text_format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

namespace troupe::schema {
namespace {

struct FirstError : pb::io::ErrorCollector {
  std::string message;
  int line = 0;    // from 0
  int column = 0;  // as the tokenizer counts: tabs go to multiples of 8

  void AddError(int at_line, pb::io::ColumnNumber at_column, const std::string& what) override {
    if (message.empty()) {
      message = what;
      line = at_line;
      column = at_column;
    }
  }

  std::string_view before_it(std::string_view text) const {
    std::size_t end = 0;
    for (int i = 0; i < line; ++i) {
      end = std::min(text.find('\n', end), text.size() - 1) + 1;
    }
    for (int at = 0; at < column && end < text.size(); ++end) {
      at += text[end] == '\t' ? 8 - at % 8 : 1;
    }
    return text.substr(0, end);
  }
};

struct Place {
  std::string group;  // "pipeline.schedule"
  std::string key;    // the last one, or "" where the group has just begun or another ended
  bool in_list = false;
};

/// Where in the experiment a text ends that is broken off anywhere.
Place place_at_end(std::string_view text) {
  constexpr std::string_view kWord =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.+-";
  Names groups;
  std::string key;
  bool in_list = false;
  bool value_is_next = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '#') {
      i = std::min(text.find('\n', i), text.size());
    } else if (c == '"' || c == '\'') {
      for (++i; i < text.size() && text[i] != c; ++i) {
        i += text[i] == '\\';
      }
      value_is_next = false;
    } else if (c == '{' || c == '<') {
      groups.push_back(std::exchange(key, ""));
      value_is_next = false;
    } else if (c == '}' || c == '>') {
      key.clear();
      if (!groups.empty()) {
        groups.pop_back();
      }
    } else if (c == '[' || c == ']') {
      in_list = c == '[';
      value_is_next = false;
    } else if (c == ':') {
      value_is_next = true;
    } else if (kWord.find(c) != kWord.npos) {
      const std::size_t end = std::min(text.find_first_not_of(kWord, i), text.size());
      if (!in_list && !std::exchange(value_is_next, false)) {
        key = text.substr(i, end - i);
      }
      i = end - 1;
    }
  }
  return {joined(groups, "."), key, in_list};
}

/// The part of `message` between `before` and its end `after`; nothing if worded otherwise.
std::optional<std::string> between(const std::string& message,
                                   std::string_view before,
                                   std::string_view after) {
  const std::size_t found = message.find(before);
  const std::size_t begin = found + before.size();
  if (found == message.npos || !message.ends_with(after) || message.size() < begin + after.size()) {
    return std::nullopt;
  }
  return message.substr(begin, message.size() - begin - after.size());
}

/// The value that a message is about, or nothing where it is about something else.
std::optional<std::string> refused_value(const std::string& message) {
  constexpr std::array<std::array<std::string_view, 2>, 7> kWordings{{
      {"Expected \"{\", found \"", "\"."},
      {"Expected integer, got: ", ""},
      {"Expected double, got: ", ""},
      {"Expected string, got: ", ""},
      {"Expected integer or identifier, got: ", ""},
      {"Integer out of range (", ")"},
      {". Value: \"", "\"."},
  }};
  for (const auto& [before, after] : kWordings) {
    if (auto value = between(message, before, after)) {
      return value;
    }
  }
  if (auto value = between(message, "Unknown enumeration value of \"", ".")) {
    return value->substr(0, value->find('"'));
  }
  return std::nullopt;
}

/// `schedule: gpipe`, `model: 3`
Error value_for_group(const std::string& where,
                      const pb::FieldDescriptor& field,
                      const std::string& value) {
  if (!is_choice(field)) {
    return usage(where + ": " + quoted(value) + " stands where a group is due, write " +
                 field.name() + " { ... }" + legal(keys_of(*field.message_type())));
  }
  const Names names = alternatives_of(*kind_of(*field.message_type()));
  if (std::find(names.begin(), names.end(), value) == names.end()) {
    return unknown_value(where, value, names);
  }
  return usage(where + ": a choice is written " + field.name() + " { " + value + " {} }");
}

/// What is wrong with a value, in the words that --set has for it.
Error refused(const std::string& where,
              const pb::FieldDescriptor& field,
              const std::string& written) {
  const auto bare = without_quotes(written, where);
  const std::string& value = bare ? *bare : written;
  if (is_group(field)) {
    return value_for_group(where, field, value);
  }
  TROUPE_TRY(read_scalar(field, value, where));
  const bool text = field.cpp_type() == pb::FieldDescriptor::CPPTYPE_STRING;
  return usage(where + ": " + quoted(value) + " has to be written " + (text ? "in" : "without") +
               " quotes");
}

/// What we do not recognise is passed on.
Error explain(const FirstError& error, const Source& source) {
  const std::string& message = error.message;
  const std::string line = source.origin + ':' + std::to_string(error.line + 1);
  const Place place = place_at_end(error.before_it(source.text));
  const std::string path = place.key.empty() ? place.group : under(place.group, place.key);
  const std::string where = line + ": " + legible(path);

  const Key* group = find_key(place.group);
  if (const auto name = between(message, " has no field named \"", "\".")) {
    if (place.group.empty()) {
      return unknown_key(line, root(), "", *name);
    }
    if (group && is_group(*group->field)) {
      return unknown_key(line, *group->field->message_type(), place.group, *name);
    }
  }
  if (message.ends_with("got: ") || message.ends_with("found \"\".")) {
    return usage(line + ": the text ends " + (place.in_list ? "inside a list" : "too early") +
                 (path.empty() ? "" : (place.in_list ? ", " : ", after ") + legible(path)));
  }
  const Key* key = find_key(path);
  if (const auto value = refused_value(message); value && key) {
    return refused(where, *key->field, *value);
  }
  if (message.starts_with("Non-repeated field ")) {
    return usage(where + ": is given twice");
  }
  if (const auto other = between(message, " is specified along with field \"", "\".")) {
    return two_alternatives(
        line + ": " + place.group, other->substr(0, other->find('"')), place.key);
  }
  return usage(line + ": " + adapted(message));
}

}  // namespace

Result<proto::Experiment> parse_textproto(const Source& source) {
  proto::Experiment experiment;
  FirstError error;
  pb::TextFormat::Parser parser;
  parser.RecordErrorsTo(&error);
  parser.SetRecursionLimit(kDepthMax);
  if (!parser.ParseFromString(std::string(source.text), &experiment)) {
    return explain(error, source);
  }
  return experiment;
}

}  // namespace troupe::schema
