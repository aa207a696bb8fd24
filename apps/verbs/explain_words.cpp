#include "apps/verbs/explain_words.hpp"

#include "apps/cli/text.hpp"
#include "apps/presets/presets.hpp"
#include "kernels/result.hpp"
#include "messages/experiment.hpp"
#include "runtime/record/lines.hpp"

#include <algorithm>
#include <sstream>

namespace troupe {

extern const char* const kTerms;  // made of apps/docs/terms.md

namespace {

constexpr std::size_t kDescription = 40;  // where what is said of a key is further in than any key
constexpr const char* kMetricsFile = "metrics.jsonl";
constexpr const char* kGap = "          ";  // before it; in sentences above the keys there is none

/// What each term stands for, as a person reads it in plain text.
std::vector<std::pair<std::string, std::string>> terms() {
  std::vector<std::pair<std::string, std::string>> all;
  std::istringstream lines(kTerms);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t middle = line.find(" | ");
    if (!line.starts_with("| ") || !line.ends_with(" |") || middle == line.npos ||
        line.starts_with("| term |")) {
      continue;
    }
    std::string meaning = line.substr(middle + 3, line.size() - middle - 5);
    std::erase(meaning, '`');
    all.emplace_back(line.substr(2, middle - 2), meaning);
  }
  return all;
}

/// "staleness (lag)" goes by either word.
bool goes_by(const std::string& term, const std::string& word) {
  const std::size_t open = term.find(" (");
  return term == word || term.substr(0, open) == word ||
         (open != term.npos && term.substr(open + 2, term.size() - open - 3) == word);
}

std::size_t indent_of(const std::string& line) {
  return std::min(line.find_first_not_of(' '), line.size());
}

}  // namespace

std::optional<std::string> key_text(const std::string& path) {
  std::istringstream lines(experiment_help());
  std::string text;
  bool inside = false;    // of what stands below the key
  std::size_t block = 0;  // indent of the key's own line
  for (std::string line; std::getline(lines, line);) {
    const std::size_t indent = indent_of(line);
    if (inside && indent > block && !line.empty()) {
      text += line.substr(block) + '\n';
      continue;
    }
    inside = false;
    const std::string key = line.substr(indent, line.find_first_of("= ", indent) - indent);
    // A word further in without a dot is no key, but a value's name or the rest of a sentence.
    const bool is_key = indent == 0 || key.find('.') != key.npos;
    if (is_key && (key == path || key.starts_with(path + "."))) {
      inside = true;
      block = indent;
      text += line.substr(indent) + '\n';
    }
  }
  return text.empty() || path.empty() ? std::nullopt : std::optional(text);
}

std::string top_keys_text() {
  std::istringstream lines(experiment_help());
  std::string text = "keys of an experiment (troupe keys PATH: all below one)\n";
  bool inside = false;  // of a key's description
  for (std::string line; std::getline(lines, line);) {
    const std::size_t indent = indent_of(line);
    const bool begins = indent == 0 && line.find(kGap) != line.npos;
    inside = begins || (inside && indent > kDescription);
    text += inside ? "  " + line + '\n' : "";
  }
  return text;
}

std::optional<std::string> preset_text(const std::string& name) {
  for (const Preset& preset : presets()) {
    if (preset.name == name) {
      return concat(name, " (a preset)\n", preset.text);
    }
  }
  return {};
}

std::optional<std::string> term_text(const std::string& term) {
  for (const auto& [name, meaning] : terms()) {
    if (goes_by(name, term)) {
      return name + "\n  " + wrapped(meaning, kPageWidth - 2, "  ") + '\n';
    }
  }
  return {};
}

std::optional<std::string> line_text(const std::string& kind) {
  const bool every = kind == kMetricsFile;
  std::string text =
      every ? concat(kMetricsFile, ": one object a line, whose member `kind` says which\n") : "";
  for (const LineHelp& line : metrics_help()) {
    if (!every && kind != line.kind.kind) {
      continue;
    }
    text += concat(line.kind.kind, " (a line of ", kMetricsFile, ")\n  ");
    text += wrapped(line.kind.doc, kPageWidth - 2, "  ") + '\n';
    for (const auto& [name, meaning] : line.members) {
      const std::string row = meaning.empty() ? name : concat(name, ": ", meaning);
      text += "    " + wrapped(row, kPageWidth - 4, "      ") + '\n';
    }
  }
  return text.empty() ? std::nullopt : std::optional(text);
}

std::vector<std::string> explained_words() {
  std::vector<std::string> all{kMetricsFile};
  for (const Preset& preset : presets()) {
    all.emplace_back(preset.name);
  }
  for (const auto& [name, meaning] : terms()) {
    all.push_back(name.substr(0, name.find(" (")));
  }
  return all;
}

}  // namespace troupe
