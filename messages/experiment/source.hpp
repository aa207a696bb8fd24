// A text that becomes an experiment, and where it came from. Private to messages/experiment*.cpp.
#pragma once

#include "messages/experiment/schema.hpp"
#include "messages/proto.hpp"

#include <string>
#include <string_view>

namespace troupe::schema {

struct Source {
  std::string_view text;
  std::string origin;  // a path or a preset's name

  /// "origin:line"
  std::string at(std::size_t offset) const;
};

Result<proto::Experiment> parse_textproto(const Source& source);
Result<proto::Experiment> parse_json(const Source& source);

/// A message of protobuf's as a part of our sentence: no capital first, no full stop, on one line.
std::string adapted(std::string_view message);

}  // namespace troupe::schema
