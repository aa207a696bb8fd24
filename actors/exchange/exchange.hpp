// What stands between a replica's shard and the other replicas. The shard keeps steps, takes pushes
// in order and answers pulls; its Exchange says what else a push sets in motion, and when the next
// weights are decided. There is one Exchange for each shard, on the shard's thread, with state and
// messages of its own:
//
//   Alone         one replica: a step is what the optimizer makes
//   Reduction     the gradient is summed over the replicas first
//   GroupReduction  ... by all replicas' GPUs at the same time
//   Upstream      servers above hold what all replicas share
//   SharedBuffer  all replicas write to one buffer
//   PeerExchange  the same chunk's shards of the replicas talk to one another (peers.hpp)
//
// The life of a push:
//
//   shard: ready()? -> sum() where sums() -> clipping -> prepare() -> optimizer -> applied()
//   exchange: host.summed() after sum(); host.install() once the next weights are decided
//
// A new exchange is a class like these; one without servers is a PeerExchange, and a factory
// (runtime/schemes/exchanges/exchange.hpp).
#pragma once

#include "messages/optimizer.hpp"
#include "messages/peers.hpp"
#include "messages/returns.hpp"
#include "messages/servers.hpp"
#include "messages/weights.hpp"
#include "runtime/schemes/optimizers/rate_factor.hpp"
#include "runtime/system/machine.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace troupe {

/// The weights of one step of a chunk, and each prediction of them that somebody will ask for.
struct StepWeights {
  Weights base;
  std::vector<Weights> predictions{};
};

/// What an Exchange may ask of its shard, which outlives it.
class ExchangeHost {
 public:
  virtual ~ExchangeHost() = default;

  /// The newest step, and the push that is on its way to the next one.
  virtual std::int64_t step() const = 0;
  virtual const Push& push() const = 0;

  /// The sum that sum() was asked for, by slice.
  virtual void summed(std::vector<Tensor> gradient, double now, Effects& fx) = 0;
  /// `made` are the weights of the next step: the push has been dealt with.
  virtual void install(StepWeights made, double now, Effects& fx) = 0;
  /// What kept ready() from saying yes may be gone.
  virtual void look_again(double now, Effects& fx) = 0;
  /// The weights that an evaluation at `step` of the run reads.
  virtual void pin(std::int64_t step, Weights weights, Effects& fx) = 0;
  virtual void reply(const Pull& pull, Weights weights, Effects& fx) = 0;
};

class Exchange {
 public:
  /// What stands on a slice of a step.
  struct Label {
    std::int64_t version = 0;
    double rate = 0;  // of the update that follows
  };

  /// What does not change while it plays.
  struct Facts {
    bool pins_steps = true;         // the run is evaluated at steps of this shard, which pins them
    bool gradient_travels = false;  // it leaves the replica itself, so that clipping comes before
  };

  Exchange() = default;

  explicit Exchange(const Facts& facts) : facts_(facts) {}

  virtual ~Exchange() = default;

  const Facts& facts() const { return facts_; }

  /// Whether the shard's weights are a part of the network.
  virtual bool of_network() const { return true; }

  /// Called once, before anything else. `initial`: the weights of step 0, without their labels.
  virtual void join(ExchangeHost& host, const Weights& initial);

  // -- facts ---------------------------------------------------------------------------------------

  /// The learning rate of the update that follows the replica's own step `step`, as the experiment has
  /// it.
  virtual double planned_rate(std::int64_t step) const = 0;

  /// The same, times what the run has been told since (ScaleRate).
  double rate(std::int64_t step) const { return rate_factor_.value() * planned_rate(step); }

  /// Of the newest step.
  virtual Label label(std::size_t slice) const;

  // -- a push --------------------------------------------------------------------------------------

  /// From the next push that is taken the rate is `factor` times the planned one; bounds:
  /// RateFactor.
  void scale_rate(double factor) { rate_factor_.ask(factor); }

  /// A push has been taken.
  void begin() { rate_factor_.begin(); }

  /// Whether the push of mini-batch `batch` may be taken now.
  virtual bool ready(std::int64_t /*batch*/) const { return true; }

  /// Whether gradients are summed over the replicas before clipping, by sum(); host.summed() follows.
  virtual bool sums() const { return false; }

  virtual void sum(std::vector<Tensor> /*gradient*/, TiedGradients /*tied*/, Effects& /*fx*/) {
    unexpected("to sum gradients");
  }

  /// Adds to the optimizer's job what this exchange wants of it, rates included; the base, but for slices
  /// that it puts there itself, and the reaches are the shard's to fill in. False: the push goes on
  /// without a job, and `apply` has been taken apart.
  virtual bool prepare(Apply& apply, double now, Effects& fx);
  /// The job has been done. Ends with host.install(), now or later.
  virtual void applied(Applied&& made, double now, Effects& fx) = 0;

  /// The replica has come back and begins with its mini-batch `batch`: gets the weights of step 0, which
  /// host.install() takes. ContractError by default: nobody has them.
  virtual void rejoin(std::int64_t /*batch*/, Effects& /*fx*/) {
    unexpected("a replica that comes back");
  }

  // -- evaluations and the end ---------------------------------------------------------------------

  /// Answers a pinned pull from elsewhere, now or later. False: the shard's own pins answer it.
  virtual bool fetch_pinned(const Pull& /*pull*/, Effects& /*fx*/) { return false; }

  /// Makes weights for `step` that the shard has not pinned; they come by host.pin().
  virtual void make_pin(std::int64_t /*step*/, Effects& /*fx*/) {}

  /// There is no evaluation at `step` of the run, which is due.
  virtual void passed_over(std::int64_t /*step*/) {}

  /// The replica's run has `batches` mini-batches.
  virtual void ended(std::int64_t /*batches*/, Effects& /*fx*/) {}

  /// Who is left of the replicas.
  virtual void membership(const Membership& /*m*/, double /*now*/, Effects& /*fx*/) {}

  // -- messages of its own: ContractError where the exchange does not expect them ------------------

  virtual void answered(Answer /*m*/, double /*now*/, Effects& /*fx*/) {
    unexpected("an answer of a server");
  }

  virtual void came(GradientPart /*m*/, double /*now*/, Effects& /*fx*/) {
    unexpected("a part of a gradient");
  }

  virtual void came(GroupTurn /*m*/, Effects& /*fx*/) { unexpected("a turn of a sum"); }

  virtual void came(Note /*m*/, double /*now*/, Effects& /*fx*/) {
    unexpected("a note of another replica");
  }

  /// A job of its own (shard_jobs.hpp) has made this.
  virtual void job_done(Computed /*m*/, double /*now*/, Effects& /*fx*/) {
    unexpected("results of a job of its own");
  }

  /// The newest weights where it has them, too: the shard's own may be in the optimizer's hands while it
  /// waits for others.
  virtual Weights newest() const { return {}; }

  /// What it keeps, for checkpoints; one that keeps something of its own calls this first.
  virtual void archive(Archive& a);

  /// What it waits for, as Machine::waits_for(); "" where it is not its turn.
  virtual std::string waits_for() const { return ""; }

 protected:
  /// ContractError: the exchange has no use for `what`.
  [[noreturn]] static void unexpected(const char* what);

  ExchangeHost& host() const { return *host_; }

 private:
  Facts facts_{};
  ExchangeHost* host_ = nullptr;
  RateFactor rate_factor_;
};

/// The record of the push that the host has under way, once it has been applied at `applied_to`.
AppliedRecord record_of(const Push& push, const Applied& made, std::int64_t applied_to, double now);

}  // namespace troupe
