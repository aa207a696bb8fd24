#include "apps/cli/completion.hpp"

#include "apps/presets/presets.hpp"
#include "kernels/check.hpp"
#include "messages/experiment/settings.hpp"

#include <algorithm>
#include <sstream>
#include <utility>

namespace troupe {
namespace {

/// What may stand where a value is expected.
enum class Completed { nothing, words, settings, experiments, files, folders };

std::vector<std::string> names_of(const CommandOption& option) {
  std::vector<std::string> names;
  std::istringstream all(option.names);
  for (std::string name; std::getline(all, name, ',');) {
    names.push_back(name);
  }
  return names;
}

bool is_flag(const CommandOption& option) {
  return std::holds_alternative<bool*>(option.value);
}

Completed completed_by(const CommandOption& option) {
  return !option.legal.empty()                                         ? Completed::words
         : option.type == "PATH=VALUE" || option.type == "PATH=VALUES" ? Completed::settings
         : option.names == "EXPERIMENT"                                ? Completed::experiments
         : option.type == "DIR" || option.names.ends_with("DIR")       ? Completed::folders
         : option.type == "FILE" || option.type == "PATH" || option.names == "FILES" ||
                 option.names == "WEIGHTS"
             ? Completed::files
             : Completed::nothing;
}

std::vector<std::string> options_of(const Syntax& verb) {
  std::vector<std::string> all{"--help", "-h"};
  for (const CommandOption& option : verb.options) {
    if (option.names.starts_with('-')) {
      for (std::string& name : names_of(option)) {
        all.push_back(std::move(name));
      }
    }
  }
  return all;
}

/// The words one after the other.
std::string row(const std::vector<std::string>& words, const std::string& between = " ") {
  std::string text;
  for (const std::string& word : words) {
    text += (text.empty() ? "" : between) + word;
  }
  return text;
}

/// `text` with each of the words in it replaced by what stands for it; longer words first.
std::string filled(std::string text, const std::vector<std::pair<std::string, std::string>>& by) {
  for (const auto& [word, value] : by) {
    if (const std::size_t at = text.find(word); at != text.npos) {
      text.replace(at, word.size(), value);
    }
  }
  return text;
}

std::string preset_names() {
  std::vector<std::string> names;
  for (const Preset& preset : presets()) {
    names.emplace_back(preset.name);
  }
  return row(names);
}

/// Up to its first semicolon, without what would end a quoted word.
std::string short_doc(std::string doc) {
  doc.resize(std::min(doc.size(), doc.find("; ")));
  std::erase_if(doc, [](char c) { return c == '\'' || c == '\\'; });
  return doc;
}

/// What a script does to offer something; "@" stands for the words.
struct Ways {
  const char* words;
  const char* settings;
  const char* experiments;
  const char* files;
  const char* folders;
};

std::string way(const Ways& ways, const CommandOption& option) {
  switch (completed_by(option)) {
    case Completed::nothing:
      return "";
    case Completed::words:
      return filled(ways.words, {{"@", row(option.legal)}});
    case Completed::settings:
      return ways.settings;
    case Completed::experiments:
      return ways.experiments;
    case Completed::files:
      return ways.files;
    case Completed::folders:
      return ways.folders;
  }
  return "";
}

/// The branches of `case "$verb $before"`; the last one of a verb is of no option that takes a value.
std::string branches(const std::vector<Syntax>& verbs, const Ways& ways) {
  std::string text;
  for (const Syntax& verb : verbs) {
    std::string placed;
    for (const CommandOption& option : verb.options) {
      const std::string done = way(ways, option);
      if (!option.names.starts_with('-')) {
        placed += done.empty() ? "" : "; " + done;
      } else if (!is_flag(option)) {
        const std::string before = '\'' + verb.name + ' ';
        text += "    " + before + row(names_of(option), "'|" + before) + "') " +
                (done.empty() ? ":" : done) + ";;\n";
      }
    }
    text += "    '" + verb.name + " '*) options='" + row(options_of(verb)) + '\'' + placed + ";;\n";
  }
  return text;
}

constexpr const char* kBash = R"(# bash completion for troupe; made by `troupe completion bash`
_troupe() {
  local line=${COMP_LINE:0:COMP_POINT} presets settings words= options= files= all=()
  read -ra all <<<"$line"
  [[ $line == *[[:blank:]] ]] && all+=('')
  local current=${all[${#all[@]}-1]}
  COMPREPLY=()
  if ((${#all[@]} <= 2)); then
    COMPREPLY=($(compgen -W '@VERBS --help --version' -- "$current"))
    return
  fi
  presets='@PRESETS'
  settings='@SETTINGS'
  case "${all[1]} ${all[${#all[@]}-2]}" in
@BRANCHES  esac
  [[ $current == -* && $words != "$settings" ]] && words=$options files=
  COMPREPLY=($(compgen -W "$words" -- "$current"))
  if [[ $words == "$settings" ]]; then
    # Keys first, then what the key can be.
    if [[ $current != *=* ]]; then
      COMPREPLY=($(printf '%s\n' "${COMPREPLY[@]%%=*}" | sort -u))
      COMPREPLY=("${COMPREPLY[@]/%/=}")
      compopt -o nospace 2>/dev/null
    elif [[ $COMP_WORDBREAKS == *=* ]]; then
      COMPREPLY=("${COMPREPLY[@]#*=}")  # what stands before it is on the line already
    fi
  elif [[ $files ]]; then
    COMPREPLY+=($(compgen $files -- "$current"))
    compopt -o filenames 2>/dev/null
  fi
}
complete -F _troupe troupe
)";
constexpr Ways kBashWays{.words = "words+=' @'",
                         .settings = "words=$settings",
                         .experiments = "words+=\" $presets\" files=-f",
                         .files = "files=-f",
                         .folders = "files=-d"};

constexpr const char* kZsh = R"(#compdef troupe
# zsh completion for troupe; made by `troupe completion zsh`
_troupe() {
  local -a verbs presets settings found
  local options files keys
  verbs=(
@DESCRIBED  )
  if ((CURRENT == 2)); then
    _describe verb verbs
    return
  fi
  presets=(@PRESETS)
  settings=(@SETTINGS)
  case "${words[2]} ${words[CURRENT-1]}" in
@BRANCHES  esac
  if [[ -n $keys && $PREFIX == *=* ]]; then
    compadd -- $settings
  elif [[ -n $keys ]]; then
    compadd -S '' -- ${(u)settings/%=*/=}
  elif [[ $PREFIX == -* ]]; then
    compadd -- ${=options}
  else
    local none=1
    compadd -- $found && none=0
    [[ -n $files ]] && _files ${=files} && none=0
    return $none
  fi
}
if [[ $funcstack[1] == _troupe ]]; then
  _troupe "$@"
else
  compdef _troupe troupe
fi
)";
constexpr Ways kZshWays{.words = "found+=(@)",
                        .settings = "keys=1",
                        .experiments = "found+=($presets) files=-f",
                        .files = "files=-f",
                        .folders = "files=-/"};

constexpr const char* kFish = R"(# fish completion for troupe; made by `troupe completion fish`
set -g __troupe_presets @PRESETS
set -g __troupe_settings @SETTINGS
complete -c troupe -f -l help -s h -d 'how it is used'
@LINES)";
constexpr Ways kFishWays{.words = " -a '@'",
                         .settings = " -a '$__troupe_settings'",
                         .experiments = " -F -a '$__troupe_presets'",
                         .files = " -F",
                         .folders = " -a '(__fish_complete_directories)'"};

std::string lines_of_fish(const std::vector<Syntax>& verbs) {
  std::string text;
  for (const Syntax& verb : verbs) {
    text += "complete -c troupe -n __fish_use_subcommand -a " + verb.name + " -d '" +
            short_doc(verb.summary) + "'\n";
    const std::string here =
        "complete -c troupe -n '__fish_seen_subcommand_from " + verb.name + '\'';
    for (const CommandOption& option : verb.options) {
      const std::string done = way(kFishWays, option);
      if (!option.names.starts_with('-')) {
        text += done.empty() ? "" : here + done + '\n';
        continue;
      }
      text += here;
      for (const std::string& name : names_of(option)) {
        text += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
      }
      const char* const value = is_flag(option) ? "" : done.starts_with(" -F") ? " -r" : " -x";
      text += value + (is_flag(option) ? "" : done) + " -d '" + short_doc(option.doc) + "'\n";
    }
  }
  return text;
}

/// As text of a page: a dash that is to be copied is one, and no line begins a command of troff's.
std::string as_troff(const std::string& text) {
  std::string out;
  for (const char c : text) {
    const bool at_begin = out.empty() || out.back() == '\n';
    out += at_begin && (c == '.' || c == '\'') ? "\\&" : "";
    out += c == '\\' ? "\\e" : c == '-' ? "\\-" : std::string(1, c);
  }
  return out;
}

/// ".BR \-\-out , ..." as the man macros have it: names bold, the value's name slanted.
std::string heading_of(const CommandOption& option) {
  if (!option.names.starts_with('-')) {
    return ".I " + as_troff(option.names) + '\n';
  }
  const std::string type = is_flag(option)         ? ""
                           : !option.type.empty()  ? option.type
                           : !option.legal.empty() ? row(option.legal, "|")
                                                   : "VALUE";
  std::string names;
  for (const std::string& name : names_of(option)) {
    names += (names.empty() ? "\\fB" : ", \\fB") + as_troff(name) + "\\fR";
  }
  return names + (type.empty() ? "" : " \\fI" + as_troff(type) + "\\fR") + '\n';
}

std::string page_of(const Syntax& verb) {
  std::string words;
  for (const CommandOption& option : verb.options) {
    if (!option.names.starts_with('-')) {
      words += option.required ? ' ' + option.names : " [" + option.names + ']';
    }
  }
  std::string text = ".SS \"troupe " + as_troff(verb.name + words) + "\"\n";
  text += as_troff(verb.summary) + ".\n";
  for (const CommandOption& option : verb.options) {
    text += ".TP\n" + heading_of(option) + as_troff(option.doc) + ".\n";
  }
  return text;
}

}  // namespace

std::string completion_script(const std::string& shell, const std::vector<Syntax>& verbs) {
  std::string names;
  std::string described;
  for (const Syntax& verb : verbs) {
    names += (names.empty() ? "" : " ") + verb.name;
    described += "    '" + verb.name + ':' + short_doc(verb.summary) + "'\n";
  }
  const bool bash = shell == "bash";
  return filled(bash             ? kBash
                : shell == "zsh" ? kZsh
                                 : kFish,
                {{"@VERBS", names},
                 {"@DESCRIBED", described},
                 {"@PRESETS", preset_names()},
                 {"@SETTINGS", row(experiment_settings())},
                 {"@BRANCHES", branches(verbs, bash ? kBashWays : kZshWays)},
                 {"@LINES", lines_of_fish(verbs)}});
}

std::string man_page(const ProgramText& program, const std::vector<Syntax>& verbs) {
  std::string text = ".TH TROUPE 1 \"\" \"" + as_troff(program.version) +
                     "\" \"User Commands\"\n.SH NAME\ntroupe \\- asynchronous training of neural "
                     "networks by a company of actors\n.SH SYNOPSIS\n.B troupe\n.I VERB\n"
                     "[\\fIWORDS\\fR] [\\fIOPTIONS\\fR]\n.SH DESCRIPTION\n" +
                     as_troff(program.summary) +
                     "\nAn experiment is a preset, or a file; its keys are listed by\n.BR \"troupe "
                     "keys\" ,\nand each is explained by\n.BI \"troupe help \" KEY\\fR.\n"
                     ".SH VERBS\n";
  for (const Syntax& verb : verbs) {
    text += page_of(verb);
  }
  const auto section = [&](const char* name, const std::string& body) {
    text += concat(".SH ", name, '\n', body, '\n');
  };
  section("EXIT STATUS", as_troff(program.footer));
  section("ENVIRONMENT",
          ".TP\n.B TROUPE_RUNS\nthe folder of runs that are not told where to keep their files "
          "(runs); none: they keep nothing.");
  return text;
}

}  // namespace troupe
