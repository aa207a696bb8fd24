// asgd, adagrad, heavy_ball, nag, lwp, and synchronous: one optimizer at the server, on the mean of
// what has come. nag (Hakimi et al. 2019's baseline) sends w - eta gamma v, lwp w - (R (d+1) - 1) eta v, eta
// being the rate of the update to come.
#include "experiment.pb.h"
#include "messages/archive.hpp"
#include "runtime/schemes/codecs/codec.hpp"
#include "runtime/schemes/rules/parts.hpp"

#include <algorithm>
#include <utility>

namespace troupe {
namespace {

proto::Experiment with_rule(const proto::Experiment& experiment, proto::OptimizerRule::Kind rule) {
  proto::Experiment other = experiment;
  other.mutable_optimizer()->set_rule(rule);
  return other;
}

/// Without the weight decay that is in what replicas send.
proto::Experiment of_servers(const proto::Experiment& experiment) {
  proto::Experiment other = experiment;
  if (decays_at_replicas(experiment)) {
    other.mutable_optimizer()->set_weight_decay(0);
  }
  return other;
}

class Optimizing final : public Step {
 public:
  Optimizing(const proto::Experiment& experiment,
             const RuleContext& context,
             Mean mean,
             Reach sent = {})
      : mean_(mean),
        sent_(sent),
        elements_(context.elements),
        step_(ChunkOptimizer(experiment, context.rate, context.delay, 0), layout_of(context)) {}

  Updated apply(Stream& stream, Update update) override {
    Term g = mean_of(stream, update, mean_);
    OptimizerStep::Request request{.rate = update.rate * mean_share(update, mean_),
                                   .next_rate = update.next_rate,
                                   .gradient_scale = g.factor,
                                   .reaches = std::move(update.reaches)};
    const bool ahead = sent_.kind != ReachKind::none;
    if (ahead) {
      request.reaches.push_back(sent_);
    }
    // May hold the weights, or the gradient, that are about to be overwritten.
    update.contributions.clear();
    Weights base;
    base.push_back({.values = std::exchange(update.base, {})});
    std::vector<Tensor> gradient(1);
    gradient.front() = std::move(g.x);
    OptimizerStep::Made made = step_.apply(stream, std::move(base), std::move(gradient), request);
    Updated out;
    out.next = std::move(made.next.front().values);
    for (Weights& prediction : made.predictions) {
      out.predictions.push_back(std::move(prediction.front().values));
    }
    if (ahead) {
      out.sent = std::move(out.predictions.back());
      out.predictions.pop_back();
    }
    return out;
  }

  /// What divides by the size of the gradients would undo a gradient's scaling.
  bool takes_rates() const override { return !step_.optimizer().scheme().plain; }

  std::int64_t state_tensors() const override {
    return (step_.state_bytes() + 4 * elements_ - 1) / std::max<std::int64_t>(1, 4 * elements_);
  }

  OptimizerStep* optimizer() override { return &step_; }

  void archive(Archive& a) override { a(step_); }

 private:
  Mean mean_;
  Reach sent_;
  std::int64_t elements_;
  OptimizerStep step_;
};

}  // namespace

std::unique_ptr<Step> optimizer_step(const RuleContext& context, Mean mean) {
  return std::make_unique<Optimizing>(of_servers(context.experiment), context, mean);
}

std::unique_ptr<Step> adagrad_step(const RuleContext& context) {
  return std::make_unique<Optimizing>(
      with_rule(context.experiment, proto::OptimizerRule::adagrad), context, Mean::plain);
}

std::unique_ptr<Step> momentum_step(const RuleContext& context, Reach sent) {
  return std::make_unique<Optimizing>(
      with_rule(context.experiment, proto::OptimizerRule::momentum), context, Mean::plain, sent);
}

}  // namespace troupe
