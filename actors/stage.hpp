// One worker on one device: runs its chunks by its schedule. The sequence of actions is fixed; what
// has arrived decides only whether the next one starts or waits.
//
//   previous stage --Activation--> stage --Activation--> next stage
//   previous stage <--ErrorSignal-- stage <--ErrorSignal-- next stage
//   stage --Pull{view}--> shard --PullReply--> stage --Push{gradient}--> shard
//   stage --Pull, TiedPush--> shard of the chunk that owns a tied parameter
//
// Invariants: actions run in sequence order, one at a time; a backward meets the stash of its own
// forward; micro-batches are accumulated in order and divided by M once; Marks run between two
// actions and change nothing of the sequence.
#pragma once

#include "runtime/data/batch_sizes.hpp"
#include "runtime/model/chunk.hpp"
#include "runtime/schemes/schedule.hpp"
#include "runtime/schemes/view.hpp"
#include "runtime/system/machine.hpp"

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <tuple>

namespace troupe {

/// What a stage keeps from forward to backward (pipeline.activations).
enum class KeepActivations : std::uint8_t { fifo, recompute, overwrite };

class Stage final : public Actor<Stage, StageRole> {
 public:
  struct Config {
    Ref<StageRole> self;
    std::int32_t replica = 0;
    std::int32_t replicas = 1;
    bool served = false;  // replicas share weights: others know which step is the last
    std::int32_t stage = 0;
    std::uint64_t seed = 1;
    BatchSizes sizes;
    std::shared_ptr<const Schedule> schedule;
    std::shared_ptr<const ViewPolicy> view;
    KeepActivations keep = KeepActivations::fifo;
    std::int64_t gap_every = 0;  // mini-batches between two measurements of the gap; 0: never
    std::vector<std::shared_ptr<const Chunk>> chunks;  // all of the network's, by chunk
    std::vector<Ref<StageRole>> stage_of;              // by chunk
    std::vector<Ref<ShardRole>> shard_of;              // by chunk
    std::int64_t evaluate_every = 0;  // steps between two Marks; 0: none in between
    std::map<std::int32_t, std::vector<Tensor>> buffers;  // how they start, of this stage's chunks
    Ref<SourceRole> source;
    Ref<DirectorRole> director;
  };

  explicit Stage(Config config);

  void handle(Start, double now, Effects& fx);
  void handle(Activation m, double now, Effects& fx);
  void handle(Labels m, double now, Effects& fx);
  void handle(ErrorSignal m, double now, Effects& fx);
  void handle(End m, double now, Effects& fx);
  void handle(PullReply m, double now, Effects& fx);
  void handle(MarkBatch m, double now, Effects& fx);
  void handle(Release m, double now, Effects& fx);
  void handle(Ran m, double now, Effects& fx);
  std::string waits_for() const override;

 private:
  struct Key {  // of a micro-batch on a chunk
    std::int32_t chunk = 0;
    std::int64_t batch = 0;
    std::int32_t micro_batch = 0;

    bool operator<(const Key& other) const {  // any order will do; this one inlines
      if (batch != other.batch) {
        return batch < other.batch;
      }
      return chunk != other.chunk ? chunk < other.chunk : micro_batch < other.micro_batch;
    }
  };

  struct Kept {        // from forward to backward
    Weights weights;   // what the forward read, where the backward will want it
    Weights borrowed;  // the forward's slices of tied parameters, which the backward uses too
    Stash stash;       // fifo, overwrite
    Bundle input;      // recompute
    Tensor labels;     // recompute, head
    std::int64_t first_sample = 0;
  };

  /// Weights in hand, for the actions that share a view. Part 0 is the chunk's own, part i + 1 its
  /// borrowed slice i.
  struct Held {
    View view;
    Weights weights;
  };

  struct Question {  // an open Pull
    std::int32_t chunk = 0;
    std::size_t part = 0;
    View view;
    std::uint64_t request = 0;
  };

  struct OpenRead {
    View forward;
    std::int64_t forward_version = 0;
    std::int64_t natural = 0;  // of the forward
    double time = 0;
  };

  struct Accumulation {  // of one chunk's mini-batch
    std::vector<Tensor> gradient;
    std::vector<Read> reads;
    double read_time = 0;
  };

  void advance(double now, Effects& fx);
  Want want(const Action& a) const;
  void tell_wait(double now, Effects& fx);
  bool start(const Action& a, double now, Effects& fx);  // false: something is missing
  const Weights* weights_for(std::int32_t chunk, std::size_t part, const View& view, Effects& fx);
  void ask(std::int32_t chunk, std::size_t part, const View& view, Effects& fx);
  void ask_ahead(const Action& a, Effects& fx);
  void pull(const Question& question, bool pinned, Effects& fx);
  View borrowed_view(const Action& a, std::size_t borrowed) const;
  void run_forward(const Action& a, Effects& fx);
  bool start_backward(const Action& a, Effects& fx);
  void run_weight_gradient(const Action& a, Effects& fx);
  void push(const Action& a, Effects& fx);
  void finish_forward(const Action& a, Outputs out, Effects& fx);
  void finish_input_gradient(const Action& a, Bundle dx, Effects& fx);
  void finish_weight_gradient(const Action& a, Outputs out);
  void note_finished(Effects& fx);
  void tell_stashes(Effects& fx);
  void mark(double now, Effects& fx);
  void conclude(Effects& fx);
  const std::vector<Tensor>& buffers_at(std::int32_t chunk, std::int64_t step) const;

  bool fused(const Action& a) const { return a.act == Act::backward; }

  bool is_head(std::int32_t chunk) const {
    return chunk + 1 == static_cast<std::int32_t>(c_.chunks.size());
  }

  const Chunk& chunk(std::int32_t index) const {
    return *c_.chunks[static_cast<std::size_t>(index)];
  }

  Ref<StageRole> stage_of(std::int32_t index) const {
    return c_.stage_of[static_cast<std::size_t>(index)];
  }

  Ref<ShardRole> shard_of(std::int32_t index) const {
    return c_.shard_of[static_cast<std::size_t>(index)];
  }

  Key key(const Action& a) const { return {a.chunk, a.batch, a.micro_batch}; }

  Key stash_key(const Action& a) const {
    return c_.keep == KeepActivations::overwrite ? Key{a.chunk, 0, 0} : key(a);
  }

  Run job(const Action& a, Work work) const;
  std::int64_t first_sample(const Action& a, std::int64_t rows) const;

  Config c_;
  std::uint64_t pc_ = 0;
  bool running_ = false;
  std::optional<std::int64_t> end_;
  bool finished_ = false;
  std::int64_t updates_ = 0;  // over all chunks of this stage
  std::int64_t chunks_here_ = 0;

  std::map<Key, Bundle> inputs_;
  std::map<Key, Bundle> errors_;
  std::map<Key, Tensor> labels_;
  std::map<Key, Kept> kept_;
  std::map<Key, Stash> deltas_;  // from input gradient to weight gradient
  std::map<Key, OpenRead> open_reads_;
  std::map<std::int32_t, Accumulation> sums_;  // by chunk
  std::map<std::pair<std::int32_t, std::int64_t>, Weights>
      gap_weights_;  // (chunk, batch): what its forward read
  std::map<std::pair<std::int32_t, std::size_t>, Held> held_;  // by chunk and part
  Weights forward_weights_;                                    // of the forward that runs
  std::optional<View> backward_view_;  // of the backward that runs; empty: that of its forward
  std::int64_t backward_version_ = 0;

  std::vector<Question> pulling_;  // at most one a chunk and part
  std::uint64_t request_ = 0;      // of the last Pull
  std::uint64_t pushes_ = 0;
  std::int64_t stashes_max_ = 0;
  bool told_ = false;  // the recorder how many

  struct Wait {
    Want want = Want::data;
    double since = 0;
  };

  std::optional<Wait> wait_;  // where its next action lacks something

  std::map<std::int32_t, std::vector<Tensor>> buffers_;  // by chunk
  std::map<std::pair<std::int32_t, std::int64_t>, std::vector<Tensor>>
      mark_buffers_;  // (chunk, step): as they were after the forwards before that step
  std::map<std::int32_t, std::int64_t> forwards_done_;  // by chunk: mini-batches
  std::optional<std::int64_t> conclude_at_;

  struct MarkWeights {
    std::int64_t step = -1;
    Weights weights;  // the parts that have come
  };

  std::deque<MarkBatch> marks_;
  std::map<std::int32_t, MarkWeights> mark_weights_;  // by chunk
  std::optional<Question> mark_question_;
  bool mark_running_ = false;
};

}  // namespace troupe
