// Experiment -> blueprint: what a run is made from, whatever its topology. What an experiment may ask
// for is in checks.hpp.
#pragma once

#include "kernels/group_mean.hpp"
#include "messages/sections.hpp"
#include "runtime/checkpoint/weights.hpp"
#include "runtime/data/dataset.hpp"
#include "runtime/model/chunk.hpp"
#include "runtime/model/width.hpp"
#include "runtime/schemes/decoupled/decoupled.hpp"
#include "runtime/schemes/evaluation.hpp"
#include "runtime/schemes/exchanges/exchange.hpp"
#include "runtime/schemes/optimizers/rate.hpp"
#include "runtime/schemes/policies/policy.hpp"
#include "runtime/schemes/rules/rule.hpp"
#include "runtime/schemes/schedules/schedule.hpp"
#include "runtime/system/time_model.hpp"

#include <functional>
#include <memory>
#include <optional>
#include <vector>

namespace troupe {

class ChunkOptimizer;

/// Everything that follows from a resolved experiment before anything runs: what `plan` prints and
/// `build_cast` uses.
struct Blueprint {
  BoxedExperiment experiment;  // resolved
  std::shared_ptr<const Dataset> data;
  Network network;
  std::optional<SectionedNetwork> grid;  // of the network, where its chunks are cut in width
  std::vector<std::int64_t> cut;         // first layer of each chunk, of chunk_network()
  std::vector<std::shared_ptr<const Chunk>> chunks;
  std::vector<std::shared_ptr<const Chunk>> predictors;  // of error signals, by module; or empty
  std::vector<std::shared_ptr<const Chunk>> input_predictors;  // by module but the first; or empty
  std::vector<ParameterValues> start;  // as weight_specs; empty: initialised by seed
  std::shared_ptr<const Schedule> schedule;
  std::shared_ptr<const ViewPolicy> view;
  std::vector<ViewPlan> plans;          // by chunk
  std::optional<Link> link;             // to servers, where the replicas have some
  std::int64_t batches_per_update = 1;  // mini-batches, over all replicas
  std::vector<Device> devices;          // by replica and stage
  /// What makes one mean of all replicas' gradients (actors/exchange/group_sums.hpp). Empty: kernels/group_mean.hpp.
  std::function<std::vector<std::vector<Tensor>>(
      Stream&, const GroupRanks&, const std::vector<std::vector<Tensor>>&)>
      group_mean{};
  /// By chunk: what the GPUs of its replicas call their group where they are of several processes; empty: in one.
  std::vector<std::string> groups{};
  Precision precision = Precision::fp32;  // of the products of stages, optimizers and servers
  std::vector<ChunkTimes> times;          // modelled means of one micro-batch, by chunk
  BatchSizes sizes;                       // of the run's mini-batches, over all replicas
  std::int64_t batches_per_epoch = 0;     // before any has grown
  std::int64_t batches = 0;  // N: updates to be made; 0 where only time or accuracy ends the run
  std::int64_t updates = 0;  // the same with those that `resumed` tells of
  std::int64_t evaluate_every = 0;  // steps; 0: only at the end (or not at all)

  /// What the chunks are made of.
  const Network& chunk_network() const { return grid ? grid->network : network; }

  /// The first layer of each chunk in depth, of `network`; how many there are.
  const std::vector<std::int64_t>& cut_in_depth() const { return grid ? grid->cut : cut; }

  std::int32_t depth() const { return static_cast<std::int32_t>(cut_in_depth().size()); }

  /// The first of the chunks that chunk `deep` in depth became.
  std::int32_t first_chunk(std::int32_t deep) const;
};

/// Of a resolved experiment: stages of a replica, each part of one cut in width counted.
std::int64_t stage_actors(const proto::Experiment& experiment);
/// Of a resolved experiment: by replica and stage; those of its keys that check_experiment accepts.
std::vector<Device> all_devices(const proto::Experiment& experiment);
/// Of one stage, by replica.
std::vector<Device> devices_of_stage(const proto::Experiment& experiment, std::int32_t stage);
Precision precision_of(const proto::Experiment& experiment);

/// Slices that each chunk's weights are to have.
std::size_t slices_wanted(const Blueprint& blueprint);
/// Number of the fragments that servers keep; 0: slices are not of fragments.
std::int64_t fragments_of(const Blueprint& blueprint);
/// ... and what they are made of.
Dealing dealing_of(const Blueprint& blueprint);
/// By slice of a chunk: mini-batches into a period at which its fragment is sent. Empty where there are
/// no fragments.
std::vector<std::int64_t> fragment_turns(const Blueprint& blueprint, std::int32_t chunk);

/// Cuts the network into the schedule's chunks: fills cut, chunks, plans and times. `cut`: as in
/// pipeline.cut; empty: by FLOPs. Error (usage) where it does not fit.
Result<void> cut_blueprint(Blueprint& blueprint, const std::vector<std::int64_t>& cut);

/// Makes the schedule that the experiment asks for, and what depends on it: schedule, link,
/// evaluate_every and view; then cuts as pipeline.cut says. Error (usage) as make_blueprint.
Result<void> schedule_blueprint(Blueprint& blueprint);

/// Checks everything that can be checked before a run, what needs no data before that is opened. Error
/// (usage or data) with key, value and what would be right. Where pipeline.partition is `profiled` and no cut is given, it measures the
/// layers and sets pipeline.cut, and pipeline.copies where that promises more; where it is `mixed`, pipeline.stage_of too. `data`: instead of the
/// experiment's; empty: that is opened.
Result<Blueprint> make_blueprint(const proto::Experiment& resolved,
                                 std::shared_ptr<const Dataset> data = nullptr);

/// Which steps are evaluated, counted with those that were made before the run.
EvaluationPlan evaluation_plan(const Blueprint& blueprint);

/// Flushed mini-batches that a weight policy begins with, those before the run among them.
std::int64_t synchronous_batches(const Blueprint& blueprint);

/// The rate of each update. Milestones are shares of the run's epochs: where mini-batches grow, most
/// updates come early.
Rate rate_of(const Blueprint& blueprint);
/// The experiment's optimizer as it is made for `chunk`.
ChunkOptimizer chunk_optimizer(const Blueprint& blueprint, std::int32_t chunk);

/// The experiment's optimizer, with the warm-up that its rule brings.
proto::Optimizer optimizer_of(const Blueprint& blueprint);

/// What the decoupled method makes for module `chunk`; nothing where there is none, or it has predictors.
std::shared_ptr<const ModuleSignal> module_signal(const Blueprint& blueprint,
                                                  std::size_t chunk,
                                                  Stream& stream);

/// Samples of the largest micro-batch of the run.
std::int64_t largest_micro_batch(const Blueprint& blueprint);

/// What chunk `index` starts with, on the stream's device: from the file of start_from, or by seed; so
/// what start_from_skip leaves out of the file.
std::vector<Tensor> starting_slices(Stream& stream, const Blueprint& blueprint, std::size_t index);
std::vector<Tensor> starting_buffers(Stream& stream, const Blueprint& blueprint, std::size_t index);

/// What the rule of the server of a chunk's slice is made from. The blueprint outlives it.
RuleContext rule_context(const Blueprint& blueprint, std::int32_t chunk, std::size_t slice);

}  // namespace troupe
