#include "apps/topologies/blueprint.hpp"

#include "apps/plan/profiled_cut.hpp"
#include "apps/topologies/checks.hpp"
#include "apps/topologies/predictors.hpp"
#include "apps/topologies/starting_weights.hpp"
#include "apps/topologies/width.hpp"
#include "experiment.pb.h"
#include "kernels/sequences.hpp"
#include "kernels/stream.hpp"
#include "kernels/wording.hpp"
#include "messages/experiment.hpp"
#include "runtime/data/registry.hpp"
#include "runtime/data/stand_in.hpp"
#include "runtime/schemes/optimizers/chunk_optimizer.hpp"
#include "runtime/schemes/schedules/file.hpp"
#include "runtime/schemes/schedules/schedule_scheme.hpp"

#include <algorithm>
#include <set>
#include <utility>

namespace troupe {
namespace {

Result<void> read_data(Blueprint& b) {
  if (!b.data) {
    auto data = open_dataset(b.experiment->data(), b.experiment->seed());
    TROUPE_TRY(data);
    b.data = *data;
  }
  return check_blueprint(b, Known::data);
}

/// What is wrong with an experiment whose data is not here, or cannot be read; `otherwise` where nothing is, or the data
/// would be needed to tell. So nobody gets data for an experiment that cannot be run.
Error wrong_without_data(Blueprint b, Error otherwise);

/// Takes what was done before the run out of what is to be done.
Result<void> leave_out_resumed(Blueprint& b) {
  const proto::Resumed& before = b.experiment->resumed();
  const double seconds = b.experiment->stop().seconds();
  if (b.updates > 0 && before.updates() >= b.updates) {
    return Error{ErrorKind::usage,
                 fill_in("stop: the run has made {} updates before it goes on here, and is to make "
                         "{}: nothing is left; stop.updates or stop.epochs of more would go on",
                         before.updates(),
                         b.updates)};
  }
  if (seconds > 0 && before.seconds() >= seconds) {
    return usage_error("stop.seconds: {} of the {} seconds have passed before the run goes on here",
                       before.seconds(),
                       seconds);
  }
  b.batches = std::max<std::int64_t>(0, b.updates - before.updates());
  return {};
}

/// Sizes of the mini-batches, and how many updates the run has.
Result<void> measure_length(Blueprint& b) {
  const proto::Experiment& e = b.experiment;
  auto sizes = batch_sizes(e, b.data->size(Split::train));
  TROUPE_TRY(sizes);
  b.sizes = *std::move(sizes);
  b.batches_per_epoch = b.sizes.batches_per_epoch();
  b.batches_per_update = batches_per_update(e);
  const proto::Stop& stop = e.stop();
  if (stop.epochs() > 0) {
    const std::int64_t mini_batches = std::max<std::int64_t>(1, b.sizes.batches(stop.epochs()));
    b.batches = (mini_batches + b.batches_per_update - 1) / b.batches_per_update;
  }
  if (stop.updates() > 0) {
    b.batches = b.batches > 0 ? std::min<std::int64_t>(b.batches, stop.updates()) : stop.updates();
  }
  b.updates = b.batches;
  TROUPE_TRY(leave_out_resumed(b));
  if (e.record().evaluate()) {
    b.evaluate_every = e.record().evaluate_every() > 0
                           ? e.record().evaluate_every()
                           : std::max<std::int64_t>(1, b.batches_per_epoch / b.batches_per_update);
  }
  return check_blueprint(b, Known::length);
}

/// The layers, and what they start with where that is in a file.
Result<void> read_network(Blueprint& b) {
  const proto::Experiment& e = b.experiment;
  auto network = build_network(e.model(), *b.data, e.data().batch_size());
  TROUPE_TRY(network);
  b.network = *network;
  auto start = read_starting_weights(
      e.start_from(), {e.start_from_skip().begin(), e.start_from_skip().end()}, b.network);
  TROUPE_TRY(start);
  b.start = *std::move(start);
  return check_blueprint(b, Known::network);
}

/// Where pipeline.partition wants layers to be measured and their cut is not known yet: measures,
/// and cuts.
Result<void> measured_partition(Blueprint& b) {
  const proto::Pipeline& pipeline = b.experiment->pipeline();
  const bool mixed = pipeline.partition() == proto::Pipeline::mixed;
  if (!(mixed || pipeline.partition() == proto::Pipeline::profiled) || !pipeline.cut().empty() ||
      (mixed ? pipeline.stages() : b.depth()) == 1) {
    return {};
  }
  auto measured = measured_blueprint(b);
  TROUPE_TRY(measured);
  b = *std::move(measured);
  return {};
}

/// The link to the servers, and evaluations where it lets weights be seen.
void link_replicas(Blueprint& b) {
  const proto::Experiment& e = b.experiment;
  if (!has_servers(e)) {
    return;
  }
  b.link = make_link({e, b.batches, b.schedule->delay_max + 1});
  if (const std::int64_t period = b.link->push_every;
      b.link->steps() && b.link->last > 0 && b.evaluate_every > 0) {
    // The weights that all share exist where the replicas meet.
    b.evaluate_every = (b.evaluate_every + period - 1) / period * period;
  }
}

/// Those who borrow a tied parameter read it up to the owner's delay later than the owner does; the copies of
/// a stage read the round before the one that they are in, where a round is of several mini-batches.
void keep_for_borrowers(Blueprint& b) {
  for (std::int32_t c = 0; c < b.schedule->chunks; ++c) {
    const std::int64_t round = b.schedule->round_of(c);
    b.plans[static_cast<std::size_t>(c)].keep += round > 1 ? 2 * round - 1 : 0;
  }
  std::set<std::int32_t> lenders;
  for (const auto& chunk : b.chunks) {
    for (const BorrowedSlice& slice : chunk->borrowed()) {
      if (lenders.insert(slice.owner).second) {
        const auto owner = static_cast<std::size_t>(slice.owner);
        b.plans[owner].keep += b.schedule->delay[owner];
      }
    }
  }
}

Error wrong_without_data(Blueprint b, Error otherwise) {
  auto data = stand_in_for(b.experiment->data());
  if (!data || !*data) {
    return data ? otherwise : data.error();
  }
  b.data = *std::move(data);
  for (const auto& step : {measure_length, read_network, schedule_blueprint}) {
    if (const auto done = step(b); !done) {
      return done.error().kind == ErrorKind::usage ? done.error() : otherwise;
    }
  }
  return otherwise;
}

}  // namespace

std::int64_t stage_actors(const proto::Experiment& e) {
  return e.pipeline().stages() * e.pipeline().width();
}

std::vector<Device> all_devices(const proto::Experiment& e) {
  const auto& names = e.placement().devices();
  return tabulated<Device>(static_cast<int>(stage_actors(e) * e.replicas().count()),
                           [&](int k) { return *parse_device(names[k % names.size()]); });
}

std::vector<Device> devices_of_stage(const proto::Experiment& e, std::int32_t stage) {
  const std::vector<Device> all = all_devices(e);
  std::vector<Device> of_replica;
  for (auto at = static_cast<std::size_t>(stage); at < all.size();
       at += static_cast<std::size_t>(stage_actors(e))) {
    of_replica.push_back(all[at]);
  }
  return of_replica;
}

Precision precision_of(const proto::Experiment& e) {
  switch (e.placement().precision()) {
    case proto::Placement::fp32:
      break;
    case proto::Placement::tf32:
      return Precision::tf32;
    case proto::Placement::bf16:
      return Precision::bf16;
  }
  return Precision::fp32;
}

std::int32_t Blueprint::first_chunk(std::int32_t deep) const {
  std::int32_t first = grid ? 0 : deep;
  for (std::int32_t d = 0; grid && d < deep; ++d) {
    first += grid->sections[static_cast<std::size_t>(d)] * schedule->width;
  }
  return first;
}

Result<Blueprint> make_blueprint(const proto::Experiment& resolved,
                                 std::shared_ptr<const Dataset> data) {
  TROUPE_TRY(check_experiment(resolved));
  Blueprint b;
  b.experiment = resolved;
  TROUPE_TRY(keep_schedule_rows(*b.experiment));
  b.data = std::move(data);
  b.devices = all_devices(resolved);
  b.precision = precision_of(resolved);
  const bool opens = b.data == nullptr;
  if (auto read = read_data(b); !read) {
    return opens && read.error().kind == ErrorKind::data ? wrong_without_data(b, read.error())
                                                         : read.error();
  }
  for (const auto& step : {measure_length, read_network, schedule_blueprint, measured_partition}) {
    TROUPE_TRY(step(b));
  }
  return b;
}

Result<void> schedule_blueprint(Blueprint& b) {
  const proto::Experiment& e = b.experiment;
  auto options = schedule_options(e);
  TROUPE_TRY(options);
  options->synchronous_batches = std::max<std::int64_t>(
      0, synchronous_batches(b) - static_cast<std::int64_t>(e.resumed().updates()));
  auto schedule = make_schedule(*options);
  TROUPE_TRY(schedule);
  schedule->signal_from = signal_from(e);
  schedule->estimates_mixed =
      schedule->signal_from == SignalFrom::next && predictor_plan(e).has_value();
  schedule->inputs_predicted = schedule->chunks > 1 && e.decoupled().synthetic().unlocked();
  b.schedule = std::make_shared<const Schedule>(std::move(*schedule));
  TROUPE_TRY(check_blueprint(b, Known::schedule));
  link_replicas(b);
  b.view = make_view(e, *b.schedule);
  TROUPE_TRY(widen(b));
  return cut_blueprint(b, {e.pipeline().cut().begin(), e.pipeline().cut().end()});
}

Result<void> cut_blueprint(Blueprint& b, const std::vector<std::int64_t>& cut) {
  const proto::Experiment& e = b.experiment;
  if (b.grid) {
    b.cut = b.grid->first_layers;
  } else {
    auto first_layers = cut_network(b.network, b.schedule->chunks, cut);
    TROUPE_TRY(first_layers);
    b.cut = *std::move(first_layers);
  }
  b.chunks.clear();
  b.plans.clear();
  std::vector<ChunkFlops> flops;
  const auto rows = static_cast<double>(e.data().batch_size() / e.pipeline().micro_batches());
  const auto plan_of_predictors = predictor_plan(e);
  const bool sends_back = b.schedule->signal_from == SignalFrom::next ||
                          (plan_of_predictors && !plan_of_predictors->head);
  const DecoupledScheme* const method = decoupled_of(e);
  const bool tells_influence = method && method->influence;
  for (std::int32_t c = 0; c < b.schedule->chunks; ++c) {
    b.chunks.push_back(std::make_shared<const Chunk>(b.chunk_network(),
                                                     b.cut,
                                                     c,
                                                     slices_wanted(b),
                                                     sends_back && !b.schedule->is_first(c),
                                                     fragments_of(b),
                                                     dealing_of(b)));
    auto plan = plan_views(*b.schedule, *b.view, c);
    TROUPE_TRY(plan);
    b.plans.push_back(*std::move(plan));
    const Flops f = b.chunks.back()->flops();
    const double influence = tells_influence && c > 0 ? b.chunks.back()->influence_flops() : 0;
    flops.push_back(
        {(f.forward + influence) * rows, f.input_gradient * rows, f.weight_gradient * rows});
  }
  b.predictors = predictor_chunks(b);
  const double seen = rows * static_cast<double>(b.data->labels_per_sample());  // by predictors
  for (std::size_t c = 0; c < b.predictors.size(); ++c) {
    const Flops f = b.predictors[c]->flops();
    // A head learns while it answers.
    flops[c].predict = (plan_of_predictors->head ? f.total() : f.forward) * seen;
    flops[c].teach = plan_of_predictors->head ? 0 : f.total() * seen;
  }
  b.input_predictors = input_predictor_chunks(b);
  for (std::size_t c = 0; c < b.input_predictors.size(); ++c) {
    const Flops f = b.input_predictors[c]->flops();
    flops[c + 1].predict_input = f.forward * seen;
    flops[c + 1].teach_input = f.total() * seen;
  }
  keep_for_borrowers(b);
  auto times = mean_times(e.clock(), flops, b.schedule->placement);
  TROUPE_TRY(times);
  b.times = *times;
  return check_blueprint(b, Known::chunks);
}

EvaluationPlan evaluation_plan(const Blueprint& b) {
  // Replicas that meet now and then count from where they begin: the weights that all share exist where they meet.
  const bool meet = b.link && b.link->push_every > 1;
  return {b.evaluate_every, meet ? 0 : b.experiment->resumed().updates()};
}

/// As far as the run goes.
std::int64_t synchronous_batches(const Blueprint& b) {
  const double epochs = synchronous_epochs(b.experiment);
  const std::int64_t batches = epochs > 0 ? b.sizes.batches(epochs) : 0;
  const std::int64_t run = b.updates * b.batches_per_update;  // 0: not known
  return run > 0 ? std::min(batches, run) : batches;
}

proto::Optimizer optimizer_of(const Blueprint& b) {
  return warmed_up(b.experiment, b.updates, b.sizes.batches(5) / b.batches_per_update);
}

Rate rate_of(const Blueprint& b) {
  std::vector<std::int64_t> milestones;
  if (!b.experiment->data().growth().at().empty()) {  // else shares of updates are the same
    for (const double at : b.experiment->optimizer().schedule().milestones().at()) {
      milestones.push_back(b.sizes.batches(at * b.sizes.epochs(b.updates)));
    }
  }
  return {optimizer_of(b),
          b.updates,
          std::move(milestones),
          rate_factor(b.experiment),
          b.experiment->resumed().updates()};
}

ChunkOptimizer chunk_optimizer(const Blueprint& b, std::int32_t chunk) {
  return {b.experiment,
          rate_of(b),
          b.schedule->delay[static_cast<std::size_t>(chunk)],
          synchronous_batches(b)};
}

std::int64_t largest_micro_batch(const Blueprint& b) {
  const std::int64_t last = std::max<std::int64_t>(b.updates, 1) - 1;
  return b.sizes.size(last) / b.experiment->pipeline().micro_batches();
}

}  // namespace troupe
