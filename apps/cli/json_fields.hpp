// JSON that a run has written, read again.
#pragma once

#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>

#include <limits>
#include <string>
#include <string_view>

namespace troupe {

using JsonFields = google::protobuf::Map<std::string, google::protobuf::Value>;

/// Whether `text` is one object, which is in `object` then.
inline bool parse_object(std::string_view text, google::protobuf::Struct& object) {
  object.Clear();
  return google::protobuf::util::JsonStringToMessage(std::string(text), &object).ok();
}

/// NaN where there is none.
inline double number_of(const JsonFields& fields, const char* name) {
  const auto found = fields.find(name);
  return found != fields.end() && found->second.has_number_value()
             ? found->second.number_value()
             : std::numeric_limits<double>::quiet_NaN();
}

/// "" where there are none.
inline std::string words_of(const JsonFields& fields, const char* name) {
  const auto found = fields.find(name);
  return found != fields.end() ? found->second.string_value() : "";
}

/// Empty where there is none.
inline const JsonFields& object_of(const JsonFields& fields, const char* name) {
  static const JsonFields kNone;
  const auto found = fields.find(name);
  return found != fields.end() ? found->second.struct_value().fields() : kNone;
}

}  // namespace troupe
