#include "apps/cli/command_line.hpp"

#include "actors/exchange/built_in.hpp"
#include "apps/cli/completion.hpp"
#include "apps/cli/options.hpp"
#include "apps/cli/registered.hpp"
#include "apps/cli/version.hpp"
#include "kernels/instruction_set.hpp"
#include "kernels/sequences.hpp"
#include "kernels/wording.hpp"
#include "messages/experiment.hpp"
#include "messages/other_names.hpp"

#include <algorithm>
#include <array>
#include <memory>
#include <new>
#include <ostream>
#include <string_view>

namespace troupe {
namespace {

struct Verb {
  const char* name;
  const char* summary;
  Command (*declare)();
};

/// A new verb is one line here.
constexpr std::array kVerbs{
    Verb{"help",
         "how a verb is used; or what a key, a scheme, a preset or a term is; --man: all as a man "
         "page",
         declare_explain},
    Verb{"run", "train on the real clock", declare_run},
    Verb{"sim", "train on the virtual clock: exactly repeatable, times modelled", declare_sim},
    Verb{"replay", "a recorded run of the real clock once more, bit for bit", declare_replay},
    Verb{"compare", "several schemes side by side, on equal terms", declare_compare},
    Verb{"board",
         "every scheme on three networks, disturbed and not: the leaderboard",
         declare_board},
    Verb{"plan",
         "stages, memory, bubble and staleness of an experiment, without running it",
         declare_plan},
    Verb{"runs", "the runs of a folder: how far they are, and what came of them", declare_runs},
    Verb{"plot", "draw the curves of runs and comparisons in one figure", declare_plot},
    Verb{"trace",
         "what each actor of a run did when: the file for Perfetto, and its sums",
         declare_trace},
    Verb{"watch", "a page of runs that go on or are over, for a browser", declare_watch},
    Verb{
        "top", "where runs stand, in the terminal; with --diagnose who holds them up", declare_top},
    Verb{"report", "runs or a comparison as one HTML file", declare_report},
    Verb{"config", "print or validate an experiment", declare_config},
    Verb{"data", "download a data set, or write what a run reads of it", declare_data},
    Verb{"eval", "how good trained weights are, on test or training data", declare_eval},
    Verb{"predict", "what trained weights say of each sample, as CSV", declare_predict},
    Verb{"sample", "write text with a language model that a run has trained", declare_sample},
    Verb{"sharpness",
         "how much the loss rises in a small box around trained weights",
         declare_sharpness},
    Verb{"ckpt", "list, copy and check files of weights", declare_ckpt},
    Verb{"explain", "what a schedule, policy or optimizer does", declare_explain},
    Verb{"conformance",
         "whether a rule keeps what the runtime promises of every rule",
         declare_conformance},
    Verb{"node", "plays its part of runs that are led from other hosts", declare_node},
    Verb{"keys", "the keys of an experiment; with --hosts, certificates for hosts", declare_keys},
    Verb{"doctor", "what this machine has and what would be used", declare_doctor},
    Verb{"completion",
         "a script for a shell, which then completes verbs, options and keys",
         [] {
           return Command();
         }},
    Verb{"bench", "measures the budgets of the project here, as ratios", declare_bench},
};

constexpr const char* kExitCodes =
    "Exit codes: 0 done; 1 a rule does not conform, a replay departs; 2 command line or "
    "experiment\n"
    "wrong; 3 data wrong or missing; 4 training diverged; 5 something was lost for good or could "
    "not be\n"
    "written; 130 interrupted.";

/// What other programs call verbs of ours.
constexpr std::pair<std::string_view, std::string_view> kOtherVerbs[] = {{"train", "run"},
                                                                         {"fit", "run"},
                                                                         {"simulate", "sim"},
                                                                         {"evaluate", "eval"},
                                                                         {"test", "eval"},
                                                                         {"infer", "predict"},
                                                                         {"list", "runs"},
                                                                         {"ls", "runs"}};

/// The one of `names` that is near, if there is one.
std::vector<std::string> near_one(const std::string& name, const std::vector<std::string>& names) {
  const std::string near = nearest(name, names);
  return near.empty() ? std::vector<std::string>() : std::vector{near};
}

Error unknown_verb(const std::string& name) {
  const auto names = mapped<std::string>(kVerbs, &Verb::name);
  std::vector<std::string> near = near_one(name, names);
  for (const auto& [other, verb] : kOtherVerbs) {
    if (other == name) {
      near = {std::string(verb)};
    }
  }
  return usage_error(
      "there is no verb \"{}\"{} (verbs: {})", name, did_you_mean(near), joined(names, ", "));
}

/// What `verb`, or the program where it has no name, cannot do with `word`.
Error unexpected(const Syntax& verb, const std::string& word) {
  const std::string where = verb.name.empty() ? "" : verb.name + ": ";
  if (!word.starts_with('-')) {
    return {ErrorKind::usage,
            concat(where, "\"", word, "\" is one word too many (--help shows what is expected)")};
  }
  std::vector<std::string> names{"--help"};
  for (const CommandOption& option : verb.options) {
    if (option.names.starts_with("--")) {
      names.push_back(option.names.substr(0, option.names.find(',')));
    }
  }
  if (verb.name.empty()) {
    names.emplace_back("--version");
  }
  std::string legal = joined(names, ", ");
  const std::string option = word.substr(0, word.find('='));
  std::vector<std::string> near = near_one(option, names);
  if (near.empty() && option.starts_with("--") && std::ranges::count(names, "--set") > 0) {
    for (const std::string& key : keys_meant(plain_name(option.substr(2)))) {
      near.push_back("--set " + key + "=VALUE");
    }
  }
  return usage_error("{}there is no option \"{}\"{} (options: {}{}",
                     where,
                     option,
                     did_you_mean(near),
                     legal,
                     verb.name.empty() ? "; those of a verb stand behind it)" : ")");
}

bool is_verb(const std::string& word) {
  return std::ranges::any_of(kVerbs, [&](const Verb& verb) { return verb.name == word; });
}

/// The verbs as they are parsed, and what each does.
struct Verbs {
  std::vector<Syntax> syntax;
  std::vector<VerbAction> actions;
  std::string word;   // of --help-keys, which all have that take an experiment
  std::string shell;  // of completion, which tells of all verbs
};

std::unique_ptr<Verbs> declare_verbs() {
  auto all = std::make_unique<Verbs>();
  for (const Verb& verb : kVerbs) {
    Command command = verb.declare();
    Syntax syntax{verb.name, verb.summary, std::move(command.options)};
    if (command.takes_experiment) {
      syntax.options.push_back({.names = "--help-keys",
                                .value = &all->word,
                                .doc = "the keys of an experiment that have to do with WORD",
                                .type = "WORD",
                                .refuse_empty = "name a word, such as rate"});
      syntax.footer = "Presets: troupe run --list. Keys: troupe help KEY.\n" + registered_help();
    }
    if (syntax.name == "completion") {
      syntax.options.push_back({.names = "SHELL",
                                .value = &all->shell,
                                .doc = "bash, zsh or fish",
                                .legal = {"bash", "zsh", "fish"},
                                .required = true});
    }
    all->syntax.push_back(std::move(syntax));
    all->actions.push_back(std::move(command.action));
  }
  return all;
}

int show_keys(Console& console, const std::string& word) {
  const std::string keys = experiment_help(word);
  if (keys.empty()) {
    return fail(console,
                {ErrorKind::usage,
                 concat("--help-keys: no key has to do with \"",
                        word,
                        "\" (`troupe keys` lists where they begin)")});
  }
  console.out << keys;
  return 0;
}

int dispatch(int argc, const char* const* argv, Console& console) {
  if (argc > 1 && argv[1][0] != '-' && !is_verb(argv[1])) {
    return fail(console, unknown_verb(argv[1]));
  }
  const auto declared = declare_verbs();
  const std::vector<Syntax>& verbs = declared->syntax;
  const ProgramText program{
      .name = "troupe",
      .summary = "Troupe: asynchronous training of neural networks by a company of actors.",
      .version = std::string("troupe ") + version(),
      .footer = kExitCodes};
  const bool asks = argc > 1 && std::string_view(argv[1]) == "help";
  if (asks && argc == 3 && is_verb(argv[2])) {
    const auto verb = std::ranges::find(verbs, argv[2], &Syntax::name);
    console.out << verb_help(program, *verb, true);
    return 0;
  }
  if (asks && argc == 3 && std::string_view(argv[2]) == "--man") {
    console.out << man_page(program, verbs);
    return 0;
  }
  const std::array<const char*, 2> whole{argv[0], "--help"};
  const auto request = asks && argc == 2 ? parse_words(2, whole.data(), program, verbs)
                                         : parse_words(argc, argv, program, verbs);
  if (!request) {
    return fail(console, request.error());
  }
  if (!request->text.empty()) {
    console.out << request->text;
    return 0;
  }
  if (!request->extra.empty()) {
    return fail(
        console,
        unexpected(request->verb ? verbs[*request->verb] : Syntax{}, request->extra.front()));
  }
  if (!declared->word.empty()) {
    return show_keys(console, declared->word);
  }
  if (!declared->shell.empty()) {
    console.out << completion_script(declared->shell, verbs);
    return 0;
  }
  if (request->verb) {
    if (const auto able = check_instruction_set(); !able) {
      return fail(console, able.error());
    }
    const auto code = declared->actions[*request->verb](console);
    return code ? *code : fail(console, code.error());
  }
  console.err << request->help;
  return fail(console,
              {ErrorKind::usage, "say what to do: `troupe run` trains a small network at once"});
}

}  // namespace

int run_command_line(int argc, const char* const* argv, Console& console) {
  try {
    const auto known = register_peer_exchanges();  // before a verb lists what there is
    return known ? dispatch(argc, argv, console) : fail(console, known.error());
  } catch (const std::exception& error) {
    const bool bare = std::string_view(error.what()) == std::bad_alloc().what();
    return fail(
        console,
        {ErrorKind::lost,
         bare ? "there is not enough memory; `troupe plan` tells what a run needs" : error.what()});
  }
}

}  // namespace troupe
