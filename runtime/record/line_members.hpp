// What a line of metrics.jsonl has, read back: for boards, which show every line by its own names.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe {

struct LineMembers {
  // By name, in the order of the line; a member of an object within it is called "idle/data". True is 1.
  std::vector<std::pair<std::string, double>> numbers;
  std::vector<std::pair<std::string, std::string>> words;  // a list as it is written

  const double* number(std::string_view name) const&;
  const std::string* word(std::string_view name) const&;
  // They point into the members.
  const double* number(std::string_view name) const&& = delete;
  const std::string* word(std::string_view name) const&& = delete;
};

/// Of a JSON object of our own making; null is left out. Of what is none, as much as can be read.
LineMembers line_members(std::string_view object);

}  // namespace troupe
