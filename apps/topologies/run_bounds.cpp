#include "apps/topologies/run_bounds.hpp"

#include "apps/topologies/roster.hpp"
#include "experiment.pb.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace troupe {
namespace {

// Messages of one sender, or inputs of one machine, for each micro-batch of all replicas.
constexpr std::int64_t kMessagesMax = 64;
constexpr std::int64_t kEvaluationMax = 1000;  // samples of one of its batches
constexpr std::int64_t kBeyondMax = 100'000;   // begun before a replica hears of the end
constexpr std::int64_t kCountsMin = 1'000'000;
constexpr std::int64_t kUpdatesMax = 1'000'000'000'000;  // of a run that ends by something else

/// The first copy of each machine; empty: there is no other.
std::vector<ActorId> firsts_of(const Blueprint& b) {
  const Roster who(b);
  std::vector<ActorId> firsts(who.entries().size());
  std::iota(firsts.begin(), firsts.end(), ActorId{0});
  bool any = false;
  for (const Roster::Household& household : who.households()) {
    for (std::size_t copy = 1; copy < household.seats.size(); ++copy) {
      any = true;
      for (std::size_t i = 0; i < household.seats[copy].size(); ++i) {
        firsts[household.seats[copy][i]] = household.seats.front()[i];
      }
    }
  }
  return any ? firsts : std::vector<ActorId>{};
}

SampleShapes shapes_of(const BundleShape& bundle) {
  SampleShapes all;
  for (const NamedShape& entry : bundle) {
    all[entry.name].push_back(entry.shape);
  }
  return all;
}

/// What crosses the cuts.
void add_shapes(RunBounds& bounds, const Blueprint& b) {
  const Network& network = b.chunk_network();
  for (std::size_t c = 0; c < b.cut.size(); ++c) {
    const bool first = b.cut[c] == 0;
    bounds.inputs.push_back(
        b.grid  ? shapes_of(b.grid->inputs[c])
        : first ? shapes_of({{.name = "x", .shape = network.input}})
                : shapes_of(network.after.at(static_cast<std::size_t>(b.cut[c] - 1))));
    const bool last = c + 1 == b.cut.size();
    bounds.outputs.push_back(
        last ? shapes_of(network.after.back())
             : shapes_of(network.after.at(static_cast<std::size_t>(b.cut[c + 1] - 1))));
  }
}

/// The greatest learning rate that an update of the run may have. Schedules fall, but for factors above 1 of those that go
/// by steps; what programs of others make of it nobody knows.
double largest_rate(const Blueprint& b, std::int64_t updates) {
  const proto::Experiment& e = b.experiment;
  if (e.extension().has_custom() || e.pipeline().weights().has_custom()) {
    return std::numeric_limits<double>::max();
  }
  const Rate rate = rate_of(b);
  const double factor = std::max(1.0, e.decoupled().synthetic().rate_factor());
  return 1.001 * factor * std::max(rate.full(), rate.at(updates));
}

}  // namespace

RunBounds run_bounds(const Blueprint& b, std::size_t actors) {
  const proto::Experiment& e = b.experiment;
  RunBounds bounds{.replicas = static_cast<std::int32_t>(e.replicas().count()),
                   .stages = b.schedule->options.stages,
                   .chunks = b.schedule->chunks,
                   .actors = actors,
                   .mini_batches = b.batches_per_update,
                   .classes = b.data->classes(),
                   .firsts = firsts_of(b)};
  for (const auto& chunk : b.chunks) {
    bounds.slices = std::max(bounds.slices, chunk->layout().slice_sizes.size());
  }
  if (b.updates > 0) {
    const double micro_batches = static_cast<double>(b.updates) *
                                 static_cast<double>(b.batches_per_update) *
                                 static_cast<double>(e.pipeline().micro_batches()) *
                                 static_cast<double>(e.replicas().count());
    bounds.most = std::max(kCountsMin,
                           static_cast<std::int64_t>(std::min(kMessagesMax * micro_batches,
                                                              static_cast<double>(bounds.most))));
    bounds.batches = b.updates * b.batches_per_update + kBeyondMax;
    bounds.rows =
        std::max({largest_micro_batch(b), std::int64_t{e.data().batch_size()}, kEvaluationMax}) *
        b.data->labels_per_sample();
  }
  bounds.rate = largest_rate(b, b.updates > 0 ? bounds.batches * bounds.replicas : kUpdatesMax);
  if (b.predictors.empty() && b.input_predictors.empty()) {
    for (const auto& chunk : b.chunks) {
      const auto& sizes = chunk->layout().slice_sizes;
      bounds.elements.emplace_back(sizes.begin(), sizes.end());
    }
  }
  using Kind = proto::Decoupled;
  const auto kind = e.decoupled().kind_case();
  if (kind == Kind::kNone || kind == Kind::KIND_NOT_SET || kind == Kind::kFeedbackAlignment) {
    add_shapes(bounds, b);
  }
  return bounds;
}

}  // namespace troupe
