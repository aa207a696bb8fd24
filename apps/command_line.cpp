#include "apps/command_line.hpp"

#include "apps/version.hpp"
#include "messages/experiment.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <ostream>

namespace troupe {
namespace {

struct Verb {
  const char* name;
  const char* summary;
  VerbAction (*declare)(CLI::App&);
};

/// A new verb is one line here.
constexpr std::array kVerbs{
    Verb{"run", "train on the real clock", declare_run},
    Verb{"sim", "train on the virtual clock: exactly repeatable, times modelled", declare_sim},
    Verb{"compare", "several schemes side by side, on equal terms", declare_compare},
    Verb{"plan",
         "stages, memory, bubble and staleness of an experiment, without running it",
         declare_plan},
    Verb{"config", "print or validate an experiment", declare_config},
    Verb{"data", "download a data set, or write what a run reads of it", declare_data},
    Verb{"sample", "write text with a language model that a run has trained", declare_sample},
    Verb{"sharpness",
         "how much the loss rises in a small box around trained weights",
         declare_sharpness},
    Verb{"ckpt", "list, copy and check files of weights", declare_ckpt},
    Verb{"explain", "what a schedule, policy or optimizer does", declare_explain},
    Verb{"conformance",
         "whether a rule keeps what the runtime promises of every rule",
         declare_conformance},
    Verb{"doctor", "what this machine has and what would be used", declare_doctor},
    Verb{"bench", "measures the budgets of the project here, as ratios", declare_bench},
};

constexpr const char* kExitCodes =
    "Exit codes: 0 done; 1 a rule does not conform; 2 command line or experiment wrong;\n"
    "3 data wrong or missing; 4 training diverged; 5 something was lost for good or could not be\n"
    "written; 130 interrupted.";

std::string did_you_mean(const std::string& name, const std::vector<std::string>& names) {
  const std::string near = nearest(name, names);
  return near.empty() ? "" : ", did you mean \"" + near + "\"?";
}

Error unknown_verb(const std::string& name) {
  std::vector<std::string> names;
  std::string legal;
  for (const Verb& verb : kVerbs) {
    names.emplace_back(verb.name);
    legal += (legal.empty() ? "" : ", ") + names.back();
  }
  return {
      ErrorKind::usage,
      concat(
          "there is no verb \"", name, "\"", did_you_mean(name, names), " (verbs: ", legal, ")")};
}

/// The first word that `app` has no use for.
Error unexpected(const CLI::App& app, const std::string& verb, const std::string& word) {
  const std::string where = verb.empty() ? "" : verb + ": ";
  if (!word.starts_with('-')) {
    return {ErrorKind::usage,
            concat(where, "\"", word, "\" is one word too many (--help shows what is expected)")};
  }
  std::vector<std::string> names;
  std::string legal;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) {
      names.push_back("--" + name);
      legal += (legal.empty() ? "" : ", ") + names.back();
    }
  }
  return {ErrorKind::usage,
          concat(where,
                 "there is no option \"",
                 word.substr(0, word.find('=')),
                 "\"",
                 did_you_mean(word.substr(0, word.find('=')), names),
                 " (options: ",
                 legal,
                 ")")};
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

int dispatch(int argc, const char* const* argv, Console& console) {
  CLI::App app("Troupe: asynchronous training of neural networks by a company of actors.",
               "troupe");
  app.set_version_flag("--version", std::string("troupe ") + version());
  app.footer(kExitCodes);
  app.allow_extras();
  app.require_subcommand(0, 1);
  std::vector<std::pair<CLI::App*, VerbAction>> actions;
  for (const Verb& verb : kVerbs) {
    CLI::App* sub = app.add_subcommand(verb.name, verb.summary);
    sub->allow_extras();
    actions.emplace_back(sub, verb.declare(*sub));
  }
  const auto named = [&](const Verb& verb) {
    return std::string(verb.name) == argv[1];
  };
  if (argc > 1 && argv[1][0] != '-' && std::none_of(kVerbs.begin(), kVerbs.end(), named)) {
    return fail(console, unknown_verb(argv[1]));
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& asked) {  // --help, --version
    return app.exit(asked, console.out, console.err);
  } catch (const CLI::ParseError& error) {
    return fail(console, {ErrorKind::usage, complaint(error)});
  }
  for (const auto& [sub, action] : actions) {
    if (sub->parsed()) {
      const std::vector<std::string> words = sub->remaining();
      return words.empty() ? action(console)
                           : fail(console, unexpected(*sub, sub->get_name(), words.front()));
    }
  }
  if (const std::vector<std::string> words = app.remaining(); !words.empty()) {
    return fail(console, unexpected(app, "", words.front()));
  }
  console.err << app.help();
  return fail(console,
              {ErrorKind::usage, "say what to do: `troupe run` trains a small network at once"});
}

}  // namespace

int run_command_line(int argc, const char* const* argv, Console& console) {
  try {
    return dispatch(argc, argv, console);
  } catch (const std::exception& error) {
    return fail(console, {ErrorKind::lost, error.what()});
  }
}

}  // namespace troupe
