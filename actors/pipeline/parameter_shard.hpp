// Keeps the weights of one chunk by step, answers pulls, and sees to it that each push is applied
// once, in order. Steps are the Optimizer's to make; sums and norms are jobs of its own. What else a push sets in motion, and
// whose weights come next where replicas share some, is its Exchange's (exchange/exchange.hpp).
//
//   stage --Pull--> shard --PullReply--> stage
//   stage --Push--> shard --Apply--> optimizer --Applied--> shard
//   stage of another chunk, or an alternate of the stage --TiedPush--> shard     (fan_in.hpp)
//   shard --Norms--> first shard --Decide--> every shard          (clipping.hpp)
//   director --Release--> shard --Concluded--> director
//
// Invariants: the step grows by exactly 1 with each push; a push is counted once, whatever
// arrives twice; at most one push is on its way to the next step; a pull is answered with exactly the
// step and the reach that it names; evaluation steps are pinned until released. Of a chunk with alternates pushes come in
// any order, and the steps of each round but its last move nothing.
#pragma once

#include "actors/exchange/exchange.hpp"
#include "actors/exchange/fan_in.hpp"
#include "actors/pipeline/clipping.hpp"
#include "messages/ending.hpp"
#include "messages/evaluation.hpp"
#include "runtime/schemes/evaluation.hpp"
#include "runtime/schemes/policies/view.hpp"

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace troupe {

class ParameterShard final : public Actor<ParameterShard, ShardRole>, private ExchangeHost {
 public:
  struct Config {
    Ref<ShardRole> self;
    std::int32_t chunk = 0;
    Ref<OptimizerRole> optimizer;
    SliceLayout layout{};  // where its gradient's norms are measured
    ViewPlan plan;
    double clip_norm = 0;                   // 0: none
    std::vector<Ref<ShardRole>> clip_with;  // by whose norm together, in order; empty: by its own
    EvaluationPlan evaluation;
    Ref<DirectorRole> director;
    std::vector<Tensor> initial;  // slices
    bool returns = false;         // its replica comes back: the exchange gets what step 0 has
    std::size_t tied = 0;         // TiedPushes that belong to each round
    std::int64_t round = 1;       // mini-batches that make one update, the last of them
    std::unique_ptr<Exchange> exchange;
  };

  explicit ParameterShard(Config config);

  void handle(const Rejoin& m, double, Effects& fx) { c_.exchange->rejoin(m.batch, fx); }

  void handle(Pull&& m, double now, Effects& fx);
  void handle(Push&& m, double now, Effects& fx);
  void handle(TiedPush&& m, double now, Effects& fx);
  void handle(Applied&& m, double now, Effects& fx);
  void handle(Decide m, double now, Effects& fx);
  void handle(End m, double now, Effects& fx);
  void handle(Release m, double now, Effects& fx);

  void handle(Norms&& m, double, Effects& fx) { clipping_.add(std::move(m), fx); }

  void handle(Answer&& m, double now, Effects& fx) { c_.exchange->answered(std::move(m), now, fx); }

  void handle(GradientPart&& m, double now, Effects& fx) {
    c_.exchange->came(std::move(m), now, fx);
  }

  void handle(const GroupTurn& m, double, Effects& fx) { c_.exchange->came(m, fx); }

  void handle(Note&& m, double now, Effects& fx) { c_.exchange->came(std::move(m), now, fx); }

  void handle(const Membership& m, double now, Effects& fx) { c_.exchange->membership(m, now, fx); }

  void handle(const ScaleRate& m, double, Effects&) { c_.exchange->scale_rate(m.factor); }

  void handle(Ran<Computed>&& m, double now, Effects& fx);
  void archive(Archive& a) override;
  std::string waits_for() const override;
  Remains remains() const override;

 private:
  std::int64_t step() const override { return step_; }

  const Push& push() const override { return *applying_; }

  void summed(std::vector<Tensor> gradient, double now, Effects& fx) override {
    applying_->gradient = std::move(gradient);
    clip(now, fx);
  }

  void install(StepWeights made, double now, Effects& fx) override;

  void look_again(double now, Effects& fx) override { next(now, fx); }

  void pin(std::int64_t step, Weights weights, Effects& fx) override;
  void reply(const Pull& pull, Weights weights, Effects& fx) override;

  bool answer(const Pull& pull, Effects& fx);
  bool answer_pinned(const Pull& pull, Effects& fx);
  bool is_pinned(std::int64_t step);
  Weights weights_of(const View& view) const;

  void serve(Effects& fx) {
    std::erase_if(waiting_, [&](const Pull& pull) { return answer(pull, fx); });
  }

  bool is_new(Ref<LearnerRole> from, std::uint64_t sequence);

  /// Of a tied parameter, or an alternate's for its round's update.
  void keep_share(TiedPush m) {
    const std::int64_t batch = m.stamp.batch;
    const bool copy = m.stamp.chunk == c_.chunk;
    const auto place = copy ? static_cast<std::int32_t>(batch % c_.round) : m.stamp.chunk;
    tied_.keep(copy ? end_of_round(batch) : batch, {m.slice, place}, std::move(m.gradient));
  }

  /// In the order of mini-batches, in which alternates need not hand them in.
  void enqueue(Push m) {
    const auto later = std::ranges::find_if(
        queue_, [&](const Push& other) { return other.stamp.batch > m.stamp.batch; });
    queue_.insert(later, std::move(m));
  }

  std::int64_t end_of_round(std::int64_t batch) const {
    return batch - batch % c_.round + c_.round - 1;
  }

  /// Whether the push can be taken now: all that belongs to it has come.
  bool is_whole(const Push& push) const {
    const std::int64_t batch = push.stamp.batch;
    return (c_.round == 1 || batch <= step_) &&
           (end_of_round(batch) != batch || tied_.complete(batch)) && c_.exchange->ready(batch);
  }

  void next(double now, Effects& fx);
  bool takes_next(double now, Effects& fx);
  TiedGradients take_tied();
  void clip(double now, Effects& fx);
  void measured(Computed made, double now, Effects& fx);
  void apply(double gradient_scale, double now, Effects& fx);
  void label(StepWeights& made) const;
  void conclude(Effects& fx);
  void expect_sound() const;

  Config c_;
  Clipping clipping_;
  /// Shares of a mini-batch's gradient that other chunks have for parameters they share with this one, by slice and sender's chunk;
  /// or that alternates have of it or of the mini-batches before it in its round, by slice and place in the round. They come before
  /// or after the chunk's own push.
  FanIn<std::pair<std::size_t, std::int32_t>, Tensor> tied_;
  std::int64_t step_ = 0;  // newest; = version with one replica; -1: its replica is coming back
  std::size_t slices_ = 0;
  std::map<std::int64_t, StepWeights> kept_;  // by step: the newest plan.keep of them
  std::map<std::int64_t, Weights> pins_;      // by step
  std::deque<Pull> waiting_;
  std::deque<Push> queue_;
  std::optional<Push> applying_;
  bool taking_ = false;  // pushes, now
  std::map<ActorId, std::uint64_t> last_sequence_;
  std::optional<std::int64_t> end_;
  std::optional<std::int64_t> conclude_at_;
};

}  // namespace troupe
