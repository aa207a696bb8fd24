// An Upstream is the part of a replica's shard that speaks with the servers above, which keep what all replicas share, one
// server a slice. What it sends, when, and what becomes of an answer depend on the kind of its Link
// (runtime/schemes/exchanges/link.hpp). There is a derived class for each kind:
//
//   CachedWeights  each step is an answer of the servers                                       (cached_weights.hpp)
//   LocalSteps     the replica makes its own steps; at times an answer takes a step's place    (local_steps.hpp)
//   Streaming      the same; slices are sent in turn, and answers are merged some steps later  (streaming.hpp)
//
//   shard --Upload, PinnedPull--> server --Answer--> shard
//
// Invariants: of a slice, one Upload at most waits for its answer; an answer is used once; each mini-batch is in exactly
// one push.
#pragma once

#include "actors/exchange/exchange.hpp"
#include "actors/exchange/line.hpp"
#include "actors/exchange/pinned_fetch.hpp"
#include "runtime/schemes/codecs/codec.hpp"
#include "runtime/schemes/exchanges/link.hpp"
#include "runtime/schemes/optimizers/chunk_optimizer.hpp"

#include <map>
#include <memory>
#include <optional>
#include <vector>

namespace troupe {

class Upstream : public Exchange {
 public:
  struct Config {
    Ref<ShardRole> self;
    std::int32_t replica = 0;
    std::int32_t chunk = 0;
    ChunkOptimizer rule;  // says the learning rates
    Link link;
    std::vector<Ref<ServerRole>> servers;      // by slice
    std::vector<Ref<ServerRole>> evaluated{};  // by slice: for evaluations; empty: `servers`
    bool encodes = false;  // the optimizer's job makes a codec's messages of what is sent
    std::vector<std::shared_ptr<const Codec>>
        down{};               // by slice: the codec of answers; empty: none
    bool down_whole = false;  // ... of the whole weights, not of how they have changed
    /// StreamingLink: by slice, mini-batches from the beginning of a period to its push; empty: evenly spread.
    std::vector<std::int64_t> turns{};
  };

  void join(ExchangeHost& host, const Weights& initial) override;
  double planned_rate(std::int64_t step) const final;

  bool ready(std::int64_t batch) const override;
  void applied(Applied&& made, double now, Effects& fx) final;
  /// Asks the servers for their weights, which become step 0.
  void rejoin(std::int64_t batch, Effects& fx) final;
  bool fetch_pinned(const Pull& pull, Effects& fx) final;
  void answered(Answer m, double now, Effects& fx) final;
  void job_done(Computed m, double now, Effects& fx) final;
  void archive(Archive& a) override;
  std::string waits_for() const final;

 protected:
  explicit Upstream(Config config);

  const Config& config() const { return c_; }

  const Link& link() const { return c_.link; }

  std::size_t slices() const { return lines_.size(); }

  Line& line(std::size_t slice) { return lines_[slice]; }

  const Line& line(std::size_t slice) const { return lines_[slice]; }

  /// Mini-batches of this shard, with the one under way.
  std::int64_t mini_batch_count() const { return host().step() + 1; }

  /// The replica's mini-batches up to the n-th of this shard, which may have taken the place of one that was lost.
  std::int64_t of_replica(std::int64_t n) const { return first_batch_ + n; }

  // -- what depends on the kind of link ------------------------------------------------------------

  /// Whether slice `slice` is pushed after the first n mini-batches. By default once in each of the link's periods.
  virtual bool sends(std::size_t slice, std::int64_t n) const;

  /// Whether the next step waits for the servers' answers after the first n mini-batches.
  virtual bool waits(std::int64_t n) const = 0;

  /// Whether the servers' weights are asked for then, without waiting for them before the next such question.
  virtual bool fetches(std::int64_t /*n*/) const { return false; }

  /// The tensors that are pushed of a slice. `made`: the replica's next weights. `parts`: what the optimizer's job has made,
  /// which has them by default.
  virtual std::vector<Tensor> outgoing_values(std::size_t slice,
                                              const StepWeights& made,
                                              Applied& parts,
                                              bool waits);

  /// Completes the Upload of a slice after n mini-batches. Where its contribution has no values, it only asks for weights.
  virtual void complete_upload(Upload& /*m*/, std::int64_t /*n*/, double /*now*/) {}

  /// The learning rate that goes with a push.
  virtual double rate_sent() const { return rate(host().step()); }

  /// An answer has come, which has not come before.
  virtual void answer_came(std::size_t /*slice*/, double /*now*/) {}

  /// The job of mini-batch n merges an answer into its weights (inbound()).
  virtual void answer_merged(std::size_t /*slice*/, const Answer& /*answer*/, std::int64_t /*n*/) {}

  /// An answer that was waited for has taken its place in the next step. Moments may be moved out of it.
  virtual void took_over(std::size_t /*slice*/, Answer& /*answer*/) {}

  // -- what the derived classes make prepare() of --------------------------------------------------

  /// Notes which of the servers' versions the mini-batch under way has read. Returns the oldest one's learning rate.
  double note_reads();

  /// Notes the factor of gradient clipping, which the server applies to a gradient that is sent as it is. What the
  /// optimizer makes has been clipped already.
  void note_clipping(double factor);

  /// What the optimizer is asked to make for the servers. `made`: whether Applied::outgoing is needed.
  Outbound outbound(std::int64_t n, bool made);

  /// The answers that mini-batch n merges; `late`: also those that were due earlier.
  Inbound inbound(std::int64_t n, bool late);

  /// The weights of the answer that has come for a slice. The shard has made n mini-batches.
  Tensor take_answer(std::size_t slice, std::int64_t n);

  /// The optimizer's job of the mini-batch is done: sends what is due and installs the next weights, now or with the
  /// answers. `made`: the replica's own next weights; empty where only answers make them. `parts`: what is to be sent.
  void finish_mini_batch(StepWeights made, Applied parts, double now, Effects& fx);

 private:
  void install(StepWeights made, double now, Effects& fx);
  void follow_run(std::size_t slice, const Answer& answer, std::int64_t n);
  void upload(std::size_t slice, std::vector<Tensor> values, bool wait, double now, Effects& fx);
  void contribute(Upload& m, std::vector<Tensor> values, std::int64_t n);
  void merge(double now, Effects& fx);
  void take_over(std::size_t slice, StepWeights& made);

  Config c_;
  PinnedFetch pinned_;
  std::vector<Line> lines_;                                     // by slice
  std::vector<std::int64_t> sizes_;                             // by slice: elements
  std::map<std::int64_t, std::vector<Merged>> merged_by_step_;  // by step, then by slice
  std::optional<StepWeights> next_;       // the next weights, which wait for answers
  std::optional<StepWeights> following_;  // the next weights, whose predictions are being made
  double clip_factor_ = 1;                // of the mini-batch under way
  std::int64_t first_batch_ = 0;          // the replica's mini-batches before those of this shard
  std::int64_t run_ahead_ = 0;  // Link::run_rate: how many steps the run is ahead of the replica
  std::vector<Residual> residuals_;  // by slice: what the replica has yet to send
  std::vector<LinkState> links_;     // by slice: the codec's state; empty without one
};

/// Makes the class for the kind of config.link.
std::unique_ptr<Upstream> make_upstream(Upstream::Config config);

}  // namespace troupe
