#include "apps/run/trained.hpp"

#include "apps/presets/presets.hpp"
#include "apps/run/phases.hpp"
#include "apps/run/run_state.hpp"
#include "apps/run/sharpness.hpp"
#include "experiment.pb.h"
#include "kernels/wording.hpp"
#include "messages/experiment.hpp"
#include "runtime/checkpoint/store.hpp"
#include "runtime/checkpoint/weights.hpp"
#include "runtime/data/foreign.hpp"
#include "runtime/record/json_reader.hpp"
#include "runtime/record/shell_word.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace troupe {
namespace {

namespace fs = std::filesystem;

/// What can be done instead with the newest checkpoint of a run; "": it has none.
std::string newest_checkpoint(const std::string& verb, const std::string& run) {
  const auto kept = checkpoints_of(run);
  return kept.empty() ? ""
                      : fill_in("; its newest checkpoint has some: `troupe {} {} {}`",
                                verb,
                                kept.front().string(),
                                run);
}

/// Error (data) where the run has gone on from a checkpoint since it wrote its weights: these are of the end that it had before.
Result<void> check_last_end(const std::string& verb, const std::string& run) {
  const fs::path summary = fs::path(run) / "summary.json";
  const fs::path metrics = fs::path(run) / "metrics.jsonl";
  std::error_code code;
  if (!fs::exists(summary, code) || !fs::exists(metrics, code)) {
    return {};
  }
  std::ifstream file(summary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const Json end = Json::parse(text);
  if (!is_being_written(metrics) && !end["weights_sha256"].words().empty() &&
      tells_the_end(summary, end["updates"].number(), metrics)) {
    return {};
  }
  const std::string before = (fs::path(run) / kWeightsFile).string();
  return data_error(
      "{}: {}: the run has gone on since it wrote its weights, and has not come to another end{}; "
      "for those of the end before: `troupe {} {}`",
      verb,
      run,
      newest_checkpoint(verb, run),
      verb,
      before);
}

/// EXPERIMENT, or what stands beside the weights.
Result<std::string> experiment_beside(const std::string& verb, const TrainedArguments& arguments) {
  if (!arguments.experiment.empty()) {
    return arguments.experiment;
  }
  std::error_code code;
  const fs::path weights(arguments.weights);
  if (!fs::exists(weights, code)) {
    return data_error("{}: {}: there is no such folder or file", verb, arguments.weights);
  }
  const bool whole = fs::is_directory(weights, code);
  if (whole && !fs::exists(weights / "weights.safetensors", code)) {
    const bool run = fs::exists(weights / "experiment.textproto", code);
    return data_error("{}: {}: {}{}",
                      verb,
                      arguments.weights,
                      run ? "the run has no weights, because it has not come to its end"
                          : "it is no folder of a run, as there is no weights.safetensors in it",
                      run ? newest_checkpoint(verb, arguments.weights) : "");
  }
  const fs::path folder = whole ? weights : weights.parent_path();
  const fs::path beside = folder / "experiment.textproto";
  if (!fs::exists(beside, code)) {
    return Error{ErrorKind::usage,
                 fill_in("{}: {}: there is no experiment.textproto beside it, so name the "
                         "experiment behind it: `troupe {} WEIGHTS EXPERIMENT`",
                         verb,
                         arguments.weights,
                         verb)};
  }
  return beside.string();
}

/// What is wrong with the samples, and how others are named where those of the training are gone.
Error of_samples(Error error,
                 const std::string& verb,
                 const proto::Data& data,
                 const TrainedArguments& arguments) {
  const std::string path = own_path(data);
  const bool takes_others = (verb == "eval" || verb == "predict") && arguments.data.empty();
  std::error_code code;
  if (takes_others && !path.empty() && !fs::exists(path, code)) {
    error.message += "; --data names another file or folder";
  }
  return error;
}

}  // namespace

Result<Blueprint> trained_blueprint(const std::string& verb, const TrainedArguments& arguments) {
  const auto name = experiment_beside(verb, arguments);
  TROUPE_TRY(name);
  std::error_code code;
  if (!arguments.experiment.empty() && fs::is_regular_file(*name, code) &&
      !data_key(*name).empty()) {
    return usage_error(
        "{}: {} is no experiment; samples are named by --data {}", verb, *name, shell_word(*name));
  }
  TROUPE_TRY(check_last_end(verb, arguments.weights));
  const auto whole = load_experiment(*name, arguments.assignments);
  TROUPE_TRY(whole);
  const auto phases = phases_of(*whole);
  TROUPE_TRY(phases);
  proto::Experiment e = phases->back();
  e.clear_pipeline();
  e.clear_replicas();
  e.clear_decoupled();
  e.clear_placement();
  e.clear_clock();
  e.mutable_placement()->add_devices(arguments.device);
  *e.mutable_model() = without_dropout(e.model());
  e.set_start_from(arguments.weights);
  e.clear_start_from_skip();
  if (!arguments.data.empty()) {
    const std::string source = choice_name(e.data());
    for (const char* key : {"path", "test_path"}) {
      if (auto set = set_value(e, concat("data.", source, ".", key, "=", arguments.data)); !set) {
        return Error{ErrorKind::usage,
                     fill_in("{}: --data names a table, arrays, images or tokens; what data.{} "
                             "reads is set by --set data.{}.KEY=VALUE (troupe help data.{})",
                             verb,
                             source,
                             source,
                             source)};
      }
    }
  }
  if (e.data().has_arrays() &&
      !arguments.data.empty()) {  // all samples are of the file, and no array of it is apart
    e.mutable_data()->mutable_arrays()->clear_test_x();
    e.mutable_data()->mutable_arrays()->clear_test_y();
  }
  TROUPE_TRY(resolve(e));
  const auto prepared = read_preparation(arguments.weights);
  TROUPE_TRY(prepared);
  if (!*prepared) {
    auto made = make_blueprint(e);
    return made ? std::move(made) : of_samples(made.error(), verb, e.data(), arguments);
  }
  // Samples that the weights have not seen go through what those went through that they were trained on.
  const std::int64_t batch = e.data().batch_size();
  e.mutable_data()->set_batch_size(1);  // there may be fewer of them than a mini-batch had
  e.mutable_data()->clear_growth();
  auto data = open_dataset(e.data(), e.seed(), &**prepared);
  if (!data) {
    return of_samples(data.error(), verb, e.data(), arguments);
  }
  const bool without_target = (*data)->preparation() && (*data)->preparation()->without_target;
  if (without_target && verb != "predict") {
    return Error{
        ErrorKind::usage,
        verb + ": these samples have no target to be compared with; `troupe predict` needs none"};
  }
  e.mutable_data()->set_batch_size(std::min(batch, (*data)->size(Split::train)));
  return make_blueprint(e, *std::move(data));
}

}  // namespace troupe
