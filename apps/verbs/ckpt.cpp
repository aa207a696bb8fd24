// troupe ckpt: files of weights (safetensors) as they go out to other programs and come in from
// them.
#include "apps/cli/text.hpp"
#include "apps/cli/version.hpp"
#include "apps/plan/plan.hpp"
#include "apps/presets/presets.hpp"
#include "apps/run/phases.hpp"
#include "apps/verbs/verb.hpp"
#include "experiment.pb.h"
#include "kernels/sequences.hpp"
#include "kernels/wording.hpp"
#include "messages/experiment.hpp"
#include "runtime/checkpoint/hugging_face.hpp"
#include "runtime/checkpoint/safetensors.hpp"
#include "runtime/checkpoint/store.hpp"
#include "runtime/checkpoint/weights.hpp"
#include "runtime/record/json.hpp"

#include <fnmatch.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>
#include <ostream>

namespace troupe {
namespace {

struct CkptArguments {
  std::string what;
  std::vector<std::string> files;
  std::string only;
  std::vector<std::string> skip;
  std::vector<std::string> assignments;
  bool hugging_face = false;
};

std::string shape_text(const SafetensorsEntry& entry) {
  return '(' + joined(entry.shape, ", ") + ')';
}

/// A name from a file, safe for a terminal.
std::string printable(const std::string& name) {
  const std::string quoted = json_string(name);
  return quoted.size() == name.size() + 2 ? name : quoted;
}

bool selected(const CkptArguments& arguments, const std::string& name) {
  return arguments.only.empty() || ::fnmatch(arguments.only.c_str(), name.c_str(), 0) == 0;
}

Result<std::vector<SafetensorsEntry>> selection(const SafetensorsFile& file,
                                                const CkptArguments& arguments) {
  std::vector<SafetensorsEntry> entries;
  for (const SafetensorsEntry& entry : file.entries()) {
    if (selected(arguments, entry.name)) {
      entries.push_back(entry);
    }
  }
  if (entries.empty() && !arguments.only.empty()) {
    return usage_error(
        "--only-glob: no tensor of {} is called like \"{}\" (`troupe ckpt ls` lists them)",
        file.path().string(),
        arguments.only);
  }
  return entries;
}

/// "6 tensors, 235,146 elements, 0.897 MiB"
std::string total(const std::vector<SafetensorsEntry>& entries) {
  std::int64_t elements = 0;
  double bytes = 0;
  for (const SafetensorsEntry& entry : entries) {
    elements += entry.elements();
    bytes += static_cast<double>(entry.bytes.size());
  }
  return fill_in("{}{}{} elements, {}",
                 entries.size(),
                 entries.size() == 1 ? " tensor, " : " tensors, ",
                 grouped(elements),
                 mebibytes(bytes));
}

Result<std::string> list(const CkptArguments& arguments) {
  auto file = SafetensorsFile::open(weights_path(arguments.files[0]));
  TROUPE_TRY(file);
  auto entries = selection(*file, arguments);
  TROUPE_TRY(entries);
  std::vector<std::vector<std::string>> rows{{"name", "dtype", "shape", "elements"}};
  for (const SafetensorsEntry& entry : *entries) {
    rows.push_back(
        {printable(entry.name), entry.dtype, shape_text(entry), grouped(entry.elements())});
  }
  std::string text = table(rows) + total(*entries) + '\n';
  for (const auto& [key, value] : file->metadata()) {
    text += concat("metadata ", printable(key), ": ", printable(value), '\n');
  }
  return text;
}

Result<std::string> export_weights(const CkptArguments& arguments) {
  const std::string& out = arguments.files[1];
  TROUPE_TRY(check_is_new("ckpt: ", out));
  auto file = SafetensorsFile::open(weights_path(arguments.files[0]));
  TROUPE_TRY(file);
  if (arguments.hugging_face) {
    file = to_hugging_face(*file);
  }
  auto entries = selection(*file, arguments);
  TROUPE_TRY(entries);
  TROUPE_TRY(write_safetensors(out, *entries, file->metadata()));
  return concat("wrote ", out, ": ", total(*entries), '\n');
}

/// What a run of the experiment would start with, in the order of weight_specs.
std::vector<ParameterValues> starting_values(const Blueprint& blueprint) {
  Stream stream(Device{});
  std::vector<Weights> weights;
  std::vector<std::vector<Tensor>> buffers;
  for (std::size_t c = 0; c < blueprint.chunks.size(); ++c) {
    Weights& slices = weights.emplace_back();
    for (Tensor& slice : starting_slices(stream, blueprint, c)) {
      slices.push_back({.values = std::move(slice)});
    }
    buffers.push_back(starting_buffers(stream, blueprint, c));
  }
  stream.synchronize();
  return values_of(blueprint.chunks, weights, buffers);
}

Result<std::string> import_weights(const CkptArguments& arguments) {
  const std::string& out = arguments.files[2];
  TROUPE_TRY(check_is_new("ckpt: ", out));
  auto experiment = load_experiment(arguments.files[1], arguments.assignments);
  TROUPE_TRY(experiment);
  experiment->clear_start_from();  // it may be what is to be made here
  experiment->clear_start_from_skip();
  const auto phases = phases_of(*experiment);
  TROUPE_TRY(phases);
  auto blueprint = make_blueprint(phases->front());
  TROUPE_TRY(blueprint);
  const std::vector<WeightSpec> specs = weight_specs(blueprint->network);
  const auto file = SafetensorsFile::open(weights_path(arguments.files[0]));
  TROUPE_TRY(file);
  auto values = read_weights(
      arguments.hugging_face ? from_hugging_face(*file, specs) : *file, specs, arguments.skip);
  if (!values) {
    const Error& error = values.error();
    return error.kind == ErrorKind::usage ? Error{error.kind, "--skip: " + error.message} : error;
  }
  blueprint->start = *std::move(values);
  const std::string skipped = skipped_text(*blueprint);
  const auto told = read_preparation(arguments.files[0]);
  TROUPE_TRY(told);
  // What the file says of the data that it was trained on, before what the experiment's data come to now.
  const Preparation* prepared = *told ? &**told : blueprint->data->preparation();
  TROUPE_TRY(write_weights(out, specs, starting_values(*blueprint), version(), prepared));
  return fill_in(
      "{}wrote {}: the {} parameters of {}; --set start_from={} starts a run with them\n",
      skipped,
      out,
      specs.size(),
      arguments.files[1],
      out);
}

Result<std::string> initial_weights(const CkptArguments& arguments) {
  const std::string& out = arguments.files[1];
  TROUPE_TRY(check_is_new("ckpt: ", out));
  const auto blueprint =
      make_blueprint({.experiment = arguments.files[0], .assignments = arguments.assignments});
  TROUPE_TRY(blueprint);
  const std::vector<WeightSpec> specs = weight_specs(blueprint->network);
  TROUPE_TRY(write_weights(
      out, specs, starting_values(*blueprint), version(), blueprint->data->preparation()));
  return fill_in(
      "wrote {}: the {} parameters that {} starts with\n", out, specs.size(), arguments.files[0]);
}

/// "400 updates  real clock  12.3 MiB", of a checkpoint that is whole. Error (data) where it is not.
Result<std::vector<std::string>> verified(const std::filesystem::path& path) {
  const auto checkpoint = read_checkpoint(path);
  TROUPE_TRY(checkpoint);
  if (const auto experiment = parse_experiment(checkpoint->experiment, path.string());
      !experiment) {
    return Error{ErrorKind::data, experiment.error().message};
  }
  double bytes = 0;
  std::error_code code;
  for (std::filesystem::directory_iterator at(path, code), end; !code && at != end;
       at.increment(code)) {
    std::error_code none;  // of a folder that somebody has put there
    const auto size = at->file_size(none);
    bytes += none ? 0 : static_cast<double>(size);
  }
  const bool own = checkpoint->version == version();
  return std::vector<std::string>{
      path.string(),
      grouped(checkpoint->step) + (checkpoint->step == 1 ? " update" : " updates"),
      checkpoint->clock + " clock",
      mebibytes(bytes),
      own ? "whole" : concat("whole; of troupe ", checkpoint->version, ", for its weights alone")};
}

Result<std::string> verify(const CkptArguments& arguments) {
  const std::string& folder = arguments.files[0];
  const std::vector<std::filesystem::path> all = checkpoints_of(folder);
  if (all.empty()) {
    return Error{ErrorKind::data, concat("there are no checkpoints in ", folder)};
  }
  std::vector<std::vector<std::string>> rows;
  std::string broken;
  std::size_t gone = 0;  // the run goes on, and has newer ones instead
  std::error_code code;
  for (const std::filesystem::path& path : all) {
    if (auto row = verified(path)) {
      rows.push_back(*std::move(row));
    } else if (!std::filesystem::exists(path, code)) {
      ++gone;
    } else {
      broken += row.error().message + "; ";
    }
  }
  if (!broken.empty()) {
    return data_error("{}{} of {} checkpoints can be used", broken, rows.size(), all.size() - gone);
  }
  if (rows.empty()) {
    return data_error("a run that goes on has replaced the checkpoints in {} meanwhile", folder);
  }
  return table(rows);
}

struct Action {
  const char* name;
  const char* files;  // as the usage line has them
  std::size_t count;
  bool takes_glob;
  bool takes_set;
  bool takes_skip;
  bool takes_hugging_face;
  Result<std::string> (*run)(const CkptArguments&);  // the text for stdout
};

constexpr std::array kActions{
    Action{"ls", "FILE|RUN_DIR", 1, true, false, false, false, list},
    Action{"verify", "RUN_DIR|CHECKPOINT", 1, false, false, false, false, verify},
    Action{"export", "FILE|RUN_DIR OUT.safetensors", 2, true, false, false, true, export_weights},
    Action{"import",
           "IN.safetensors EXPERIMENT OUT.safetensors",
           3,
           false,
           true,
           true,
           true,
           import_weights},
    Action{"init", "EXPERIMENT OUT.safetensors", 2, false, true, false, false, initial_weights},
};

Error unknown_action(const std::string& name) {
  const auto names = mapped<std::string>(kActions, &Action::name);
  const std::string legal = joined(names, ", ");
  const std::string near = nearest(name, names);
  return {ErrorKind::usage,
          name.empty() ? concat("ckpt: say one of ", legal)
                       : fill_in("ckpt: \"{}\" is none of {}{}",
                                 name,
                                 legal,
                                 near.empty() ? "" : ", did you mean " + near + "?")};
}

Result<std::string> run(const CkptArguments& arguments) {
  const auto action = std::ranges::find(kActions, arguments.what, &Action::name);
  if (action == kActions.end()) {
    return unknown_action(arguments.what);
  }
  if (arguments.files.size() != action->count || (!arguments.only.empty() && !action->takes_glob) ||
      (!arguments.assignments.empty() && !action->takes_set) ||
      (!arguments.skip.empty() && !action->takes_skip) ||
      (arguments.hugging_face && !action->takes_hugging_face)) {
    return usage_error("ckpt: it is `troupe ckpt {}{}{}{}{} {}`",
                       action->name,
                       action->takes_glob ? " [--only-glob GLOB]" : "",
                       action->takes_set ? " [--set PATH=VALUE]" : "",
                       action->takes_skip ? " [--skip GLOB]" : "",
                       action->takes_hugging_face ? " [--hugging-face]" : "",
                       action->files);
  }
  return action->run(arguments);
}

}  // namespace

Command declare_ckpt() {
  auto arguments = std::make_shared<CkptArguments>();
  return {
      .options =
          {{.names = "WHAT",
            .value = &arguments->what,
            .doc = "ls FILE: what is in it; verify DIR: whether checkpoints are whole; export FILE "
                   "OUT: a copy, or a part of it; import IN EXPERIMENT OUT: checked against the "
                   "experiment's network; init EXPERIMENT OUT: what a run of it starts with"},
           {.names = "FILES",
            .value = &arguments->files,
            .doc = "safetensors files; a run's folder stands for its weights.safetensors"},
           {.names = "--only-glob",
            .value = &arguments->only,
            .doc = "ls, export: only names like this, as dense*",
            .type = "GLOB"},
           {.names = "--skip",
            .value = &arguments->skip,
            .doc = "import: parameters like this, as head*, are not taken from the file but "
                   "made by seed; repeatable",
            .type = "GLOB"},
           {.names = "--hugging-face",
            .value = &arguments->hugging_face,
            .doc = "export, import: the other file has the names and the order of "
                   "transformers, for gpt and llama"},
           set_option(arguments->assignments, "import, init: sets a key of the experiment")},
      .action = [arguments](Console& console) {
        return tell(console, run(*arguments));
      }};
}

}  // namespace troupe
