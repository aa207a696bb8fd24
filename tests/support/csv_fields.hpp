// CSV as the program writes it, taken apart.
#pragma once

#include <sstream>
#include <string>
#include <vector>

namespace troupe::test {

/// Fields by line, the head first; of text without quotes.
inline std::vector<std::vector<std::string>> csv_fields(const std::string& csv) {
  std::vector<std::vector<std::string>> lines;
  std::istringstream text(csv);
  for (std::string line; std::getline(text, line);) {
    lines.emplace_back();
    std::istringstream fields(line);
    for (std::string field; std::getline(fields, field, ',');) {
      lines.back().push_back(field);
    }
  }
  return lines;
}

}  // namespace troupe::test
