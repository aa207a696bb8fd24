// The experiments that come with the program, and how a command line names one.
#pragma once

#include "kernels/result.hpp"
#include "messages/proto.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace troupe {

inline constexpr std::string_view kDefaultPreset = "glyphs-mlp";

struct Preset {
  std::string_view name;
  std::string_view text;  // textproto; its first line is a comment of one sentence

  std::string_view summary() const;
};

/// Those of apps/presets, embedded in the program; the default first.
const std::vector<Preset>& presets();

/// `experiment`: a preset's name, or the path of a .textproto or .json file. Then the --set
/// assignments, in order, then the defaults. What its phases set is checked, too. Error (usage) with
/// the nearest name.
Result<proto::Experiment> load_experiment(const std::string& experiment,
                                          const std::vector<std::string>& assignments);

}  // namespace troupe
