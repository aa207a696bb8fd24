#include "runtime/checkpoint/safetensors_header.hpp"

#include "runtime/record/json.hpp"

#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace troupe {
namespace {

namespace pb = google::protobuf;

constexpr int kDimensionsMax = 64;                       // as PyTorch's
constexpr double kExactBelow = 9'007'199'254'740'992.0;  // 2^53: JSON's numbers are doubles

/// What is wrong with a header, on its way from where it was met to parse_safetensors_header.
struct MalformedHeader {
  std::string what;
};

std::string text_in(const pb::Value& value, const std::string& of) {
  if (!value.has_string_value()) {
    throw MalformedHeader{of + " is no text"};
  }
  return value.string_value();
}

std::vector<std::int64_t> numbers_in(const pb::Value& value, const std::string& of) {
  if (!value.has_list_value() || value.list_value().values_size() > kDimensionsMax) {
    throw MalformedHeader{concat(of, " is no list of at most ", kDimensionsMax, " numbers")};
  }
  std::vector<std::int64_t> all;
  for (const pb::Value& one : value.list_value().values()) {
    const double number = one.number_value();
    if (!one.has_number_value() || number < 0 || number >= kExactBelow ||
        number != std::floor(number)) {
      throw MalformedHeader{of + " has what is no whole number from 0 to 2^53 - 1"};
    }
    all.push_back(static_cast<std::int64_t>(number));
  }
  return all;
}

SafetensorsHeader::Tensor tensor_in(const std::string& name, const pb::Value& value) {
  const auto& members = value.struct_value().fields();
  const auto of = [&](const char* member) {
    return concat(json_string(name), ": its ", member);
  };
  for (const char* const member : {"dtype", "shape", "data_offsets"}) {
    if (!members.contains(member)) {
      throw MalformedHeader{concat(json_string(name), " has no ", member)};
    }
  }
  if (members.size() > 3) {
    throw MalformedHeader{json_string(name) + " has more than dtype, shape and data_offsets"};
  }
  return {name,
          text_in(members.at("dtype"), of("dtype")),
          numbers_in(members.at("shape"), of("shape")),
          numbers_in(members.at("data_offsets"), of("data_offsets"))};
}

SafetensorsHeader header_in(std::string_view text) {
  if (!text.starts_with('{')) {
    throw MalformedHeader{"it does not begin with {"};
  }
  pb::Struct all;
  const auto parsed = pb::util::JsonStringToMessage(std::string(text), &all);
  if (!parsed.ok()) {
    const std::string why(parsed.message());  // behind its first line is an excerpt
    throw MalformedHeader{"its header is not JSON: " + why.substr(0, why.find('\n'))};
  }
  SafetensorsHeader header;
  for (const auto& [name, value] : all.fields()) {
    if (name != "__metadata__") {
      header.tensors.push_back(tensor_in(name, value));
      continue;
    }
    for (const auto& [key, meaning] : value.struct_value().fields()) {
      header.metadata[key] = text_in(meaning, "the metadata's " + json_string(key));
    }
  }
  std::sort(header.tensors.begin(), header.tensors.end(), [](const auto& a, const auto& b) {
    return std::pair(a.data_offsets, a.name) < std::pair(b.data_offsets, b.name);
  });
  return header;
}

}  // namespace

Result<SafetensorsHeader> parse_safetensors_header(std::string_view text) {
  try {
    return header_in(text);
  } catch (const MalformedHeader& malformed) {
    return Error{ErrorKind::data, malformed.what};
  }
}

}  // namespace troupe
