// What experiment.proto defines, by reflection: names, paths, defaults of choices, and the
// sentences about misspelt ones. Private to messages/experiment*.cpp.
//
// experiment.proto keeps to what is handled here: groups are messages that do not contain
// themselves, values are bool, int64, uint64, double, string and enums, the alternatives of a `kind`
// are messages and not repeated.
#pragma once

#include "messages/experiment.hpp"

#include <google/protobuf/descriptor.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::schema {

namespace pb = google::protobuf;

using Names = std::vector<std::string>;

constexpr std::size_t kTextBytesMax = std::size_t{1} << 20;
constexpr int kDepthMax = 16;  // of brackets; an experiment needs five

// -- text ----------------------------------------------------------------------------------------

std::string_view trimmed(std::string_view text);

/// How many bytes of `text` are valid UTF-8, from its start on (RFC 3629).
std::size_t valid_utf8(std::string_view text);

/// A to Z in small letters.
std::string lower(std::string_view text);

/// `text` as a message may hold it: short, on one line, valid UTF-8.
std::string legible(std::string_view text, std::size_t size_max = 60);
/// The same between quotes.
std::string quoted(std::string_view text);
/// ` (legal: a, b)`
std::string legal(const Names& names);

Error usage(std::string message);

// -- what there is -------------------------------------------------------------------------------

const pb::Descriptor& root();

/// The oneof that makes a message a choice, or null.
const pb::OneofDescriptor* kind_of(const pb::Descriptor& type);
bool is_group(const pb::FieldDescriptor& field);
bool is_internal(const pb::FieldDescriptor& field);
bool is_choice(const pb::FieldDescriptor& field);
/// A list of groups of a `key` and a `value`: path.KEY=value sets one.
bool is_table(const pb::FieldDescriptor& field);
const pb::FieldDescriptor& default_alternative(const pb::OneofDescriptor& kind);

/// As a user may name them.
Names keys_of(const pb::Descriptor& type);
Names alternatives_of(const pb::OneofDescriptor& kind);
Names values_of(const pb::EnumDescriptor& type);

/// "pipeline" and "stages": "pipeline.stages".
std::string under(const std::string& path, const std::string& name);

struct Key {
  std::string path;  // "pipeline.schedule.interleaved.chunks"
  const pb::FieldDescriptor* field;
};

/// Every key of an experiment, each group before what is in it.
const std::vector<Key>& all_keys();
const Key* find_key(std::string_view path);

// -- what there is not ---------------------------------------------------------------------------

/// `name` is not in the group `type` at `path`. It may be misspelt, or in the wrong place, or both.
Error unknown_key(const std::string& where,
                  const pb::Descriptor& type,
                  const std::string& path,
                  std::string_view name);
Error unknown_value(const std::string& where, std::string_view value, const Names& legal_values);
Error two_alternatives(const std::string& where, const std::string& one, const std::string& other);

}  // namespace troupe::schema
