#include "messages/experiment/schema.hpp"

#include "experiment.pb.h"
#include "kernels/sequences.hpp"
#include "messages/other_names.hpp"

#include <algorithm>
#include <utility>

namespace troupe::schema {

// -- text ----------------------------------------------------------------------------------------

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n";
  const std::size_t begin = text.find_first_not_of(kBlank);
  return begin == text.npos ? std::string_view{}
                            : text.substr(begin, text.find_last_not_of(kBlank) + 1 - begin);
}

std::size_t valid_utf8(std::string_view text) {
  std::size_t i = 0;
  while (i < text.size()) {
    const unsigned lead = static_cast<unsigned char>(text[i]);
    if (lead < 0x80) {
      ++i;
      continue;
    }
    const std::size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    if (lead < 0xC2 || lead > 0xF4 || text.size() - i < length) {
      return i;
    }
    unsigned point = lead & (0x7Fu >> length);
    for (std::size_t k = 1; k < length; ++k) {
      const unsigned next = static_cast<unsigned char>(text[i + k]);
      if ((next & 0xC0) != 0x80) {
        return i;
      }
      point = point << 6 | (next & 0x3F);
    }
    const bool overlong = (length == 3 && point < 0x800) || (length == 4 && point < 0x10000);
    if (overlong || (point >= 0xD800 && point < 0xE000) || point > 0x10FFFF) {
      return i;
    }
    i += length;
  }
  return i;
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }
  return out;
}

std::string legible(std::string_view text, std::size_t size_max) {
  constexpr std::string_view kHex = "0123456789abcdef";
  const std::string_view head = text.substr(0, size_max);
  const std::size_t valid = valid_utf8(head);
  std::string out;
  for (std::size_t i = 0; i < head.size(); ++i) {
    const unsigned byte = static_cast<unsigned char>(head[i]);
    if (byte < 0x20 || byte == 0x7F || i >= valid) {
      out.append("\\x").append(1, kHex[byte >> 4]).append(1, kHex[byte & 15]);
    } else {
      out.push_back(head[i]);
    }
  }
  return head.size() < text.size() ? out + "..." : out;
}

std::string quoted(std::string_view text) {
  const char quote = text.find('"') == text.npos ? '"' : '\'';
  return quote + legible(text) + quote;
}

std::string legal(const Names& names) {
  return " (legal: " + joined(names, ", ") + ")";
}

Error usage(std::string message) {
  return {ErrorKind::usage, std::move(message)};
}

// -- what there is -------------------------------------------------------------------------------

const pb::Descriptor& root() {
  return *proto::Experiment::descriptor();
}

const pb::OneofDescriptor* kind_of(const pb::Descriptor& type) {
  return type.FindOneofByName("kind");
}

bool is_group(const pb::FieldDescriptor& field) {
  return field.cpp_type() == pb::FieldDescriptor::CPPTYPE_MESSAGE;
}

bool is_internal(const pb::FieldDescriptor& field) {
  return field.options().GetExtension(proto::internal);
}

bool is_choice(const pb::FieldDescriptor& field) {
  return is_group(field) && kind_of(*field.message_type());
}

bool is_table(const pb::FieldDescriptor& field) {
  return field.is_repeated() && is_group(field) && field.message_type()->FindFieldByName("key") &&
         field.message_type()->FindFieldByName("value");
}

const pb::FieldDescriptor& default_alternative(const pb::OneofDescriptor& kind) {
  const std::string& name = kind.options().GetExtension(proto::default_kind);
  const pb::FieldDescriptor* field = kind.containing_type()->FindFieldByName(name);
  TROUPE_CHECK(field && field->containing_oneof() == &kind,
               "[experiment] no default_kind among the alternatives of ",
               kind.full_name());
  return *field;
}

namespace {

template <class Get>
Names names_of(int count, const Get& get) {
  Names names;
  for (int i = 0; i < count; ++i) {
    names.push_back(get(i)->name());
  }
  return names;
}

/// f(field) for each that is a user's.
template <class F>
void for_each_key(const pb::Descriptor& type, const F& f) {
  for (int i = 0; i < type.field_count(); ++i) {
    if (!is_internal(*type.field(i))) {
      f(*type.field(i));
    }
  }
}

}  // namespace

Names keys_of(const pb::Descriptor& type) {
  Names names;
  for_each_key(type, [&](const auto& field) { names.push_back(field.name()); });
  return names;
}

Names alternatives_of(const pb::OneofDescriptor& kind) {
  return names_of(kind.field_count(), [&](int i) { return kind.field(i); });
}

Names values_of(const pb::EnumDescriptor& type) {
  return names_of(type.value_count(), [&](int i) { return type.value(i); });
}

std::string under(const std::string& path, const std::string& name) {
  return path.empty() ? name : path + '.' + name;
}

namespace {

void append_keys(const pb::Descriptor& type, const std::string& path, std::vector<Key>& out) {
  for_each_key(type, [&](const pb::FieldDescriptor& field) {
    const std::string below = under(path, field.name());
    out.push_back({below, &field});
    if (is_group(field)) {
      append_keys(*field.message_type(), below, out);
    }
  });
}

}  // namespace

const std::vector<Key>& all_keys() {
  static const std::vector<Key> keys = [] {
    std::vector<Key> out;
    append_keys(root(), "", out);
    return out;
  }();
  return keys;
}

const Key* find_key(std::string_view path) {
  const auto& keys = all_keys();
  const auto is_at = [&](const Key& key) {
    return key.path == path;
  };
  const auto found = std::find_if(keys.begin(), keys.end(), is_at);
  return found == keys.end() ? nullptr : &*found;
}

// -- what there is not ---------------------------------------------------------------------------

namespace {

/// A misspelt candidate, or those of which `name` is a part ("rate": learning_rate).
Names near_names(std::string_view name, const Names& candidates) {
  for (const OtherName& other : other_names()) {
    const std::string meant(other.key.empty()
                                ? other.stands_for.substr(other.stands_for.rfind('.') + 1)
                                : other.scheme());
    if (other.name.substr(other.name.rfind('.') + 1) == name &&
        std::find(candidates.begin(), candidates.end(), meant) != candidates.end()) {
      return {meant};
    }
  }
  if (const std::string near = nearest(name, candidates); !near.empty()) {
    return {near};
  }
  Names names;
  const std::string part = concat('_', name, '_');
  for (const std::string& candidate : candidates) {
    if (('_' + candidate + '_').find(part) != std::string::npos) {
      names.push_back(candidate);
    }
  }
  return names;
}

/// Where the experiment has keys of this name, below `path`.
Names paths_ending_in(std::string_view name, const std::string& path) {
  constexpr std::size_t kShownMax = 3;
  Names paths;
  for (const Key& key : all_keys()) {
    const bool below = path.empty() || key.path.starts_with(path + '.');
    if (below && key.field->name() == name && paths.size() < kShownMax) {
      paths.push_back(key.path);
    }
  }
  return paths;
}

}  // namespace

Names meant_keys(const pb::Descriptor& type, const std::string& path, std::string_view name) {
  Names meant = path.empty() ? Names{} : paths_ending_in(name, path);
  if (meant.empty()) {
    meant = near_names(name, keys_of(type));
  }
  if (meant.empty()) {
    meant = paths_ending_in(name, "");
  }
  if (meant.empty() && path.empty()) {  // below a group, a name that is only alike means nothing
    Names everywhere;
    for (const Key& key : all_keys()) {
      everywhere.push_back(key.field->name());
    }
    meant = paths_ending_in(nearest(name, everywhere), "");
  }
  return meant;
}

Error unknown_key(const std::string& where,
                  const pb::Descriptor& type,
                  const std::string& path,
                  std::string_view name) {
  const Names names = keys_of(type);
  return usage(where + ": " + (path.empty() ? "an experiment" : path) + " has no key " +
               quoted(name) + did_you_mean(meant_keys(type, path, name)) +
               (names.empty() ? "" : legal(names)));
}

Error unknown_value(const std::string& where, std::string_view value, const Names& legal_values) {
  return usage(where + ": " + quoted(value) + " is not one of its values" +
               did_you_mean(near_names(value, legal_values)) + legal(legal_values));
}

Error two_alternatives(const std::string& where, const std::string& one, const std::string& other) {
  return usage(where + ": " + one + " and " + other + " are alternatives, choose one");
}

}  // namespace troupe::schema

// -- names ---------------------------------------------------------------------------------------

namespace troupe {

std::string did_you_mean(const std::vector<std::string>& names) {
  schema::Names shown;
  for (const std::string& name : names) {
    shown.push_back('"' + name + '"');
  }
  return shown.empty() ? "" : ", did you mean " + joined(shown, " or ") + "?";
}

std::vector<std::string> keys_meant(std::string_view name) {
  return schema::meant_keys(schema::root(), "", name);
}

namespace {

/// Damerau-Levenshtein: inserted, deleted, replaced letters and swapped neighbours.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1);
  std::vector<std::size_t> above(b.size() + 1);
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) {
    above[j] = j;
  }
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, replaced});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
    before.swap(above);
    above.swap(row);
  }
  return above[b.size()];
}

}  // namespace

std::string nearest(std::string_view name, const std::vector<std::string>& candidates) {
  constexpr std::size_t kNameMax = 64;  // longer than any name of ours
  if (name.empty() || name.size() > kNameMax) {
    return "";
  }
  // One edit in three letters: "sdg" means sgd, "rate" does not mean rule. One letter has to stay.
  const std::size_t edits_max =
      std::min(std::max<std::size_t>(name.size() / 3, 1), name.size() - 1);
  std::size_t best = edits_max + 1;
  std::string found;
  for (const std::string& candidate : candidates) {
    const std::size_t distance = edit_distance(schema::lower(name), schema::lower(candidate));
    if (distance < best) {
      best = distance;
      found = candidate;
    }
  }
  return found;
}

}  // namespace troupe
