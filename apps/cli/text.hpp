// Numbers and tables as a person reads them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace troupe {

/// "200,960"
std::string grouped(std::int64_t number);
/// As printf prints it; "not finite".
std::string number(double value, const char* pattern = "%.4f");
/// "1.25 MiB"
std::string mebibytes(double bytes);
/// "12.5 %"
std::string percent(double share);
/// "1.2 ms", "3.4 us", "2.5 s"
std::string duration(double seconds);

/// A field of a CSV file (RFC 4180): in quotes where it has a comma, a quote or the end of a line.
std::string csv_field(const std::string& text);
/// All digits; "" of what is not finite.
std::string csv_field(double number);
/// A line of the file, its end included.
std::string csv_line(const std::vector<std::string>& cells);

/// Characters of a line of what verbs explain.
constexpr std::size_t kPageWidth = 100;

/// Columns two blanks apart; one of numbers (below its head) stands to the right. Rows may be
/// short. With a `width` the last column goes on in lines of its own where it would be wider.
std::string table(const std::vector<std::vector<std::string>>& rows,
                  const std::string& indent = "",
                  std::size_t width = std::string::npos);

/// `text` in lines of at most `width` characters, the second and later ones indented.
std::string wrapped(const std::string& text, std::size_t width, const std::string& indent);

}  // namespace troupe
