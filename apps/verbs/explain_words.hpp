// What `troupe explain` knows besides schemes: keys, presets and the terms of the pages.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace troupe {

/// A key of an experiment with all that is below it ("pipeline.weights", "data"), as in `troupe run --help`; none: there is no
/// such key.
std::optional<std::string> key_text(const std::string& path);

/// The keys that an experiment begins with, a line each, and how more is seen of them.
std::string top_keys_text();

/// A preset's experiment.
std::optional<std::string> preset_text(const std::string& name);

/// What a term of the pages means ("staleness").
std::optional<std::string> term_text(const std::string& term);

/// Of presets and terms.
std::vector<std::string> explained_words();

}  // namespace troupe
