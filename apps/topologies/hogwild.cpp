#include "apps/topologies/hogwild.hpp"

#include "actors/casts/sparse/row_source.hpp"
#include "actors/casts/sparse/row_worker.hpp"
#include "experiment.pb.h"
#include "kernels/stream.hpp"
#include "kernels/wording.hpp"

#include <memory>

namespace troupe {
namespace {

using E = proto::Experiment;

}  // namespace

bool is_sparse_hogwild(const proto::Experiment& e) {
  return e.replicas().exchange().has_hogwild() && e.model().has_logistic() && e.data().has_sparse();
}

Constraints<proto::Experiment> sparse_hogwild_checks() {
  return only_where<E>(
      is_sparse_hogwild,
      {
          {"sparse_hogwild_in_one_stage",
           [](const E& e) {
             return e.pipeline().stages() == 1 && e.pipeline().micro_batches() == 1;
           },
           "pipeline: sparse Hogwild goes row by row through one layer; stages and micro_batches "
           "are 1"},
          {"sparse_hogwild_on_cpu",
           [](const E& e) { return all_devices(e).front().kind == DeviceKind::cpu; },
           "placement.devices: sparse Hogwild runs on cpu only"},
          {"sparse_hogwild_in_fp32",
           [](const E& e) { return precision_of(e) == Precision::fp32; },
           "placement.precision: sparse Hogwild multiplies no matrices; use fp32"},
          {"sparse_hogwild_labels",
           [](const E& e) { return e.model().label_smoothing() == 0; },
           "model.label_smoothing: sparse Hogwild takes labels as they are; use 0"},
          {"sparse_hogwild_by_sgd",
           [](const E& e) { return e.optimizer().rule() == proto::OptimizerRule::sgd; },
           "optimizer.rule: sparse Hogwild writes what a row touches and nothing else; set sgd"},
          {"sparse_hogwild_touches_no_more",
           [](const E& e) {
             return e.optimizer().weight_decay() == 0 && e.optimizer().clip_norm() == 0;
           },
           "optimizer: weight_decay and clip_norm would touch every weight at every row; sparse "
           "Hogwild has neither"},
          {"sparse_hogwild_interleaved",
           [](const E& e) { return e.replicas().split() == proto::Replicas::interleaved; },
           "replicas.split: sparse Hogwild deals rows interleaved"},
      });
}

Constraints<Blueprint> hogwild_length_checks() {
  return {
      {"hogwild_update_for_each_replica",
       [](const Blueprint& b) {
         const E& e = b.experiment;
         const bool shares = shared_by(e) == Shared::buffer && !is_sparse_hogwild(e);
         return !shares || b.batches == 0 || b.batches >= e.replicas().count()
                    ? ""
                    : fill_in(
                          "replicas.count: {} is more than the run's {} updates, and each replica "
                          "makes one at least",
                          b.experiment->replicas().count(),
                          b.batches);
       }},
  };
}

std::vector<ChunkTimes> sparse_hogwild_times(const Blueprint& b) {
  const proto::Experiment& e = b.experiment;
  // A product and a scaled sum a row; both are in the time of the forward.
  const double flops = 4.0 * static_cast<double>(e.data().sparse().nonzeros()) *
                       static_cast<double>(e.data().batch_size());
  auto times = mean_times(e.clock(), {{.forward = flops}}, {0});
  TROUPE_CHECK(times, "the blueprint has checked the clock");
  return *times;
}

Cast build_sparse_hogwild(const Blueprint& b) {
  const proto::Experiment& e = b.experiment;
  const auto replicas = static_cast<std::int32_t>(e.replicas().count());
  const auto data = std::dynamic_pointer_cast<const SparseData>(b.data);
  TROUPE_CHECK(data && b.chunks.front()->layout().slice_sizes.size() == 1,
               "sparse Hogwild has one slice of weights");
  Stream stream(Device{});
  const Tensor start = starting_slices(stream, b, 0).front();
  auto weights = std::make_shared<SharedBuffer>(start.elements(), replicas);
  shared_store(stream, *weights, start);

  const Ref<RowSourceRole> source{0};
  Cast cast;
  std::vector<Ref<RowWorkerRole>> workers;
  for (std::int32_t r = 0; r < replicas; ++r) {
    workers.push_back({static_cast<ActorId>(1 + r)});
  }
  cast.members.push_back({"source",
                          std::make_unique<RowSource>(
                              RowSource::Config{.workers = workers,
                                                .weights = weights,
                                                .data = data,
                                                .batches = b.batches,
                                                .seconds = e.stop().seconds(),
                                                .evaluate_every = b.evaluate_every,
                                                .evaluate = e.record().evaluate(),
                                                .target_accuracy = e.stop().target_accuracy(),
                                                .allow_divergence = e.stop().allow_divergence()}),
                          0,
                          {}});
  const bool racy = e.replicas().exchange().hogwild().add() == proto::Hogwild::racy;
  for (std::int32_t r = 0; r < replicas; ++r) {
    cast.members.push_back({.name = concat("worker-", r),
                            .machine = std::make_unique<RowWorker>(
                                RowWorker::Config{.replica = r,
                                                  .replicas = replicas,
                                                  .weights = weights,
                                                  .data = data,
                                                  .batch_size = e.data().batch_size(),
                                                  .seed = e.seed(),
                                                  .rate = rate_of(b),
                                                  .add = racy ? SharedAdd::racy : SharedAdd::atomic,
                                                  .source = source}),
                            .thread = 1 + r,
                            .device = {},
                            .replica = r,
                            .stage = r});
  }
  cast.threads = 1 + replicas;
  cast.starting = {source.id};
  cast.director = {source.id};
  return cast;
}

}  // namespace troupe
