#include "apps/cli/text.hpp"

#include "kernels/sequences.hpp"
#include "runtime/record/json.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <sstream>

namespace troupe {
namespace {

std::string rounded(double number, int digits, const char* unit) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%.*f%s", digits, number, unit);
  return text.data();
}

}  // namespace

std::string grouped(std::int64_t number) {
  std::string text = std::to_string(number);
  const std::ptrdiff_t first = number < 0 ? 1 : 0;
  for (std::ptrdiff_t at = static_cast<std::ptrdiff_t>(text.size()) - 3; at > first; at -= 3) {
    text.insert(static_cast<std::size_t>(at), 1, ',');
  }
  return text;
}

std::string number(double value, const char* pattern) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), pattern, value);
  return std::isfinite(value) ? text.data() : "not finite";
}

std::string mebibytes(double bytes) {
  const double mib = bytes / 1048576;
  return rounded(mib, mib < 0.995 ? 3 : mib < 99.5 ? 2 : 0, " MiB");
}

std::string percent(double share) {
  return rounded(100 * share, 1, " %");
}

std::string duration(double seconds) {
  if (seconds >= 1e6) {
    std::array<char, 32> text{};
    std::snprintf(text.data(), text.size(), "%.4g s", seconds);
    return text.data();
  }

  struct Unit {
    double size;
    const char* name;
  };

  constexpr std::array<Unit, 4> kUnits{{{1, " s"}, {1e-3, " ms"}, {1e-6, " us"}, {1e-9, " ns"}}};
  const auto unit = std::find_if(
      kUnits.begin(), kUnits.end() - 1, [&](const Unit& u) { return seconds >= 0.9995 * u.size; });
  const double scaled = seconds / unit->size;
  return rounded(scaled, scaled >= 99.5 ? 0 : scaled >= 9.95 ? 1 : 2, unit->name);
}

std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == text.npos) {
    return text;
  }
  std::string quoted = "\"";
  for (const char c : text) {
    quoted += c == '"' ? "\"\"" : std::string(1, c);
  }
  return quoted + '"';
}

std::string csv_field(double number) {
  return std::isfinite(number) ? json_number(number) : "";
}

std::string csv_line(const std::vector<std::string>& cells) {
  return joined(cells, ",", [](const std::string& cell) { return csv_field(cell); }) + '\n';
}

namespace {

/// Without what a terminal would obey: names and causes may be of a stranger's files.
std::string obeyed_by_none(std::string text) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    // U+0080 to U+009F, too.
    const bool second = c >= 0x80 && c < 0xa0 && i > 0 && text[i - 1] == '\xc2';
    if (c < ' ' || c == 0x7f || second) {
      text[i] = '?';
    }
    if (second) {
      text[i - 1] = '?';
    }
  }
  return text;
}

}  // namespace

std::string table(const std::vector<std::vector<std::string>>& rows,
                  const std::string& indent,
                  std::size_t width) {
  struct Column {
    std::size_t width = 0;
    bool numbers = true;
  };

  std::vector<Column> columns;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    columns.resize(std::max(columns.size(), rows[r].size()));
    for (std::size_t i = 0; i < rows[r].size(); ++i) {
      const std::string& cell = rows[r][i];
      columns[i].width = std::max(columns[i].width, cell.size());
      const bool number =
          cell.empty() || std::isdigit(static_cast<unsigned char>(cell.front())) != 0;
      columns[i].numbers &= number || (r == 0 && rows.size() > 1);
    }
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line = indent;
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::string blanks(columns[i].width - row[i].size(), ' ');
      line += i > 0 ? "  " : "";
      if (i + 1 == columns.size() && width != std::string::npos) {
        const std::size_t at = line.size();
        line += wrapped(std::string(at, '.') + row[i], width, std::string(at, ' ')).substr(at);
        continue;
      }
      const std::string cell = obeyed_by_none(row[i]);
      line += columns[i].numbers ? blanks + cell : cell + blanks;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + '\n';
  }
  return text;
}

std::string wrapped(const std::string& text, std::size_t width, const std::string& indent) {
  std::istringstream words(text);
  std::string out;
  std::string word;
  std::size_t column = 0;
  while (words >> word) {
    if (column > 0 && column + 1 + word.size() > width) {
      out += '\n' + indent;
      column = indent.size();
    } else if (column > 0) {
      out += ' ';
      ++column;
    }
    out += obeyed_by_none(word);
    column += word.size();
  }
  return out;
}

}  // namespace troupe
