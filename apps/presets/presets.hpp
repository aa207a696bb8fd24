// The experiments that come with the program, and how a command line names one.
#pragma once

#include "kernels/result.hpp"
#include "messages/proto.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace troupe {

inline constexpr std::string_view kDefaultPreset = "glyphs-mlp";

/// Where no experiment is named and the assignments choose data of one's own: csv or arrays, or folder.
inline constexpr std::string_view kOwnDataPreset = "own-data";
inline constexpr std::string_view kOwnImagesPreset = "own-images";
inline constexpr std::string_view kOwnTextPreset = "shakespeare-gpt";

struct Preset {
  std::string_view name;
  std::string_view text;  // textproto; its first line is a comment of one sentence

  std::string_view summary() const;
};

/// Those of apps/presets, embedded in the program; the default first.
const std::vector<Preset>& presets();

/// The preset that is meant where none is named.
std::string default_preset(const std::vector<std::string>& assignments);

/// `experiment`: a preset's name, or the path of a .textproto or .json file; "": default_preset. Data of one's own is
/// trained on by AdamW at 0.001, key by key where they are not named, and an assignment to `stop` takes the place of all that
/// own-data and own-images say of it. Then the --set assignments, in order, then the defaults. What its phases set is checked, too. Error (usage) with
/// the nearest name.
Result<proto::Experiment> load_experiment(const std::string& experiment,
                                          const std::vector<std::string>& assignments);

}  // namespace troupe
