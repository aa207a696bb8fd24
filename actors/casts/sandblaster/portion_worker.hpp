// One of Sandblaster's replicas: makes the gradient of one portion of the batch after the other, at
// the point whose version the portion names.
//
//   coordinator --Portion--> portion worker --PortionDone--> coordinator
//   portion worker --PointPull--> vector shard --PointReply--> portion worker
//   portion worker --PartialGradient--> vector shards
//
// Invariants: one portion at a time, all of it at one version, which is fetched once; what it makes
// is a function of the portion and the version alone.
#pragma once

#include "messages/sandblaster.hpp"
#include "runtime/data/dataset.hpp"
#include "runtime/model/chunk.hpp"
#include "runtime/system/machine.hpp"

#include <map>
#include <memory>
#include <optional>
#include <vector>

namespace troupe {

class PortionWorker final : public Actor<PortionWorker, PortionWorkerRole> {
 public:
  struct Config {
    Ref<PortionWorkerRole> self;
    std::int32_t replica = 0;
    std::uint64_t seed = 1;
    std::shared_ptr<const Chunk> chunk;  // the whole network
    std::shared_ptr<const Dataset> data;
    Ref<CoordinatorRole> coordinator;
    std::vector<Ref<VectorShardRole>> shards;  // by slice of the chunk
  };

  explicit PortionWorker(Config config) : c_(std::move(config)) {}

  void handle(Portion m, double now, Effects& fx);
  void handle(PointReply m, double now, Effects& fx);
  void handle(Ran<ForwardPass> m, double now, Effects& fx);
  void handle(Ran<WeightGradient> m, double now, Effects& fx);
  void archive(Archive& a) override;
  std::string waits_for() const override;

 private:
  void forward(Effects& fx);
  void backward(Stash stash, Effects& fx);
  void done(Tensor result, Effects& fx);

  Config c_;
  std::optional<Portion> portion_;
  Weights point_;                       // by slice
  std::int64_t point_version_ = -1;     // of all slices; -1: not all are here
  std::map<std::int32_t, Tensor> got_;  // by slice: those of the open question
  Tensor result_;                       // of the forward
};

}  // namespace troupe
