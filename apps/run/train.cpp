#include "apps/run/train.hpp"

#include "apps/presets/presets.hpp"
#include "apps/run/run.hpp"
#include "experiment.pb.h"
#include "kernels/stream.hpp"

#include <atomic>
#include <exception>
#include <utility>

namespace troupe {
namespace {

/// Shows the caller what it has asked for.
class Callbacks final : public RecordSink {
 public:
  explicit Callbacks(const TrainOptions& options) : options_(options) {}

  std::optional<Diverged> on(const RecordEntry& entry, double now) override {
    bool goes_on = true;
    if (const auto* loss = std::get_if<LossRecord>(&entry); loss && options_.on_loss) {
      const double sum = to_host(loss->result)[0];
      goes_on = options_.on_loss({.replica = loss->stamp.replica,
                                  .batch = loss->stamp.batch,
                                  .micro_batch = loss->stamp.micro_batch,
                                  .loss = sum / static_cast<double>(loss->rows),
                                  .seconds = now});
    } else if (const auto* tried = std::get_if<EvaluationRecord>(&entry);
               tried && options_.on_evaluation) {
      goes_on = options_.on_evaluation(
          {.step = tried->step,
           .loss = tried->loss,
           .accuracy = tried->has_accuracy ? std::optional(tried->accuracy) : std::nullopt,
           .seconds = now});
    }
    if (!goes_on) {
      stopped_ = true;
    }
    return std::nullopt;
  }

  bool stopped() const { return stopped_ || options_.stop.stop_requested(); }

 private:
  const TrainOptions& options_;
  std::atomic<bool> stopped_ = false;
};

std::map<std::string, Tensor> by_name(const Blueprint& b, const RunResult& result) {
  std::map<std::string, Tensor> all;
  const std::vector<WeightSpec> specs = weight_specs(b.network);
  const auto values = values_of(b.chunks, result.weights, result.buffers);
  Stream stream{Device{}};
  for (std::size_t i = 0; i < specs.size(); ++i) {
    all.emplace(specs[i].name, from_host(stream, values[i], specs[i].shape));
  }
  return all;
}

}  // namespace

Result<Trained> train(const std::string& experiment,
                      const std::vector<std::string>& assignments,
                      const TrainOptions& options) {
  const auto resolved = load_experiment(experiment, assignments);
  TROUPE_TRY(resolved);
  if (!resolved->phases().empty()) {
    return Error{ErrorKind::usage, "phases: train() makes a single run; phases=[] makes one of it"};
  }
  const auto blueprint = make_blueprint(*resolved, options.data);
  TROUPE_TRY(blueprint);
  Callbacks callbacks(options);
  RunOptions how{.virtual_clock = options.virtual_clock,
                 .directory = options.directory,
                 .interrupts = {},
                 .tee = &callbacks};
  how.interrupts = [&callbacks] {
    return callbacks.stopped() ? 1 : 0;
  };
  try {
    auto ran = run_experiment(*blueprint, how);
    TROUPE_TRY(ran);
    Trained trained{
        .exit_code = ran->exit_code, .cause = std::move(ran->cause), .summary = ran->summary};
    if (!ran->weights.empty()) {
      trained.weights = by_name(*blueprint, *ran);
    }
    return trained;
  } catch (
      const std::exception& error) {  // no room for a thread; a factory of the caller's that failed
    return Error{ErrorKind::lost, concat("train: ", error.what())};
  }
}

}  // namespace troupe
