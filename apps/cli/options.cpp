// The only file that includes CLI11, because that alone takes a compiler longer than most of our files.
#include "apps/cli/options.hpp"

#include "apps/cli/text.hpp"
#include "kernels/wording.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cmath>
#include <sstream>
#include <type_traits>

namespace troupe {
namespace {

CLI::Option* add_value(CLI::App& app, const CommandOption& option) {
  return std::visit(
      [&](auto* value) {
        if constexpr (std::is_same_v<decltype(value), bool*>) {
          return app.add_flag(option.names, *value, option.doc);
        } else {
          return app.add_option(option.names, *value, option.doc);
        }
      },
      option.value);
}

template <typename... Ts>
bool holds_one_of(const OptionValue& value) {
  return (std::holds_alternative<Ts*>(value) || ...);
}

/// "no number from 0 up", "no whole number from 1 to 1024".
std::string outside(const OptionRange& range, bool whole) {
  const auto written = [whole](double bound) {
    return whole ? std::to_string(static_cast<std::int64_t>(bound)) : concat(bound);
  };
  const bool bounded = range.most < std::numeric_limits<double>::max();
  return fill_in("no {} from {}{}",
                 whole ? "whole number" : "number",
                 written(range.least),
                 bounded ? " to " + written(range.most) : " up");
}

/// What is wrong with `text`; "" where it is a number in the range. "nan" is in none.
std::string misplaced(const std::string& text, const OptionRange& range, bool whole) {
  double number = 0;
  const bool read = CLI::detail::lexical_cast(text, number);
  const bool inside = read && number >= range.least && number <= range.most;
  return inside && (!whole || number == std::floor(number))
             ? std::string()
             : concat(text, " is ", outside(range, whole));
}

/// What is wrong with an empty word; "": nothing. A shell makes one of "$NAME" where NAME is not set, and neither a default nor a
/// name that is not there is what its user has asked for.
std::string refuse_empty(const CommandOption& option) {
  const bool is_text = holds_one_of<std::string, std::vector<std::string>>(option.value);
  const bool may_be = is_text && option.names.starts_with('-');
  return !option.refuse_empty.empty() || may_be
             ? option.refuse_empty
             : "this is an empty word; leave it out, or name one";
}

void add_option(CLI::App& app, const CommandOption& option) {
  CLI::Option* added = add_value(app, option);
  if (option.names.starts_with('-') &&
      holds_one_of<std::vector<std::string>, std::vector<double>>(option.value)) {
    added->allow_extra_args(false);  // it would swallow the words behind its value
  }
  if (!option.type.empty()) {
    added->type_name(option.type);
  }
  if (!holds_one_of<bool>(option.value)) {
    added->check([sentence = refuse_empty(option)](const std::string& text) {
      return text.empty() ? sentence : std::string();
    });
  }
  if (option.range) {
    const bool whole =
        !holds_one_of<double, std::vector<double>, std::optional<double>>(option.value);
    added->check([range = *option.range, whole](const std::string& text) {
      return misplaced(text, range, whole);
    });
  }
  if (!option.legal.empty()) {
    added->check(CLI::IsMember(option.legal));
  }
  added->required(option.required);
}

CLI::App* add_verb(CLI::App& app, const Syntax& verb) {
  CLI::App* added = app.add_subcommand(verb.name, verb.summary);
  added->allow_extras();
  for (const CommandOption& option : verb.options) {
    add_option(*added, option);
  }
  return added;
}

/// CLI11's complaint in our words, where it is one that can come up here; `verb` is what was asked for, or nullptr.
std::string complaint(const CLI::ParseError& error, const Syntax* verb) {
  const std::string text = error.what();
  if (error.get_name() == "RequiredError" && verb) {
    const std::string name = text.substr(0, text.find(' '));
    const auto of = std::ranges::find(verb->options, name, &CommandOption::names);
    return concat(verb->name,
                  ": ",
                  text,
                  of == verb->options.end() ? "" : ": " + of->doc.substr(0, of->doc.find("; ")));
  }
  if (error.get_name() == "ConversionError") {  // "Could not convert: --lr = 0,1"
    const std::size_t value = std::min(text.find(" = "), text.size() - 3);
    const std::size_t name = text.find("--");
    return name < value ? fill_in("{}: \"{}\" is no number that it takes",
                                  text.substr(name, value - name),
                                  text.substr(value + 3))
                        : text;
  }
  const std::string option = text.substr(0, text.find(": "));
  if (error.get_name() == "ArgumentMismatch") {
    const bool missing = text.ends_with(" missing");
    return option + (missing ? ": has no value behind it" : ": may be given once only");
  }
  return text;
}

// -- the help of a verb --------------------------------------------------------------------------

constexpr std::size_t kColumns = 80;
constexpr std::size_t kLines = 24;

/// What stands for the value; "" of a flag.
std::string type_name(const CommandOption& option) {
  return !option.type.empty() || holds_one_of<bool>(option.value)            ? option.type
         : holds_one_of<std::string, std::vector<std::string>>(option.value) ? "TEXT"
                                                                             : "N";
}

/// "-q, --quiet", "--out DIR", "EXPERIMENT".
std::string shown(const CommandOption& option) {
  if (!option.names.starts_with('-')) {
    return option.names;
  }
  const std::size_t comma = option.names.find(',');
  const std::string type = type_name(option);
  const std::string name = comma == option.names.npos ? option.names
                                                      : option.names.substr(comma + 1) + ", " +
                                                            option.names.substr(0, comma);
  return name + (type.empty() ? "" : " " + type);
}

std::string option_lines(const std::vector<CommandOption>& options, bool whole) {
  std::size_t width = 0;
  for (const CommandOption& option : options) {
    width = std::max(width, shown(option).size() + 4);
  }
  std::string text;
  for (const CommandOption& option : options) {
    const std::string doc = whole ? option.doc : option.doc.substr(0, option.doc.find("; "));
    std::string name = "  " + shown(option);
    name.resize(width, ' ');
    // Blanks in front would be taken for blanks between words.
    std::string lines = wrapped(std::string(width, '.') + doc, kColumns, std::string(width, ' '));
    text += lines.replace(0, width, name) + '\n';
  }
  return text;
}

}  // namespace

std::string verb_help(const ProgramText& program, const Syntax& verb, bool whole) {
  std::vector<CommandOption> options = verb.options;
  bool help = false;
  options.push_back({.names = "--help,-h", .value = &help, .doc = "this, and end"});
  std::string begin = concat(program.name, ' ', verb.name);
  for (const CommandOption& option : verb.options) {
    if (!option.names.starts_with('-')) {
      begin += option.required ? ' ' + option.names : " [" + option.names + ']';
    }
  }
  begin += verb.options.empty() ? "" : " [OPTIONS]";
  begin = wrapped(concat(begin, ": ", verb.summary), kColumns, "  ") + '\n';
  const std::string all = begin + option_lines(options, true) + verb.footer;
  if (whole || std::count(all.begin(), all.end(), '\n') <= static_cast<std::ptrdiff_t>(kLines)) {
    return all;
  }
  std::string end = verb.footer;
  const std::string more = concat("More: ", program.name, " help ", verb.name, '\n');
  const std::size_t last = end.size() < 2 ? 0 : end.size() - 1 - end.rfind('\n', end.size() - 2);
  if (last > 0 && last + more.size() <= kColumns) {
    end.back() = ' ';
  }
  return concat(begin, option_lines(options, false), end, more);
}

Result<Request> parse_words(int argc,
                            const char* const* argv,
                            const ProgramText& program,
                            const std::vector<Syntax>& verbs) {
  CLI::App app(program.summary, program.name);
  app.set_version_flag("--version", program.version);
  app.footer(program.footer);
  app.allow_extras();  // the caller tells of them
  app.require_subcommand(0, 1);
  std::vector<CLI::App*> parsers;
  for (const Syntax& verb : verbs) {
    parsers.push_back(add_verb(app, verb));
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& asked) {  // --help, --version
    const auto parsed = app.get_subcommands();
    const auto verb = std::find_if(verbs.begin(), verbs.end(), [&](const Syntax& v) {
      return !parsed.empty() && v.name == parsed.front()->get_name();
    });
    if (verb != verbs.end()) {
      return Request{.text = verb_help(program, *verb, false)};
    }
    std::ostringstream text;
    app.exit(asked, text, text);
    return Request{.text = text.str()};
  } catch (const CLI::ParseError& error) {
    const auto parsed = app.get_subcommands();
    const auto verb = std::ranges::find_if(verbs, [&](const Syntax& v) {
      return !parsed.empty() && v.name == parsed.front()->get_name();
    });
    return Error{ErrorKind::usage, complaint(error, verb == verbs.end() ? nullptr : &*verb)};
  }
  if (auto before = app.remaining(); !before.empty()) {
    return Request{.extra = std::move(before)};
  }
  for (std::size_t i = 0; i < parsers.size(); ++i) {
    if (parsers[i]->parsed()) {
      return Request{.verb = i, .extra = parsers[i]->remaining()};
    }
  }
  return Request{.help = app.help()};
}

}  // namespace troupe
