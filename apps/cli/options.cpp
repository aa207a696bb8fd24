// The only file that includes CLI11, because that alone takes a compiler longer than most of our files.
#include "apps/cli/options.hpp"

#include <CLI/CLI.hpp>

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
  return concat("no ",
                whole ? "whole number" : "number",
                " from ",
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

void add_option(CLI::App& app, const CommandOption& option) {
  CLI::Option* added = add_value(app, option);
  if (option.names.starts_with('-') &&
      holds_one_of<std::vector<std::string>, std::vector<double>>(option.value)) {
    added->allow_extra_args(false);  // it would swallow the words behind its value
  }
  if (!option.type.empty()) {
    added->type_name(option.type);
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
  if (!option.refuse_empty.empty()) {
    added->check([sentence = option.refuse_empty](const std::string& text) {
      return text.empty() ? sentence : std::string();
    });
  }
  if (option.shows_default) {
    added->capture_default_str();
  }
  added->required(option.required);
}

CLI::App* add_verb(CLI::App& app, const Syntax& verb) {
  CLI::App* added = app.add_subcommand(verb.name, verb.summary);
  added->allow_extras();
  if (verb.footer) {
    added->footer(verb.footer);
  }
  for (const CommandOption& option : verb.options) {
    add_option(*added, option);
  }
  return added;
}

/// CLI11's complaint in our words, where it is one that can come up here.
std::string complaint(const CLI::ParseError& error) {
  const std::string text = error.what();
  const std::string option = text.substr(0, text.find(": "));
  if (error.get_name() == "ArgumentMismatch") {
    const bool missing = text.ends_with(" missing");
    return option + (missing ? ": has no value behind it" : ": may be given once only");
  }
  return text;
}

}  // namespace

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
    std::ostringstream text;
    app.exit(asked, text, text);
    return Request{.text = text.str()};
  } catch (const CLI::ParseError& error) {
    return Error{ErrorKind::usage, complaint(error)};
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
