// What is set side by side: every experiment with every combination of the varied values.
#pragma once

#include "kernels/result.hpp"
#include "messages/sections.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// A key of the experiment and the values that it takes in turn.
struct Varied {
  std::string path;
  std::vector<std::string> values;
  bool joined = false;  // takes its next value along with the key before it, which has as many
};

struct Contender {
  std::string label;                     // "weights=stash stages=4"; no other scheme has it
  std::string title;                     // in tables: NAME of NAME=EXPERIMENT, or EXPERIMENT
  std::string experiment;                // as the command line names it
  std::vector<std::string> values;       // of the varied keys, in their order
  std::vector<std::string> assignments;  // --set, then --vary: what `troupe sim` needs to repeat it
  BoxedExperiment resolved;              // of the first seed; where the cut was measured, with it
  bool classes = false;                  // predictions can be right or wrong
};

/// A combination that makes no sense, and why.
struct Refused {
  std::string label;
  std::string reason;
};

struct Schemes {
  std::vector<std::string> columns;  // name of each varied key, as short as it is clear
  std::vector<Contender> schemes;
  std::vector<Refused> refused;
};

/// "path=v1,v2,v3"; commas within brackets belong to a value: "model.mlp.hidden=[64],[64,64]".
///
///   path=log:1e-3..1e-1:5      so many values from the first to the last, each the same multiple of the one before it
///   path=lin:0..0.5:3          each the same more than the one before it
///   a+b=v1+w1,v2+w2            two keys or more that change together
///
/// Error (usage) where there is no value, an empty one, or one twice, or a range is none.
Result<std::vector<Varied>> parse_varied(std::string_view text);

/// The cross product, the last varied key changing fastest; all with the seed of the first. "label=path": an experiment that
/// is to be called so, where there is no such file. Refused are combinations that make_blueprint or the clock refuses
/// (usage), in which one varied key undoes another, which are an earlier one again, and those with phases. Error where a key or value is wrong
/// by itself (usage), data is missing (data), or every combination is refused (usage).
Result<Schemes> make_schemes(const std::vector<std::string>& experiments,
                             const std::vector<std::string>& assignments,
                             const std::vector<Varied>& varied,
                             bool virtual_clock = true);

/// In what the schemes are not on equal terms, one sentence each: networks, data, budgets.
std::vector<std::string> unequal_terms(const std::vector<Contender>& schemes);

}  // namespace troupe
