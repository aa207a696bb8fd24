// Servers above hold what all replicas share, one a slice. This class sends to them and takes their answers;
// what travels, when, and what an answer does depend on the kind of the Link (runtime/schemes/exchanges/link.hpp), each of
// which is a class below this one:
//
//   CachedWeights  each step is an answer of the servers                        (cached_weights.hpp)
//   LocalSteps     own steps; now and then an answer takes their place          (local_steps.hpp)
//   Streaming      own steps; slices in turn, answers are worked in later       (streaming.hpp)
//
//   shard --Upload, PinnedPull--> server --Answer--> shard
//
// Invariants: one Upload of a slice is out at a time; an answer is worked in once; what is sent stands
// for each mini-batch exactly once.
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
    ChunkOptimizer rule;
    Link link;
    std::vector<Ref<ServerRole>> servers;      // by slice
    std::vector<Ref<ServerRole>> evaluated{};  // by slice: who pins; empty: `servers`
    bool encodes = false;  // what travels goes through a codec, which is the optimizer's
    std::vector<std::shared_ptr<const Codec>>
        down{};               // by slice: what answers come through; or none
    bool down_whole = false;  // ... and of whole weights
    std::vector<std::int64_t>
        turns{};  // StreamingLink: by slice, mini-batches into a period; or none
  };

  void join(ExchangeHost& host, const Weights& initial) override;
  double planned_rate(std::int64_t step) const final;

  bool ready(std::int64_t batch) const override;
  void applied(Applied&& made, double now, Effects& fx) final;
  /// Asks as after a mini-batch, but nothing was made: the answers are step 0.
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

  /// Of this shard, with the one under way.
  std::int64_t mini_batches() const { return host().step() + 1; }

  /// Its n-th mini-batch in the replica's count, which goes on where one that was there before left off.
  std::int64_t of_replica(std::int64_t n) const { return first_ + n; }

  // -- what a kind of link says --------------------------------------------------------------------

  /// Whether slice `slice` is sent after the first n mini-batches. By default at the link's period.
  virtual bool sends(std::size_t slice, std::int64_t n) const;

  /// Whether the next step waits for the servers' answers after the first n mini-batches.
  virtual bool waits(std::int64_t n) const = 0;

  /// Whether a question goes to them then that nobody waits for before the next is due.
  virtual bool asks(std::int64_t /*n*/) const { return false; }

  /// What travels of a slice when the mini-batch's own work is done: `made` are the replica's next weights,
  /// `parts` what the optimizer was asked for. By default what it made to be sent.
  virtual std::vector<Tensor> values_of(std::size_t slice,
                                        const StepWeights& made,
                                        Applied& parts,
                                        bool waits);

  /// Adds to a slice's Upload after n mini-batches, which is a question alone where its contribution has no values.
  virtual void describe(Upload& /*m*/, std::int64_t /*n*/, double /*now*/) {}

  /// The learning rate of what is sent.
  virtual double rate_sent() const { return rate(host().step()); }

  /// The first answer to a question has come.
  virtual void first_came(std::size_t /*slice*/, double /*now*/) {}

  /// An answer has been worked into the weights of mini-batch n (inbound()).
  virtual void worked_in(std::size_t /*slice*/, const Answer& /*answer*/, std::int64_t /*n*/) {}

  /// An answer that was waited for has taken its place in the next step; its moments are there to take.
  virtual void took_over(std::size_t /*slice*/, Answer& /*answer*/) {}

  // -- what their prepare() is made of -------------------------------------------------------------

  /// What the mini-batch under way had read of the servers' versions. Returns the learning rate of the oldest.
  double note_reads();

  /// Clipping of what is sent as it is; elsewhere it is in what the optimizer makes.
  void note_clipping(double factor);

  /// What the optimizer is asked to make; `made`: something.
  Outbound outbound(std::int64_t n, bool made);

  /// What has come and is worked in with mini-batch n; `late`: also what was due before.
  Inbound inbound(std::int64_t n, bool late);

  /// The weights of an answer that has come, which the replica takes as they are after n of its mini-batches.
  Tensor take_answer(std::size_t slice, std::int64_t n);

  /// The mini-batch's own work is done: `made` are the replica's next weights (empty where only an
  /// answer makes them), `parts` has what is to be sent, by slice.
  void travel(StepWeights made, Applied parts, double now, Effects& fx);

 private:
  void install(StepWeights made, double now, Effects& fx);
  void follow_run(std::size_t slice, const Answer& answer, std::int64_t n);
  void upload(std::size_t slice, std::vector<Tensor> values, bool wait, double now, Effects& fx);
  void contribute(Upload& m, std::vector<Tensor> values, std::int64_t n);
  void merge(double now, Effects& fx);
  void take_over(std::size_t slice, StepWeights& made);

  Config c_;
  PinnedFetch pinned_;
  std::vector<Line> lines_;                           // by slice
  std::vector<std::int64_t> sizes_;                   // by slice: numbers
  std::map<std::int64_t, std::vector<Merged>> seen_;  // by step, by slice: in its weights
  std::optional<StepWeights> next_;                   // made, and waits for answers
  std::optional<StepWeights> following_;              // made, and waits for its predictions
  double factor_ = 1;                                 // clipping, of the push that is applied
  std::int64_t first_ = 0;                            // mini-batches before those of this shard
  std::int64_t ahead_ = 0;           // Link::run_rate: steps of the run beyond the replica's own
  std::vector<Residual> residuals_;  // by slice: what was not sent yet
  std::vector<LinkState> links_;     // by slice, of the codec; else empty
};

/// Of the kind that the link is of.
std::unique_ptr<Upstream> make_upstream(Upstream::Config config);

}  // namespace troupe
