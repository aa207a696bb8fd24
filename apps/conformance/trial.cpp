#include "apps/conformance/trial.hpp"

#include "experiment.pb.h"
#include "kernels/check.hpp"
#include "kernels/random.hpp"
#include "messages/experiment.hpp"

#include <utility>

namespace troupe::conformance {
namespace {

constexpr std::int64_t kUpdates = 24;

constexpr const char* kPipeline = R"(
  model { mlp { hidden: [8, 8, 8, 8, 8, 8, 8, 8, 8] activation: tanh } }
  data { batch_size: 24 teacher { inputs: 12 outputs: 4 hidden: 16 train: 576 test: 8 } }
  optimizer { rule: momentum learning_rate: 0.005 momentum: 0.9 }
  clock {
    forward { seconds: 1 gamma { shape: 4 } }
    input_gradient { seconds: 1 gamma { shape: 4 } }
    weight_gradient { seconds: 1 }
    update { seconds: 0.02 }
  }
  record { evaluate: false order: true weights: false }
)";

struct Applied final : RecordSink {
  std::optional<Diverged> on(const RecordEntry& entry, double /*now*/) override {
    if (const auto* one = std::get_if<AppliedRecord>(&entry)) {
      all.push_back(*one);
    }
    return std::nullopt;
  }

  std::vector<AppliedRecord> all;
};

}  // namespace

Assignments with(Assignments all, const Assignments& more) {
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

Result<Blueprint> blueprint_of(std::string_view task, const Assignments& assignments) {
  auto e = parse_experiment(task, "conformance");
  TROUPE_CHECK(e, "[conformance] ", e.error().message);
  for (const std::string& assignment : assignments) {
    TROUPE_TRY(set_value(*e, assignment));
  }
  TROUPE_TRY(resolve(*e));
  return make_blueprint(*e);
}

Result<Blueprint> pipeline_blueprint(const Assignments& assignments) {
  return blueprint_of(kPipeline, with({concat("stop.updates=", kUpdates)}, assignments));
}

PipelineTrial run_pipeline(const Assignments& assignments) {
  PipelineTrial trial;
  const auto blueprint = pipeline_blueprint(assignments);
  if (!blueprint) {
    trial.trouble = blueprint.error().message;
    return trial;
  }
  Applied applied;
  RunOptions options{.virtual_clock = true, .directory = {}, .interrupts = {}};
  options.tee = &applied;
  auto ran = run_experiment(*blueprint, options);
  if (!ran) {
    trial.trouble = ran.error().message;
    return trial;
  }
  trial.result = *std::move(ran);
  trial.applied = std::move(applied.all);
  const std::int64_t updates = trial.result.summary.updates;
  if (trial.result.exit_code != 0 || !trial.result.cause.empty()) {
    trial.trouble = trial.result.cause;
  } else if (updates != kUpdates) {
    trial.trouble = concat(updates, " of ", kUpdates, " updates were made");
  }
  return trial;
}

Assignments choose(const std::string& choice, const std::vector<std::string>& values) {
  const std::size_t name = choice.find(".custom.name=");
  const std::string options = name == choice.npos ? choice.substr(0, choice.find('=')) + "." +
                                                        choice.substr(choice.find('=') + 1) + "."
                                                  : choice.substr(0, name) + ".custom.values.";
  Assignments all{choice};
  for (const std::string& value : values) {
    all.push_back(options + value);
  }
  return all;
}

std::vector<float> drawn(std::int64_t n, std::uint64_t name) {
  const RandomStream random(1, Purpose::sample, name);
  std::vector<float> x(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] = static_cast<float>(random.normal(i));
  }
  return x;
}

}  // namespace troupe::conformance
