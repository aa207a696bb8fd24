// How a cast is made of a blueprint; a part of cast.cpp, whose machines are in casting_machines.cpp.
#pragma once

#include "apps/topologies/exchange.hpp"
#include "apps/topologies/predictors.hpp"
#include "apps/topologies/roster.hpp"
#include "apps/topologies/streams.hpp"
#include "runtime/data/dataset.hpp"
#include "runtime/schemes/decoupled/decoupled.hpp"
#include "runtime/schemes/evaluation.hpp"
#include "runtime/schemes/optimizers/chunk_optimizer.hpp"
#include "runtime/system/machine.hpp"

#include <cstdint>
#include <memory>
#include <vector>

namespace troupe {

constexpr std::int32_t kPrefetch = 4;  // micro-batches between Source and first stage

/// Makes the members of a cast, in the order of the roster.
class Casting {
 public:
  /// `alike`: for copies of the machines of another, without further ones.
  explicit Casting(const Blueprint& blueprint, bool alike = false);

  Cast all();

  /// The machines of replica `r` anew; they wait for Rejoin.
  std::vector<Cast::Replacement> make_replacements(std::int32_t r);

 private:
  void add(ActorId id,
           std::unique_ptr<Machine> machine,
           Device device,
           Precision precision,
           std::int32_t stage = -1);
  void add_source(std::int32_t r);
  void add_workers(std::int32_t r);
  void add_director();
  void add_stage(std::int32_t r, std::int32_t k);
  std::vector<Ref<ShardRole>> clip_with(std::int32_t r, std::int32_t c) const;
  void add_shard(std::int32_t r, std::int32_t c);
  void add_optimizer(std::int32_t r, std::int32_t c);
  void add_predictor(std::int32_t r, const Roster::PredictorSeat& seat);
  void add_servers();
  void add_copies();
  EvaluationPlan evaluation(std::int32_t r, bool buffers = false) const;
  std::int64_t batches_of(std::int32_t r) const;

  Device device_of(std::int32_t r, std::int32_t k) const {
    return b_.devices[static_cast<std::size_t>(r * stages_ + k)];
  }

  bool served() const { return b_.link.has_value(); }

  /// Modules wait for no later one: what bounds how far the first runs ahead is its data alone.
  bool far_ahead() const { return batches_ahead(b_) > 0; }

  std::int32_t credit_chunk() const { return far_ahead() ? schedule_.chunks - 1 : 0; }

  /// Micro-batches between the Source and the chunk that gives it credit.
  std::int32_t window() const {
    return far_ahead() ? batches_ahead(b_) * schedule_.options.micro_batches : kPrefetch;
  }

  /// Each replica ends by itself, the run with the last of them.
  bool ends_apart() const { return hogwild_ || peers_; }

  /// Evaluates on its own account, at its own steps.
  bool marks(std::int32_t r) const { return !served() && !ends_apart() && r == 0; }

  const Blueprint& b_;
  const bool alike_;
  const proto::Experiment& e_;
  const Schedule& schedule_;
  const Roster who_;
  const std::int32_t replicas_;
  const std::int32_t stages_;
  const bool hogwild_;
  const bool peers_;
  const DecoupledScheme* const decoupled_;          // empty: backpropagation
  std::vector<ChunkOptimizer> rules_;               // by chunk
  std::vector<std::vector<std::int64_t>> samples_;  // by replica, where not all are its own
  std::shared_ptr<Shuffles> shuffles_;
  SharedByReplicas shared_;
  InitialStreams streams_on_;
  /// While machines are made: what chunks start with, by device. All replicas have the same handles, as nobody changes what
  /// others have, too.
  std::map<std::pair<Device, std::size_t>, std::vector<Tensor>> starting_;
  Cast cast_;
  bool returns_ = false;  // a replica comes back: its machines go to replacements_
  std::vector<Cast::Replacement> replacements_;
};

}  // namespace troupe
