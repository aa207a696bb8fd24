// Admits the mini-batches of its data, a bounded number ahead of the first stage, and the batches
// of evaluations. Where a run ends is decided here, at admission; what was admitted finishes.
//
//   source --Activation--> first stage --Credit--> source     source --Labels--> head
//   (where modules wait for no later one: head --Credit--> source, and Labels to every stage; where they
//   wait for none at all: every stage --Credit--> source --Activation--> predictors of inputs)
//   (where modules draw their inputs from buffers: labels go to the first stage alone and travel on from there)
//   source --End{N}--> everyone
//   source --MarkBatch--> first stage ... head --MarkResult--> source --MarkDone--> director
//   director --MarkDue--> source --Halt--> director            (replicas with servers)
//   source --Release--> stages        (where its replica's own weights have been evaluated)
//
// Where modules draw their inputs from buffers, one may be in front of what was admitted. A run of such that ends early
// ends with the mini-batch that the foremost stage has begun (actors/pipeline/stage/drawn_inputs.hpp):
//
//   source --Halt--> every stage --Halted--> source --End{N}--> everyone
//
// Where replicas share servers, those decide where the run ends and what is evaluated.
//
// Invariants: micro-batches leave in order; at most `prefetch` are under way to the stage that gives
// credit and `kMarksInFlight` batches of one Mark to the head; End is sent once, a second time only to bring
// the end forward, and nothing of mini-batch N or later is ever admitted.
#pragma once

#include "messages/evaluation.hpp"
#include "messages/pipeline.hpp"
#include "messages/results.hpp"
#include "messages/returns.hpp"
#include "runtime/data/dataset.hpp"
#include "runtime/schemes/evaluation.hpp"
#include "runtime/system/machine.hpp"

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <utility>

namespace troupe {

class Source final : public Actor<Source, SourceRole> {
 public:
  struct Config {
    std::int32_t replica = 0;
    std::int32_t replicas = 1;  // mini-batch b is number passed + b replicas + replica of the data
    std::int64_t passed = 0;    // mini-batches of the data before this run's first
    bool served = false;        // servers decide where the run ends and what is evaluated
    std::vector<std::int64_t> samples{};  // of the training data, where not all are its own
    std::shared_ptr<const Dataset> data;
    BatchSizes sizes;                // samples of each mini-batch; micro_batches divides them
    std::int32_t micro_batches = 1;  // M
    std::uint64_t seed = 1;
    std::shared_ptr<Shuffles> shuffles{};  // of all samples; where replicas share it, else empty
    std::int32_t prefetch = 4;             // micro-batches under way to the stage that gives credit
    std::int64_t batches = 0;              // N where it is known from the start, else 0
    double seconds = 0;                    // of the clock; not above 0: no limit
    EvaluationPlan evaluation;             // on its own account, in between
    std::int64_t delay_max = 0;  // mini-batches that must be admitted beyond a step for it to come
    bool evaluate = false;       // at the end
    /// By part of the first section: its copies, which take turns with the micro-batches. Likewise of the last section, which
    /// has the chunks from `head_chunk` on.
    std::vector<std::vector<Ref<StageRole>>> first;
    std::vector<std::vector<Ref<StageRole>>> heads;
    std::int32_t head_chunk = 0;
    std::int32_t credit_chunk = 0;  // whose stage gives credit
    /// By chunk but the first: predictors of inputs, which get the data, too. Then every chunk gives
    /// credit, and the slowest one decides what is admitted, or the fastest.
    std::vector<Ref<PredictorRole>> input_predictors{};
    bool by_slowest = true;
    /// Modules draw their inputs from buffers: the head gets no labels from here.
    bool buffered = false;
    /// By chunk: stages that get the labels too, where modules make error signals of them.
    std::vector<Ref<LearnerRole>> labelled{};
    std::vector<Ref<StageRole>> stages;
    std::vector<Ref<ShardRole>> shards;
    Ref<DirectorRole> director;
  };

  explicit Source(Config config);

  void handle(Start, double now, Effects& fx);
  void handle(Rejoin m, double now, Effects& fx);
  void handle(Credit m, double now, Effects& fx);
  void handle(MarkResult m, double now, Effects& fx);
  void handle(MarkDue m, double now, Effects& fx);
  void handle(Halt, double now, Effects& fx);
  void handle(Halted m, double now, Effects& fx);
  void handle(Ran<GatheredBatch> m, double now, Effects& fx);
  void archive(Archive& a) override;
  std::string waits_for() const override;

  /// Mini-batches that it has admitted, some of the last one's micro-batches at least.
  std::int64_t admitted() const { return (next_ + c_.micro_batches - 1) / c_.micro_batches; }

  /// How many of the data's mini-batches lie before and at the last one that it has admitted.
  std::int64_t passed() const;

 private:
  struct DueMark {
    std::int64_t step = 0;
    bool own = false;  // as MarkDue::own

    bool operator==(const DueMark&) const = default;
  };

  struct Mark {
    DueMark due;
    std::int64_t next = 0;                                              // batch to gather
    std::map<std::pair<std::int64_t, std::int64_t>, Tensor> results{};  // by batch and part
  };

  void admit(double now, Effects& fx);
  std::int64_t place(std::int64_t batch) const;  // of a mini-batch in the order of the data
  void end(std::int64_t batches, Effects& fx);
  void halt_stages(Effects& fx);
  void end_where_stages_stand(Effects& fx);
  void due(DueMark mark);
  void mark(Effects& fx);
  void send_mark_batch(GatheredBatch made, Effects& fx) const;

  std::int64_t parts() const { return std::ssize(c_.heads); }

  void gather_samples(std::int64_t batch, std::int32_t part, Effects& fx);
  std::int64_t taken() const;
  void conclude_mark(Effects& fx);
  std::int64_t mark_batch() const;  // samples
  std::int64_t mark_batches() const;

  Config c_;
  BatchOrder order_;
  // Mini-batch of the replica that its mini-batch 0 is: > 0 where it came back
  std::int64_t first_ = 0;
  std::int64_t next_ = 0;  // micro-batch to admit, counted through
  std::int32_t credits_;
  std::vector<std::int64_t> taken_;  // micro-batches, by chunk that gives credit
  bool gathering_ = false;
  bool halted_ = false;
  bool stages_halted_ = false;  // where modules draw from buffers
  /// Mini-batches, by a chunk of each stage that has halted.
  std::map<std::int32_t, std::int64_t> begun_;
  std::optional<std::int64_t> end_;
  std::deque<DueMark> due_;  // Marks to come
  std::optional<Mark> mark_;
  bool mark_gathering_ = false;
};

}  // namespace troupe
