// multi, dana_zero, dana_slim: a velocity for each replica. Hakimi et al. 2019, arXiv:1907.11612.
//
//   v_i' = gamma v_i + g;  w' = w - eta v_i';  sent: w (multi), or where all of them lead (dana_zero):
//   w' - S eta sum_j v_j     eta the server's: the update's own, and the next one's for the point
//   w' - S sum_j eta_j v_j   eta_j the sender's: of the weights that its last push was computed at
//
// S is how far a velocity leads until a gradient of the point sent arrives. In the paper each replica has one push to make
// until then, and S is gamma. In a pipeline whose chunk is d late it has d + 1, and S is gamma + ... + gamma^(d+1); with
// replicas.horizon=paper it is gamma there, too.
//
// The two sums differ when the rate changes. dana_slim pushes the change of the second one's point, and
// its server knows no velocity: a replica that dies leaves the step that it looked ahead in the weights,
// eta gamma v once, which nobody can take back. Nothing goes on predicting it.
#include "experiment/optimizer.pb.h"
#include "experiment/replicas.pb.h"
#include "kernels/check.hpp"
#include "kernels/wording.hpp"
#include "messages/archive.hpp"
#include "messages/experiment.hpp"
#include "messages/sections.hpp"
#include "runtime/schemes/optimizers/slim.hpp"
#include "runtime/schemes/policies/horizon.hpp"
#include "runtime/schemes/rules/parts.hpp"

#include <map>
#include <utility>

namespace troupe {
namespace {

/// Updates after which the sum is made anew, so that rounding does not pile up: 1e-7 an update.
constexpr std::int64_t kRebuildEvery = 1000;

class PerReplica final : public Step {
 public:
  enum class Sends : std::uint8_t { master, ahead_by_server, ahead_by_sender };

  PerReplica(const RuleContext& context, Sends sends)
      : sends_(sends),
        replicas_(context.replicas),
        gamma_(sections::optimizer(context.experiment).momentum()),
        reach_(velocity_reach(gamma_, own_pushes_ahead(context.experiment, context.delay))),
        decay_(sections::optimizer(context.experiment).weight_decay()) {}

  Updated apply(Stream& stream, Update update) override {
    const Contribution& push = only(update);
    const Term g = decayed_gradient(stream, push, update.base, decay_);
    const double rate = sends_ == Sends::ahead_by_sender ? push.rate : update.rate;
    Velocity& mine = of(stream, push.replica, update.base.elements());
    const Velocity before = mine;
    mine = {.v = sum_of(stream, {{gamma_, before.v}, g}), .rate = rate};
    Updated out;
    out.next = updated(stream, update, rate, mine.v);
    if (sends_ == Sends::master) {
      return out;
    }
    // The old share first: with one replica the sum is then its velocity in every bit.
    combine(stream, {{1, sum_}, {-share(before), before.v}, {share(mine), mine.v}}, sum_);
    if (++updates_ % kRebuildEvery == 0) {
      rebuild(stream);
    }
    looked_at_ = update.next_rate;
    out.sent = sum_of(stream, {{1, out.next}, {-look(), sum_}});
    return out;
  }

  /// Of the point that is sent the replica's own part: with one replica, that point in every bit.
  Tensor aim(Stream& stream, const Contribution& of, const Tensor& base) override {
    const auto found = velocities_.find(of.replica);
    if (sends_ == Sends::master || found == velocities_.end()) {
      return {};
    }
    const Velocity& own = found->second;
    return sum_of(stream, {{1, base}, {-look() * share(own), own.v}});
  }

  void forget(Stream& stream, std::int32_t replica) override {
    const auto found = velocities_.find(replica);
    if (found == velocities_.end()) {
      return;
    }
    if (sum_) {
      combine(stream, {{1, sum_}, {-share(found->second), found->second.v}}, sum_);
    }
    velocities_.erase(found);
  }

  std::int64_t state_tensors() const override {
    return replicas_ + (sends_ == Sends::master ? 0 : 1);
  }

  void archive(Archive& a) override { a(velocities_, sum_, looked_at_, updates_); }

 private:
  struct Velocity {
    Tensor v;
    double rate = 0;  // of its last push
  };

  Velocity& of(Stream& stream, std::int32_t replica, std::int64_t elements) {
    if (sends_ != Sends::master && !sum_) {
      sum_ = zeros(stream, elements);
    }
    Velocity& found = velocities_[replica];
    if (!found.v) {
      found.v = zeros(stream, elements);
    }
    return found;
  }

  static Tensor updated(Stream& stream, Update& update, double rate, const Tensor& v) {
    const Tensor base = std::exchange(update.base, {});
    update.contributions.front().read = {};  // may be base
    const Tensor next = successor(stream, base);
    combine(stream, {{1, base}, {-rate, v}}, next);
    return next;
  }

  /// The factor of the sum in the point that is sent.
  double look() const { return sends_ == Sends::ahead_by_server ? reach_ * looked_at_ : reach_; }

  /// The factor of a velocity in the sum.
  double share(const Velocity& of) const { return sends_ == Sends::ahead_by_sender ? of.rate : 1; }

  void rebuild(Stream& stream) {
    std::vector<Term> terms;
    for (const auto& [replica, velocity] : velocities_) {
      terms.push_back({share(velocity), velocity.v});
    }
    sum_ = sum_of(stream, terms);
  }

  Sends sends_;
  std::int32_t replicas_;
  double gamma_;
  double reach_;
  double decay_;
  std::map<std::int32_t, Velocity> velocities_;
  Tensor sum_;            // of share x velocity
  double looked_at_ = 0;  // rate of the point that was sent last
  std::int64_t updates_ = 0;
};

/// dana_slim at the server, which knows no velocity.
class Slim final : public Step {
 public:
  explicit Slim(bool sender) : sender_(sender) {}

  Updated apply(Stream& stream, Update update) override {
    const Contribution push = only(update);
    const double factor = push.factor * (sender_ ? 1 : update.rate);
    update.contributions.clear();
    const Tensor base = std::exchange(update.base, {});
    Updated out;
    out.next = successor(stream, base);
    combine(stream, {{1, base}, {-factor, push.values.front()}}, out.next);
    return out;
  }

 private:
  bool sender_;  // the changes have the sender's rate in them
};

bool slim_by_sender(const proto::Experiment& experiment) {
  return sections::replicas(experiment).rule().dana_slim().rate() != proto::Dana::server;
}

std::unique_ptr<Step> slim_step(const RuleContext& context) {
  return std::make_unique<Slim>(slim_by_sender(context.experiment));
}

// Where replicas.step has taken a part of another rule, the part's options are there.
const proto::Dana& dana_options(const RuleContext& c) {
  const auto& r = sections::replicas(c.experiment);
  return r.step().has_dana_zero() ? r.step().dana_zero() : r.rule().dana_zero();
}

std::unique_ptr<Step> dana_step(const RuleContext& context) {
  return std::make_unique<PerReplica>(context,
                                      dana_options(context).rate() == proto::Dana::sender
                                          ? PerReplica::Sends::ahead_by_sender
                                          : PerReplica::Sends::ahead_by_server);
}

std::unique_ptr<Scale> make_dana_dc_scale(const RuleContext& c) {
  proto::DcAsgd options;  // constant
  options.set_lambda(sections::replicas(c.experiment).rule().dana_dc().lambda());
  return delay_compensation(c, options);
}

void by_slim(Link& link, const proto::Experiment& /*e*/) {
  link.travel = Travel::slim;
  link.kind = CachedLink{};
  link.rate_stride = 1;
  link.run_rate = false;
}

Result<void> check_dana_dc(const proto::Experiment& e) {
  const std::string step = choice_name(sections::replicas(e).step());
  if (sections::replicas(e).rule().has_dana_dc() && step != "by_rule" && step != "dana_zero" &&
      !step.empty()) {
    return Error{ErrorKind::usage,
                 fill_in("replicas.step: dana_dc is dana_zero with a correction; for the "
                         "correction with {} use replicas.rule dc_asgd",
                         step)};
  }
  return {};
}

}  // namespace

std::unique_ptr<Step> multi_step(const RuleContext& context) {
  return std::make_unique<PerReplica>(context, PerReplica::Sends::master);
}

SlimNumbers slim_numbers(const proto::Experiment& experiment, double rate, std::int64_t delay) {
  const double gamma = sections::optimizer(experiment).momentum();
  return {.rate = rate,
          .gamma = gamma,
          .reach = velocity_reach(gamma, own_pushes_ahead(experiment, delay)),
          .decay = sections::optimizer(experiment).weight_decay(),
          .gradient_scale = 1,
          .sender = slim_by_sender(experiment)};
}

Tensor slim_change(
    Stream& stream, Residual& state, const Tensor& w, const Tensor& g, const SlimNumbers& numbers) {
  Term decayed{numbers.gradient_scale, g};
  if (numbers.decay != 0) {
    decayed = {1, sum_of(stream, {decayed, {numbers.decay, w}})};
  }
  const double reach = numbers.reach;
  const double rate = numbers.sender ? numbers.rate : 1;
  const double previous = numbers.sender && state.values ? state.rate : rate;
  const Tensor before = state.values ? state.values : zeros(stream, g.elements());
  state.values = sum_of(stream, {{numbers.gamma, before}, decayed});
  state.rate = rate;
  return sum_of(stream,
                {{rate * reach, state.values},
                 {rate * decayed.factor, decayed.x},
                 {(rate - previous) * reach + rate * (numbers.gamma - reach), before}});
}

namespace rule_schemes {

RuleScheme dana_zero() {
  return {
      .info =
          {.name = "dana_zero",
           .summary =
               "like multi, but the server sends the point that all velocities together lead to",
           .paper = "Hakimi et al. 2019, arXiv:1907.11612"},
      .equations =
          "v_i <- gamma v_i + g; w <- w - eta v_i; sent w - S eta sum_j v_j (by the server's "
          "rate), w - S sum_j eta_j v_j (by the senders'); S = gamma + ... + gamma^(d+1)",
      .memory = "R + 1, and the point sent",
      .step = dana_step,
      .bears_delay = true,
      .own_momentum = true,
      .optimizers = momentum_optimizers(),
      .one_at_a_time = true,
      .sends_elsewhere = true};
}

RuleScheme dana_slim() {
  return {
      .info = {.name = "dana_slim",
               .summary = "dana_zero in the form in which each replica keeps its own velocity, and "
                          "the server none",
               .paper = "Hakimi et al. 2019, arXiv:1907.11612"},
      .equations =
          "replica: v' = gamma v + g, pushes u = eta v' + S (eta v' - eta_prev v), which for d = "
          "0 is eta (gamma v' + g) + (eta - eta_prev) gamma v; server: w <- w - u. By the "
          "server's rate: u = v' + S (v' - v); w <- w - eta u. S = gamma + ... + gamma^(d+1)",
      .memory =
          "0 (1 at each replica); so that of a replica that dies the step it looked ahead stays "
          "in the weights, eta gamma v once, which dana_zero takes back",
      .step = slim_step,
      .link = by_slim,
      .bears_delay = true,
      .own_momentum = true,
      .optimizers = momentum_optimizers(),
      .one_at_a_time = true,
      .sends_elsewhere = true,
      .any_admission = true};
}

RuleScheme dana_dc() {
  return {.info = {.name = "dana_dc",
                   .summary = "dana_zero with dc_asgd's correction from the point that was sent",
                   .paper = "Hakimi et al. 2019, arXiv:1907.11612",
                   .check = check_dana_dc},
          .equations = "g + lambda g^2 (w - w_sent) in place of g; then dana_zero",
          .memory = "R + 1, and the points sent (up to R)",
          .scale = make_dana_dc_scale,
          .step = dana_step,
          .bears_delay = true,
          .corrects = true,
          .own_momentum = true,
          .optimizers = momentum_optimizers(),
          .one_at_a_time = true,
          .sends_elsewhere = true};
}

}  // namespace rule_schemes

}  // namespace troupe
