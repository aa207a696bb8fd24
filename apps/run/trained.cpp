#include "apps/run/trained.hpp"

#include "apps/presets/presets.hpp"
#include "apps/run/phases.hpp"
#include "apps/run/sharpness.hpp"
#include "experiment.pb.h"
#include "messages/experiment.hpp"

#include <algorithm>
#include <filesystem>

namespace troupe {
namespace {

namespace fs = std::filesystem;

/// EXPERIMENT, or what stands beside the weights.
Result<std::string> experiment_beside(const std::string& verb, const TrainedArguments& arguments) {
  if (!arguments.experiment.empty()) {
    return arguments.experiment;
  }
  std::error_code code;
  const fs::path weights(arguments.weights);
  if (!fs::exists(weights, code)) {
    return Error{ErrorKind::data,
                 concat(verb, ": ", arguments.weights, ": there is no such folder or file")};
  }
  const fs::path folder = fs::is_directory(weights, code) ? weights : weights.parent_path();
  const fs::path beside = folder / "experiment.textproto";
  if (!fs::exists(beside, code)) {
    return Error{ErrorKind::usage,
                 concat(verb,
                        ": ",
                        arguments.weights,
                        ": there is no experiment.textproto beside it, so name the experiment "
                        "behind it: `troupe ",
                        verb,
                        " WEIGHTS EXPERIMENT`")};
  }
  return beside.string();
}

}  // namespace

Result<Blueprint> trained_blueprint(const std::string& verb, const TrainedArguments& arguments) {
  const auto name = experiment_beside(verb, arguments);
  if (!name) {
    return name.error();
  }
  const auto whole = load_experiment(*name, arguments.assignments);
  if (!whole) {
    return whole.error();
  }
  const auto phases = phases_of(*whole);
  if (!phases) {
    return phases.error();
  }
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
                     concat(verb,
                            ": --data names a table, arrays, images or tokens; what data.",
                            source,
                            " reads is set by --set data.",
                            source,
                            ".KEY=VALUE (troupe help data.",
                            source,
                            ')')};
      }
    }
  }
  if (e.data().has_arrays() &&
      !arguments.data.empty()) {  // all samples are of the file, and no array of it is apart
    e.mutable_data()->mutable_arrays()->clear_test_x();
    e.mutable_data()->mutable_arrays()->clear_test_y();
  }
  if (auto resolved = resolve(e); !resolved) {
    return resolved.error();
  }
  const auto prepared = read_preparation(arguments.weights);
  if (!prepared) {
    return prepared.error();
  }
  if (!*prepared) {
    return make_blueprint(e);
  }
  // Samples that the weights have not seen go through what those went through that they were trained on.
  const std::int64_t batch = e.data().batch_size();
  e.mutable_data()->set_batch_size(1);  // there may be fewer of them than a mini-batch had
  e.mutable_data()->clear_growth();
  auto data = open_dataset(e.data(), e.seed(), &**prepared);
  if (!data) {
    return data.error();
  }
  if (verb != "predict" && (*data)->preparation() && (*data)->preparation()->without_target) {
    return Error{
        ErrorKind::usage,
        verb + ": these samples have no target to be compared with; `troupe predict` needs none"};
  }
  e.mutable_data()->set_batch_size(std::min(batch, (*data)->size(Split::train)));
  return make_blueprint(e, *std::move(data));
}

}  // namespace troupe
