#include "apps/presets/presets.hpp"

#include "apps/run/phases.hpp"
#include "experiment.pb.h"
#include "kernels/wording.hpp"
#include "messages/experiment.hpp"
#include "messages/other_names.hpp"
#include "runtime/data/foreign.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <system_error>

namespace troupe {
namespace {

constexpr std::size_t kFileBytesMax = std::size_t{1} << 20;
constexpr const char* kNesterov = "pipeline.weights=nesterov";

Result<std::string> read_experiment_file(const std::filesystem::path& path) {
  std::error_code code;
  if (std::filesystem::is_directory(path, code)) {
    if (std::filesystem::exists(path / "experiment.textproto", code)) {
      return read_experiment_file(path / "experiment.textproto");
    }
    const std::string data = data_key(path);
    return usage_error("{} is a folder without an experiment.textproto{}{}",
                       path.string(),
                       data.empty() ? "" : "; as data of your own it is ",
                       data);
  }
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::string text(kFileBytesMax + 1, '\0');  // no more is read: a device may have no end
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (!file.is_open() || file.bad()) {
    return usage_error("the experiment {} cannot be read: {}",
                       path.string(),
                       std::system_category().message(errno));
  }
  if (text.size() > kFileBytesMax) {
    return usage_error("the experiment {} is larger than 1 MiB", path.string());
  }
  return text;
}

Error unknown_experiment(const std::string& name) {
  constexpr std::size_t kShown = 4;
  std::vector<std::string> names;
  std::vector<std::string> near;  // or those that it is a part of
  for (const Preset& preset : presets()) {
    names.emplace_back(preset.name);
    if (preset.name.find(name) != preset.name.npos && near.size() < kShown) {
      near.emplace_back(preset.name);
    }
  }
  if (std::string one = nearest(name, names); !one.empty()) {
    near = {std::move(one)};
  }
  return usage_error(
      "there is no preset and no file \"{}\"{} (`troupe run --list` shows the presets)",
      name,
      did_you_mean(near));
}

/// Each path that `message` names, as `changed` makes of it.
void change_paths(google::protobuf::Message& message,
                  const std::function<std::string(const std::string&)>& changed) {
  const auto* const reflection = message.GetReflection();
  std::vector<const google::protobuf::FieldDescriptor*> fields;
  reflection->ListFields(message, &fields);
  for (const auto* field : fields) {
    if (field->is_repeated()) {
      continue;
    }
    if (field->cpp_type() == field->CPPTYPE_MESSAGE) {
      change_paths(*reflection->MutableMessage(&message, field), changed);
    } else if (field->cpp_type() == field->CPPTYPE_STRING &&
               (field->name().ends_with("path") || field->name() == "start_from")) {
      const std::string value = reflection->GetString(message, field);
      reflection->SetString(&message, field, changed(value));
    }
  }
}

/// "~/x", whose words the shell leaves as they are in --set: "/home/me/x".
std::string from_home(const std::string& path) {
  const char* const home = std::getenv("HOME");
  return home && path.starts_with("~/") ? home + path.substr(1) : path;
}

/// What an experiment's file names beside itself, wherever the program was started. What is not there is as the
/// working folder has it.
std::string beside(const std::filesystem::path& file, const std::string& path) {
  std::error_code code;
  const std::filesystem::path there = file.parent_path() / path;
  return !path.empty() && std::filesystem::path(path).is_relative() &&
                 std::filesystem::exists(there, code)
             ? there.string()
             : path;
}

/// What of own-data and own-images is there for what is set in its place.
void make_room(proto::Experiment& own, const std::vector<std::string>& assignments) {
  const auto is_set = [&](std::string_view key) {
    return std::ranges::any_of(
        assignments, [&](const std::string& assignment) { return assignment.starts_with(key); });
  };
  const bool counted = is_set("stop.epochs=") || is_set("stop.updates=");
  if (counted || is_set("stop.seconds=") || is_set("stop.target_accuracy=") ||
      is_set("stop.patience=")) {  // the other keys below stop say how runs end
    own.clear_stop();
  }
  if (!own.has_stop() && !counted) {
    own.mutable_optimizer()->clear_schedule();  // it would end with the last update
  }
  if (is_set("optimizer.rule=") || is_set("optimizer.custom.")) {
    own.mutable_optimizer()->clear_weight_decay();  // another rule's is of another size
  }
}

/// Data of one's own is trained on by AdamW, key by key: who sets another key of the optimizer has not chosen its rule.
void fit_optimizer(proto::Experiment& experiment) {
  const proto::Data& data = experiment.data();
  const bool own = data.has_csv() || data.has_arrays() || data.has_folder();
  const bool brings_its_step = experiment.pipeline().weights().has_nesterov() ||
                               experiment.replicas().exchange().has_sandblaster();
  if (!own || brings_its_step) {
    return;
  }
  proto::Optimizer& optimizer = *experiment.mutable_optimizer();
  if (!optimizer.has_rule() && !optimizer.has_custom()) {
    optimizer.set_rule(proto::OptimizerRule::adamw);
  }
  const bool adam = optimizer.rule() == proto::OptimizerRule::adamw ||
                    optimizer.rule() == proto::OptimizerRule::adam;
  if (adam && !optimizer.has_learning_rate()) {
    optimizer.set_learning_rate(0.001);
  }
}

}  // namespace

std::string default_preset(const std::vector<std::string>& assignments) {
  const auto chosen = [&](std::string_view name) {
    return std::any_of(assignments.begin(), assignments.end(), [&](std::string_view set) {
      const std::string_view value = set.substr(std::min(set.size(), set.find('=') + 1));
      return set.starts_with(concat("data.", name, ".")) ||
             (set.starts_with("data=") && value == name);
    });
  };
  return std::string(chosen("folder")                     ? kOwnImagesPreset
                     : chosen("csv") || chosen("arrays")  ? kOwnDataPreset
                     : chosen("text") || chosen("tokens") ? kOwnTextPreset
                                                          : kDefaultPreset);
}

std::string_view Preset::summary() const {
  const std::string_view line = text.substr(0, text.find('\n'));
  return line.substr(std::min(line.size(), line.find_first_not_of("# ")));
}

Result<proto::Experiment> load_experiment(const std::string& experiment,
                                          const std::vector<std::string>& assignments) {
  if (experiment.empty()) {
    return load_experiment(default_preset(assignments), assignments);
  }
  const auto& all = presets();
  const auto preset = std::ranges::find(all, experiment, &Preset::name);
  std::string text;
  if (preset != all.end()) {
    text = preset->text;
  } else {
    const std::filesystem::path path(experiment);
    std::error_code code;
    const bool is_path =
        path.has_parent_path() || path.extension() == ".textproto" || path.extension() == ".json";
    if (!is_path && !std::filesystem::exists(path, code)) {
      return unknown_experiment(experiment);
    }
    if (const std::string data = data_key(path);
        !data.empty() && std::filesystem::is_regular_file(path, code)) {
      return usage_error("{} is no experiment; as data of your own it is {}", experiment, data);
    }
    auto read = read_experiment_file(path);
    TROUPE_TRY(read);
    text = std::move(*read);
  }
  auto parsed = parse_experiment(text, experiment);
  TROUPE_TRY(parsed);
  if (preset == all.end()) {
    // What a run has written has its paths as seen from where it was started.
    const std::filesystem::path named(experiment);
    std::error_code code;
    if (named.filename() != "experiment.textproto" && !std::filesystem::is_directory(named, code)) {
      change_paths(*parsed, [&](const std::string& path) { return beside(named, path); });
    }
  } else if (std::find(assignments.begin(), assignments.end(), kNesterov) != assignments.end()) {
    // It brings its own optimizer where none has been chosen, and the preset's nobody has chosen.
    parsed->clear_optimizer();
  }
  if (experiment == kOwnDataPreset || experiment == kOwnImagesPreset) {
    make_room(*parsed, assignments);
  }
  for (const std::string& assignment : assignments) {
    TROUPE_TRY(set_value(*parsed, assignment));
  }
  change_paths(*parsed, from_home);
  fit_optimizer(*parsed);
  TROUPE_TRY(resolve(*parsed));
  TROUPE_TRY(phases_of(*parsed));
  return parsed;
}

}  // namespace troupe
