// What `troupe explain` knows besides schemes: keys, presets, lines of metrics.jsonl and the terms of the pages.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace troupe {

/// A key of an experiment with all that is below it ("pipeline.weights", "data"), as in experiment_help(); none: there is no
/// such key.
std::optional<std::string> key_text(const std::string& path);

/// The keys that an experiment begins with, a line each, and how more is seen of them.
std::string top_keys_text();

/// A preset's experiment.
std::optional<std::string> preset_text(const std::string& name);

/// What a term of the pages means ("staleness").
std::optional<std::string> term_text(const std::string& term);

/// What a line of metrics.jsonl of that kind has ("train"); all of them for "metrics.jsonl".
std::optional<std::string> line_text(const std::string& kind);

/// Of presets and terms, and "metrics.jsonl".
std::vector<std::string> explained_words();

}  // namespace troupe
