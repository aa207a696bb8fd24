#include "runtime/schemes/registry.hpp"

#include "experiment/custom.pb.h"
#include "kernels/sequences.hpp"
#include "kernels/wording.hpp"
#include "messages/experiment.hpp"

#include <cctype>

namespace troupe {
namespace {

constexpr const char* kind_name(Option::Kind kind) {
  switch (kind) {
    case Option::Kind::number:
      return "a number";
    case Option::Kind::flag:
      return "true or false";
    case Option::Kind::text:
      return "a text";
  }
  return "";
}

std::string joined_names(const std::vector<Option>& options) {
  return options.empty() ? "none" : joined(options, ", ", &Option::name);
}

/// What is wrong with the value given to `option`, or "".
std::string fault(const Option& option, const proto::CustomValue& given) {
  if (given.has_text() != (option.kind == Option::Kind::text)) {
    return concat("it is ", kind_name(option.kind));
  }
  if (option.kind == Option::Kind::flag && given.value() != 0 && given.value() != 1) {
    return concat("it is ", kind_name(option.kind));
  }
  if (option.kind == Option::Kind::number &&
      !(given.value() >= option.at_least && given.value() <= option.at_most)) {
    return concat("it is from ", option.at_least, " to ", option.at_most);
  }
  return "";
}

}  // namespace

OptionValues::OptionValues(const std::vector<Option>& options, const proto::CustomScheme& given)
    : options_(options) {
  for (const proto::CustomValue& value : given.values()) {
    for (Option& option : options_) {
      if (option.name == value.key()) {
        option.number = value.value();
        option.text = value.text();
      }
    }
  }
}

const Option& OptionValues::find(std::string_view name, Option::Kind kind) const {
  for (const Option& option : options_) {
    if (option.name == name && option.kind == kind) {
      return option;
    }
  }
  TROUPE_CHECK(false, "the scheme has declared no option \"", name, "\" that is ", kind_name(kind));
}

double OptionValues::number(std::string_view name) const {
  return find(name, Option::Kind::number).number;
}

bool OptionValues::flag(std::string_view name) const {
  return find(name, Option::Kind::flag).number != 0;
}

const std::string& OptionValues::text(std::string_view name) const {
  return find(name, Option::Kind::text).text;
}

Result<void> check_options(const SchemeInfo& scheme,
                           const proto::CustomScheme& given,
                           std::string_view key) {
  for (const proto::CustomValue& value : given.values()) {
    const auto option = std::ranges::find(scheme.options, value.key(), &Option::name);
    if (option == scheme.options.end()) {
      return usage_error("{}.custom.values: {} has no option \"{}\"; it has {}",
                         key,
                         scheme.name,
                         value.key(),
                         joined_names(scheme.options));
    }
    if (const std::string why = fault(*option, value); !why.empty()) {
      const std::string shown =
          value.has_text() ? concat('"', value.text(), '"') : concat(value.value());
      return usage_error("{}.custom.values.{}: {} does not do; {}", key, value.key(), shown, why);
    }
  }
  return {};
}

Result<void> check_name(std::string_view name, std::string_view what) {
  const bool snake_case = !name.empty() && std::islower(static_cast<unsigned char>(name.front())) &&
                          std::all_of(name.begin(), name.end(), [](unsigned char c) {
                            return std::islower(c) || std::isdigit(c) || c == '_';
                          });
  if (!snake_case) {
    return usage_error(
        "{}: \"{}\" is no name; use lower-case letters, digits and _, with a letter first",
        what,
        name);
  }
  if (name == "custom") {
    return Error{ErrorKind::usage, concat(what, ": \"custom\" is taken")};
  }
  return {};
}

Error not_registered(std::string_view key,
                     const std::string& name,
                     const std::vector<std::string>& registered) {
  const std::string all = joined(registered, ", ");
  if (name.empty()) {
    return usage_error(
        "{}.custom.name: name the one to use; registered are: {}", key, all.empty() ? "none" : all);
  }
  const std::string near = nearest(name, registered);
  return usage_error("{}.custom.name: \"{}\" has not been registered{}{}",
                     key,
                     name,
                     near.empty() ? "" : ", did you mean \"" + near + "\"?",
                     all.empty() ? "" : " (registered: " + all + ")");
}

const std::string& custom_name(const proto::CustomScheme& custom) {
  return custom.name();
}

}  // namespace troupe
