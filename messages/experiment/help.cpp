#include "experiment.pb.h"
#include "messages/experiment/settings.hpp"
#include "messages/experiment/values.hpp"

#include <algorithm>

namespace troupe {
namespace {

using namespace schema;

constexpr std::size_t kWidth = 100;
constexpr std::size_t kKeyWidth = 43;  // a longer key has a line of its own

struct Row {
  std::string key;
  std::string type;
  std::string doc;
};

std::string type_of(const pb::FieldDescriptor& field) {
  const std::string plural = field.is_repeated() ? "s" : "";
  const std::string bounds = bounds_of(field);
  switch (field.cpp_type()) {
    case pb::FieldDescriptor::CPPTYPE_MESSAGE:
      return is_table(field)       ? ".NAME=value for each"
             : field.is_repeated() ? "groups, in a file"
                                   : "choice";
    case pb::FieldDescriptor::CPPTYPE_BOOL:
      return "true or false";
    case pb::FieldDescriptor::CPPTYPE_STRING:
      return "text" + plural;
    case pb::FieldDescriptor::CPPTYPE_ENUM:
      return "name" + plural;
    case pb::FieldDescriptor::CPPTYPE_DOUBLE:
      return "number" + plural + (bounds.empty() ? "" : " " + bounds);
    default:
      return "integer" + plural + (bounds.empty() ? "" : " " + bounds);
  }
}

/// As it would stand behind the '='.
std::string default_of(const pb::FieldDescriptor& field) {
  if (is_choice(field) && !field.is_repeated()) {
    return default_alternative(*kind_of(*field.message_type())).name();
  }
  if (field.is_repeated()) {
    const std::string& list = field.options().GetExtension(proto::default_list);
    return list.empty() ? "[]" : list;
  }
  auto* messages = pb::MessageFactory::generated_factory();
  const std::string text = text_of(load(*messages->GetPrototype(field.containing_type()), &field));
  return text.empty() ? "\"\"" : text;
}

/// In small letters and with blanks, so that weight_decay is found where weight decay is written.
std::string searched(std::string_view text) {
  std::string words = lower(text);
  std::replace(words.begin(), words.end(), '_', ' ');
  return words;
}

bool has(const Row& row, const std::string& word) {
  return searched(row.key + ' ' + row.doc).find(word) != std::string::npos;
}

/// The key, and then the values of one that is chosen by name.
std::vector<Row> rows_of(const std::string& key,
                         const pb::FieldDescriptor& field,
                         const std::string& indent) {
  std::vector<Row> rows;
  const std::string& doc = field.options().GetExtension(proto::doc);
  const bool valued = key.find('=') != key.npos && !field.containing_oneof();
  rows.push_back({indent + key, valued ? type_of(field) : "", doc});
  for (int i = 0; field.enum_type() && i < field.enum_type()->value_count(); ++i) {
    const pb::EnumValueDescriptor& value = *field.enum_type()->value(i);
    const std::string& value_doc = value.options().GetExtension(proto::value_doc);
    rows.push_back({indent + "  " + value.name(), "", value_doc});
  }
  return rows;
}

/// `word`: as searched() has it.
std::vector<Row> help_rows(const std::string& word) {
  std::vector<Row> rows;
  for (const auto& [path, field] : all_keys()) {
    const auto depth = static_cast<std::size_t>(std::count(path.begin(), path.end(), '.'));
    const bool all = word.empty();
    if (depth == 0 && all) {
      rows.push_back({});
    }
    if (depth > 0 && is_table(*find_key(path.substr(0, path.rfind('.')))->field)) {
      continue;  // the table's own row stands for its entries
    }
    std::string key = path;
    if (field->containing_oneof()) {
      key = all ? field->name() : path.substr(0, path.rfind('.')) + '=' + field->name();
    } else if (!is_group(*field) || is_choice(*field) || field->is_repeated()) {
      key += '=' + default_of(*field);
    }
    const std::vector<Row> own = rows_of(key, *field, std::string(all ? 2 * depth : 0, ' '));
    if (all ||
        std::any_of(own.begin(), own.end(), [&](const Row& row) { return has(row, word); })) {
      rows.insert(rows.end(), own.begin(), own.end());
    }
  }
  return rows;
}

/// Broken at blanks into lines of at most `width`.
Names wrapped(std::string_view text, std::size_t width) {
  Names lines;
  while (text.size() > width) {
    const std::size_t blank = text.rfind(' ', width);
    const std::size_t end = blank == text.npos ? width : blank;
    lines.emplace_back(text.substr(0, end));
    text = trimmed(text.substr(end));
  }
  lines.emplace_back(text);
  return lines;
}

void pad(std::string& line, std::size_t width) {
  line.resize(std::max(line.size(), width), ' ');
}

/// A row without a type, such as an alternative, has its doc in the column of the types.
std::string laid_out(const Row& row, std::size_t type_width) {
  const std::size_t column = row.type.empty() ? kKeyWidth : kKeyWidth + type_width + 2;
  std::string out;
  std::string line = row.key;
  if (line.size() + 2 > kKeyWidth && !(row.type + row.doc).empty()) {
    out += line + '\n';
    line.clear();
  }
  if (!row.type.empty()) {
    pad(line, kKeyWidth);
    line += row.type;
  }
  for (const std::string& doc : wrapped(row.doc, kWidth - column)) {
    pad(line, doc.empty() ? 0 : column);
    out += line + doc + '\n';
    line.clear();
  }
  return out;
}

}  // namespace

std::string experiment_help(std::string_view word) {
  const std::vector<Row> rows = help_rows(searched(word));
  std::size_t type_width = 0;
  for (const Row& row : rows) {
    type_width = std::max(type_width, row.type.size());
  }
  std::string out = !word.empty()
                        ? ""
                        : "What an experiment says, as --set takes it: KEY=DEFAULT, what is legal, "
                          "what it means.\n"
                          "A choice is made by a name below it (model=snn) or a key of one "
                          "(model.snn.hidden=[64,64]);\n"
                          "a list is [a,b], [] or one element.\n";
  for (const Row& row : rows) {
    out += laid_out(row, type_width);
  }
  return out;
}

std::vector<std::string> experiment_settings() {
  Names all;
  for (const auto& [path, field] : all_keys()) {
    const bool one = !field->is_repeated();
    const Names names = one && is_choice(*field) ? alternatives_of(*kind_of(*field->message_type()))
                        : one && field->enum_type() ? values_of(*field->enum_type())
                        : one && field->cpp_type() == pb::FieldDescriptor::CPPTYPE_BOOL
                            ? Names{"true", "false"}
                            : Names{""};
    if (field->containing_oneof() || (is_group(*field) && one && !is_choice(*field))) {
      continue;  // an alternative is a value of its choice
    }
    for (const std::string& name : names) {
      all.push_back(path + '=' + name);
    }
  }
  return all;
}

}  // namespace troupe
