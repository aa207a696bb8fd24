#include "apps/cli/registered.hpp"

#include "apps/cli/text.hpp"

#include <cmath>

namespace troupe {
namespace {

/// "0.9; from 0 to 1"
std::string values_text(const Option& option) {
  switch (option.kind) {
    case Option::Kind::flag:
      return option.number != 0 ? "true" : "false";
    case Option::Kind::text:
      return '"' + option.text + '"';
    case Option::Kind::number:
      break;
  }
  std::string text = concat(option.number);
  if (std::isfinite(option.at_least)) {
    text += concat("; from ", option.at_least);
  }
  if (std::isfinite(option.at_most)) {
    text += concat(std::isfinite(option.at_least) ? " to " : "; up to ", option.at_most);
  }
  return text;
}

}  // namespace

std::vector<std::pair<std::string, std::string>> option_texts(const SchemeInfo& scheme) {
  std::vector<std::pair<std::string, std::string>> all;
  for (const Option& option : scheme.options) {
    all.emplace_back(option.name,
                     concat(option.doc, option.doc.empty() ? "(" : " (", values_text(option), ")"));
  }
  return all;
}

std::string registered_help() {
  std::vector<std::vector<std::string>> rows;
  for_each_registry([&](const char* /*choice*/, const std::string& key, const auto& schemes) {
    for (const auto& scheme : schemes) {
      if (!schemes.built_in(scheme)) {
        rows.push_back({key + ".custom.name=" + scheme.info.name, scheme.info.summary});
        for (const auto& [name, text] : option_texts(scheme.info)) {
          rows.push_back({"  ." + name, text});
        }
      }
    }
  });
  return rows.empty()
             ? ""
             : "\nRegistered by this program, with options (KEY.custom.values.OPTION=value):\n" +
                   table(rows, "  ");
}

}  // namespace troupe
