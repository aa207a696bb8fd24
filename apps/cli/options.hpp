// What can stand on a command line, as plain data. options.cpp alone knows the parser that reads it.
#pragma once

#include "kernels/result.hpp"

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace troupe {

/// Where a value goes, and so what can be given: a flag, a text, a number, or several of them. A
/// list behind a word with dashes takes one value each time that the word is given.
using OptionValue = std::variant<bool*,
                                 std::string*,
                                 std::vector<std::string>*,
                                 int*,
                                 std::int64_t*,
                                 std::uint64_t*,
                                 double*,
                                 std::vector<double>*,
                                 std::optional<std::int64_t>*,
                                 std::optional<double>*>;

/// Of a number; whole numbers where the value is one.
struct OptionRange {
  double least = 0;
  double most = std::numeric_limits<double>::max();
};

struct CommandOption {
  std::string names;  // "--quiet,-q"; a word without dashes is told by its place
  OptionValue value;
  std::string doc;
  std::string type{};                  // how the help calls the value: "DIR"; "": TEXT, INT, ...
  std::optional<OptionRange> range{};  // none: any number
  std::vector<std::string> legal{};    // values; none: any
  std::string refuse_empty{};  // what is wrong with an empty text; "": nothing, behind dashes
  bool required = false;
};

/// A verb as its user sees it.
struct Syntax {
  std::string name;
  std::string summary;
  std::vector<CommandOption> options{};
  std::string footer{};  // below the help
};

/// The program as its help shows it.
struct ProgramText {
  std::string name;
  std::string summary;
  std::string version;
  std::string footer;  // below its help
};

/// `whole`: all that is said of each option, else the first part (up to a semicolon) where all would be
/// more than a screen, 24 lines of 80 characters.
std::string verb_help(const ProgramText& program, const Syntax& verb, bool whole);

/// What a command line asks for. The values are where the options said.
struct Request {
  // Its place; none: no verb was named, or `extra` was before it
  std::optional<std::size_t> verb{};
  std::string text{};                // of --help or --version: print it and end
  std::vector<std::string> extra{};  // words that the program, or else the verb, has no use for
  std::string help{};                // of the program, where no verb was named
};

/// Error (usage) where a value is missing, given too often or not legal.
Result<Request> parse_words(int argc,
                            const char* const* argv,
                            const ProgramText& program,
                            const std::vector<Syntax>& verbs);

}  // namespace troupe
