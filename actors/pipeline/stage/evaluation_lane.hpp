// The lane of a stage in which evaluations run: batches of test data that wait for their turn, and
// the pinned weights that they are evaluated at. The stage runs one of them between two actions of
// its sequence.
#pragma once

#include "actors/pipeline/stage/shard_client.hpp"
#include "messages/evaluation.hpp"

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <vector>

namespace troupe {

class EvaluationLane {
 public:
  /// `chunks`: all of the network's. `shards` outlives this.
  EvaluationLane(std::vector<std::shared_ptr<const Chunk>> chunks, ShardClient& shards)
      : chunks_(std::move(chunks)), shards_(shards) {}

  /// Adds to what other parts have sent of the same batch.
  void add(MarkBatch m);

  /// Takes the weights. False: they do not answer this lane's open question.
  bool accept(PullReply& m);

  /// Whether a batch of which all is there can start now, which becomes the first. Asks for weights where some are missing.
  bool ready(Effects& fx);

  /// The first batch and its weights. Only where ready().
  const MarkBatch& first() const { return waiting_.front(); }

  const Weights& weights() const { return weights_.at(first().chunk).weights; }

  void begin() { running_ = true; }

  /// The first batch is done.
  MarkBatch finish();

  /// The evaluation at `step` is over.
  void release(std::int64_t step);

  void archive(auto& a) { a(waiting_, weights_, open_, running_); }

 private:
  struct Pinned {
    std::int64_t step = -1;
    bool own = false;   // as MarkDue::own
    Weights weights{};  // the parts that have come
  };

  struct Question {
    std::int32_t chunk = 0;
    std::uint64_t request = 0;
  };

  std::vector<std::shared_ptr<const Chunk>> chunks_;
  ShardClient& shards_;
  std::deque<MarkBatch> waiting_;           // with the one that runs, which is the first
  std::map<std::int32_t, Pinned> weights_;  // by chunk
  std::optional<Question> open_;
  bool running_ = false;
};

}  // namespace troupe
