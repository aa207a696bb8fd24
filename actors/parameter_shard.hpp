// Keeps the weights of one chunk by step, answers pulls, and sees to it that each push is applied
// once, in order. Light: all arithmetic is the Optimizer's.
//
//   stage --Pull--> shard --PullReply--> stage
//   stage --Push--> shard --Apply--> optimizer --Applied--> shard
//   stage of another chunk --TiedPush--> shard                    (parameters that chunks share)
//   shard --Norms--> shard of chunk 0 --Decide--> every shard     (clipping by the global norm)
//   director --Release--> shard --Concluded--> director
//   shard --GradientPart--> shard of another replica                      (gradients summed without a server)
//   shard --Upload, PinnedPull--> server --Answer--> shard        (replicas with servers: its Link)
//
// With a Link the shard is this replica's view of what all share: after a push it sends what the Link
// says, and where the Link fetches, the next step is the servers' answer. The stage never knows.
//
// Under hogwild all replicas' optimizers write to one buffer: a step's weights are a copy of it, their
// version is its count of updates, and an evaluation reads a fresh copy. There the shard also tells
// the director how far the buffer has come and when its own replica has finished:
//
//   shard --MarkDue, Finished--> director
//
// Invariants: the step grows by exactly 1 with each push; a push is counted once, whatever
// arrives twice; at most one Apply of a gradient is out, and one that reads; a pull is answered with
// exactly the step and the reach that it names; evaluation steps are pinned until released.
#pragma once

#include "actors/gradient_sum.hpp"
#include "runtime/model/chunk.hpp"
#include "runtime/schemes/chunk_optimizer.hpp"
#include "runtime/schemes/link.hpp"
#include "runtime/schemes/view.hpp"
#include "runtime/system/machine.hpp"

#include <deque>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

namespace troupe {

class ParameterShard final : public Actor<ParameterShard, ShardRole> {
 public:
  struct Config {
    Ref<ShardRole> self;
    std::int32_t chunk = 0;
    Ref<OptimizerRole> optimizer;
    ChunkOptimizer rule;
    ViewPlan plan;
    double clip_norm = 0;  // 0: none
    bool clip_globally =
        false;  // by the norm over all chunks, decided at chunk 0's shard; else by this shard's own
    std::vector<Ref<ShardRole>> shards;  // by chunk
    std::int64_t evaluate_every = 0;     // steps pinned in between; 0: none
    Ref<DirectorRole> director;
    std::vector<Tensor> initial;  // slices
    std::size_t tied = 0;         // TiedPushes that belong to each mini-batch
    std::int32_t replica = 0;
    std::optional<Link> link{};              // to the servers above
    std::vector<Ref<ServerRole>> servers{};  // by slice
    std::optional<Reduction> reduction{};    // steps are of the mean gradient of all replicas
    std::vector<Ref<ShardRole>> peers{};     // this chunk's, by replica
    bool shared = false;                     // hogwild
    std::int64_t updates = 0;                // ... of the run, by all replicas; 0: not known
  };

  explicit ParameterShard(Config config);

  void handle(Pull m, double now, Effects& fx);
  void handle(Push m, double now, Effects& fx);
  void handle(TiedPush m, double now, Effects& fx);
  void handle(Applied m, double now, Effects& fx);
  void handle(Norms m, double now, Effects& fx);
  void handle(Decide m, double now, Effects& fx);
  void handle(End m, double now, Effects& fx);
  void handle(Release m, double now, Effects& fx);
  void handle(Answer m, double now, Effects& fx);
  void handle(GradientPart m, double now, Effects& fx);
  std::string waits_for() const override;

 private:
  struct Kept {
    Weights base;
    std::vector<Weights> predictions;
  };

  struct Seen {  // of the servers, in the weights of a step
    std::int64_t version = 0;
    double rate = 0;
  };

  /// What is between this shard and the server of one slice.
  struct Line {
    std::uint64_t sequence = 0;      // of the last Upload
    bool awaited = false;            // its answer
    std::optional<Answer> answer{};  // that has come and is not worked in yet
    std::int64_t due = 0;            // streams: mini-batch after which it is worked in; 0: none
    Tensor since{};                  // what changes are counted from
    std::deque<std::pair<std::uint64_t, Tensor>> own{};  // eager: changes that no answer held yet
    std::int64_t pushed = 0;                             // mini-batches up to the last push
    std::int64_t read_version = -1;  // oldest of the mini-batches since; -1: none
    std::vector<Read> reads{};       // of the mini-batches since
    double read_time = 0;            // of the first of them
    Seen merged{};                   // the last answer worked in
    std::int64_t clock = 0;          // of it
  };

  struct PinnedRead {  // an open Pull of a Mark
    Pull pull;
    std::map<std::size_t, Slice> came{};  // by slice
  };

  bool answer(const Pull& pull, Effects& fx);
  bool answer_pinned(const Pull& pull, Effects& fx);
  void reply(const Pull& pull, Weights weights, Effects& fx);
  bool is_new(Ref<StageRole> from, std::uint64_t sequence);
  void serve(Effects& fx);
  void next(double now, Effects& fx);
  std::vector<std::pair<std::size_t, Tensor>> take_tied(std::int64_t batch);
  double rate(std::int64_t step) const;
  void decide(double now, Effects& fx);
  void apply(double gradient_scale, double now, Effects& fx);
  void install(Kept next, double now, Effects& fx);

  bool due(std::size_t slice, std::int64_t n) const;
  bool lacks_fragment() const;
  bool waits_for_fetch(std::int64_t n) const;
  bool clips_beforehand() const;
  void note_reads(const Push& push);
  void exchange(Kept next,
                std::vector<Tensor> outgoing,
                std::vector<std::vector<Tensor>> moments,
                double now,
                Effects& fx);
  void upload(
      std::size_t slice, Tensor values, std::vector<Tensor> moments, bool wait, Effects& fx);
  void merge(double now, Effects& fx);
  Inbound inbound(std::int64_t n);
  void follow_run(std::size_t slice, const Answer& answer, std::int64_t n);
  void pull_pinned(const Pull& pull, Effects& fx);
  void pinned_came(Answer m, Effects& fx);

  void read_shared(std::int64_t step, Effects& fx);
  void read_next(Effects& fx);
  void was_read(Applied m, Effects& fx);
  void came(std::int64_t updates, Effects& fx);
  void finish(Effects& fx);

  void pin(std::int64_t step);
  void conclude(Effects& fx);

  Config c_;
  std::int64_t step_ = 0;                 // newest; = version with one replica
  std::map<std::int64_t, Kept> kept_;     // by step: the newest plan.keep of them
  std::map<std::int64_t, Weights> pins_;  // by step
  std::deque<Pull> waiting_;
  std::deque<Push> queue_;
  std::map<std::int64_t, std::map<std::pair<std::size_t, std::int32_t>, Tensor>>
      tied_;  // by batch, by slice and sender's chunk
  std::optional<Push> applying_;
  std::optional<GradientSum> sum_;  // over the replicas
  std::int64_t version_ = 0;        // hogwild: the buffer's updates when the newest step was copied
  std::int64_t updates_ = 0;        // ... and after the last one of this replica
  std::set<std::int64_t> to_read_;  // ... steps that evaluations or the end ask for
  std::optional<std::int64_t> reading_;  // ... the one that is being read
  bool finished_ = false;                // ... the director knows
  std::map<ActorId, std::uint64_t> last_sequence_;
  std::optional<std::int64_t> end_;
  std::optional<std::int64_t> conclude_at_;
  std::vector<Line> lines_;                         // by slice; empty without a Link
  std::map<std::int64_t, std::vector<Seen>> seen_;  // by step, by slice
  std::optional<Kept> following_;                   // made, and waits for its predictions
  std::optional<Kept> next_;                        // made, and waits for answers
  double seen_rate_ = 0;                            // of the weights that this push had read
  double factor_ = 1;                               // clipping, of the push that is applied
  std::int64_t ahead_ = 0;   // Link::run_rate: steps of the run beyond the replica's own
  std::int64_t period_ = 0;  // of the Link, or what the server said last
  std::vector<std::vector<Tensor>> moments_;          // merged ones, for the next Apply
  bool reset_moments_ = false;                        // in the next Apply
  std::map<std::uint64_t, PinnedRead> pinned_reads_;  // by request
  std::uint64_t pinned_requests_ = 0;
  std::map<std::int64_t, std::map<std::int32_t, std::vector<double>>>
      norms_;  // chunk 0 only: by batch, by chunk
};

}  // namespace troupe
