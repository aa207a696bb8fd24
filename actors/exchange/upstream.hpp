// Servers above hold what all replicas share, one a slice. The Link says what travels and when;
// where it fetches, the next step is the servers' answer.
//
//   shard --Upload, PinnedPull--> server --Answer--> shard
//   shard --Follow--> optimizer --Followed--> shard      (predictions move with weights that come)
//
// Invariants: one Upload of a slice is out at a time; an answer is worked in once; what is sent stands
// for each mini-batch exactly once.
#pragma once

#include "actors/exchange/exchange.hpp"
#include "actors/exchange/line.hpp"
#include "actors/exchange/pinned_fetch.hpp"
#include "messages/optimizer.hpp"
#include "messages/servers.hpp"
#include "messages/weights.hpp"
#include "runtime/schemes/chunk_optimizer.hpp"
#include "runtime/schemes/codec.hpp"
#include "runtime/schemes/link.hpp"

#include <map>
#include <memory>
#include <optional>
#include <vector>

namespace troupe {

class Upstream final : public Exchange {
 public:
  struct Config {
    Ref<ShardRole> self;
    std::int32_t replica = 0;
    std::int32_t chunk = 0;
    Ref<OptimizerRole> optimizer;
    ChunkOptimizer rule;
    Link link;
    std::vector<Ref<ServerRole>> servers;      // by slice
    std::vector<Ref<ServerRole>> evaluated{};  // by slice: who pins; empty: `servers`
    bool tied = false;     // other chunks have shares of the gradient, which the optimizer adds
    bool encodes = false;  // what travels goes through a codec, which is the optimizer's
    std::vector<std::shared_ptr<const Codec>>
        down{};               // by slice: what answers come through; or none
    bool down_whole = false;  // ... and of whole weights
    std::vector<std::int64_t>
        turns{};  // Link::streams: by slice, mini-batches into a period; or none
  };

  explicit Upstream(Config config);

  void join(ExchangeHost& host, const Weights& initial) override;
  double planned_rate(std::int64_t step) const override;
  Label label(std::size_t slice) const override;
  bool gradient_travels() const override;

  bool pins_steps() const override { return false; }

  bool ready(std::int64_t batch) const override;
  bool prepare(Apply& apply, double now, Effects& fx) override;
  void applied(Applied made, double now, Effects& fx) override;
  void installed() override;
  void rejoin(std::int64_t batch, Effects& fx) override;
  bool fetch_pinned(const Pull& pull, Effects& fx) override;
  void answered(Answer m, double now, Effects& fx) override;
  void did(Followed m, double now, Effects& fx) override;
  void archive(Archive& a) override;
  std::string waits_for() const override;

 private:
  /// Of this shard, with the one under way.
  std::int64_t mini_batches() const { return host().step() + 1; }

  /// Its n-th mini-batch in the replica's count, which goes on where one that was there before left off.
  std::int64_t of_replica(std::int64_t n) const { return first_ + n; }

  std::int64_t turn_of(std::size_t slice) const;
  bool sends(std::size_t slice, std::int64_t n) const;
  bool waits_for_fetch(std::int64_t n) const;
  bool asks(std::int64_t n) const;
  Weights fetched(std::int64_t n);
  Outbound outbound(std::int64_t n);
  Inbound inbound(std::int64_t n);
  void note_reads(const Push& push);
  void follow_run(std::size_t slice, const Answer& answer, std::int64_t n);
  void travel(StepWeights made, Applied parts, double now, Effects& fx);
  void upload(std::size_t slice, std::vector<Tensor> values, bool wait, double now, Effects& fx);
  void merge(double now, Effects& fx);
  void work_in(std::size_t slice, StepWeights& made);
  void follow(Weights own, std::vector<Weights> predicted, Effects& fx);

  Config c_;
  PinnedFetch pinned_;
  std::vector<Line> lines_;                           // by slice
  std::vector<Pace> paces_;                           // by slice: Link::never_waits
  std::vector<std::int64_t> sizes_;                   // by slice: numbers
  std::map<std::int64_t, std::vector<Merged>> seen_;  // by step, by slice: in its weights
  std::optional<StepWeights> next_;                   // made, and waits for answers
  std::optional<StepWeights> following_;              // made, and waits for its predictions
  double seen_rate_ = 0;                              // of the weights that this push had read
  double factor_ = 1;                                 // clipping, of the push that is applied
  std::int64_t first_ = 0;                            // mini-batches before those of this shard
  std::int64_t ahead_ = 0;           // Link::run_rate: steps of the run beyond the replica's own
  std::int64_t period_ = 0;          // of the Link, or what the server said last
  std::vector<Residual> residuals_;  // by slice: what was not sent yet
  std::vector<LinkState> links_;     // by slice, of the codec; else empty
  std::vector<std::vector<Tensor>> moments_;  // merged ones, for the next Apply
  bool reset_moments_ = false;                // in the next Apply
};

}  // namespace troupe
