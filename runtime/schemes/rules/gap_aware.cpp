// gap_aware: g / (1 + gap / C), the gap |w - w_read| of each parameter, or its root mean square over a
// tensor or over the shard. Barkai, Hakimi & Schuster, ICLR 2020, arXiv:1909.10802.
//
// per=parameter is what the authors' code (in FTPipe, too) does: C_j = largest rate x sqrt(mean of
// (step_j / rate)^2), the mean moving exponentially and corrected for its beginning with 0, and weight
// decay is damped with the gradient where the update adds it to it (adamw's and muon's is apart).
//
// With dana_zero, which sends a look-ahead point, the gap is measured from where the sender's own
// momentum leads by now: one replica alone has none.
//
// Elsewhere C is the mean, over the updates so far, of the root mean square of a step, rescaled to the
// largest rate: what one step moves at that rate, so that gradients are damped less when the rate has fallen.
// Before the first step C is not known and nothing is damped.
#include "experiment/optimizer.pb.h"
#include "experiment/replicas.pb.h"
#include "kernels/late_gradient.hpp"
#include "kernels/update.hpp"
#include "messages/archive.hpp"
#include "messages/sections.hpp"
#include "runtime/schemes/optimizers/optimizer_scheme.hpp"
#include "runtime/schemes/rules/parts.hpp"

#include <algorithm>
#include <cmath>

namespace troupe {
namespace {

/// What both kinds of damping have in common: nothing is damped before the first step.
class GapScale : public Scale {
 public:
  explicit GapScale(const RuleContext& context) : largest_rate_(context.rate.full()) {}

  bool needs_read() const final { return true; }

  bool needs_aim() const final { return true; }

  bool observes() const final { return true; }

  Tensor correct(Stream& stream, const Contribution& of, const Update& update) final {
    rate_ = update.rate;
    return steps_ == 0 ? of.values.front() : damped(stream, of, update);
  }

  void observe(Stream& stream, const Tensor& before, const Tensor& after) final {
    if (rate_ <= 0) {
      return;  // a step of rate 0 says nothing about one of the largest
    }
    note_step(stream, before, after);
    ++steps_;
  }

  void archive(Archive& a) override { a(steps_, rate_); }

 protected:
  double largest_rate_;
  double steps_ = 0;
  double rate_ = 0;  // of the update under way

 private:
  virtual Tensor damped(Stream& stream, const Contribution& of, const Update& update) = 0;
  virtual void note_step(Stream& stream, const Tensor& before, const Tensor& after) = 0;
};

/// What is damped with the gradient, because it is part of it.
double weight_decay(const proto::Optimizer& optimizer) {
  return optimizer_scheme(optimizer).decays_gradient ? optimizer.weight_decay() : 0;
}

/// Each parameter by its own gap, in its own steps.
class OwnGapDamping final : public GapScale {
 public:
  OwnGapDamping(const RuleContext& context, const proto::GapAware& options)
      : GapScale(context),
        decay_(options.decay()),
        weight_decay_(weight_decay(sections::optimizer(context.experiment))),
        elements_(context.elements) {}

  Tensor damped(Stream& stream, const Contribution& of, const Update& update) override {
    const Tensor& g = of.values.front();
    Tensor out = stream.allocate(g.shape());
    const double decay = of.factor != 0 ? weight_decay_ / of.factor : 0;  // the factor comes yet
    damp_by_own_steps(
        stream,
        {.scalars = {.rate = static_cast<float>(largest_rate_),
                     .correction = static_cast<float>(1 / (1 - std::pow(decay_, steps_))),
                     .weight_decay = static_cast<float>(decay)},
         .g = g,
         .w = update.base,
         .aim = of.aim ? of.aim : update.base,
         .w_read = of.read,
         .square = square_,
         .out = out});
    return out;
  }

  void note_step(Stream& stream, const Tensor& before, const Tensor& after) override {
    if (!square_) {
      square_ = zeros(stream, elements_);
    }
    average_square_step(
        stream, static_cast<float>(decay_), static_cast<float>(1 / rate_), before, after, square_);
  }

  std::int64_t state_tensors() const override { return 1; }

  void archive(Archive& a) override {
    GapScale::archive(a);
    a(square_);
  }

 private:
  double decay_;
  double weight_decay_;
  std::int64_t elements_;
  Tensor square_;  // of (step / rate), its moving mean
};

class GapDamping final : public GapScale {
 public:
  GapDamping(const RuleContext& context, const proto::GapAware& options)
      : GapScale(context), per_(options.per()) {
    // Stretches from tensor to tensor, padding included: it is zero on both sides of a gap.
    std::vector<std::int64_t> begins{0};
    parameters_ = {0};
    for (const RuleContext::Part& part : context.parts) {
      if (per_ == proto::GapAware::layer && part.offset > begins.back()) {
        begins.push_back(part.offset);
        parameters_.push_back(0);
      }
      parameters_.back() += part.shape.elements();
    }
    begins.push_back(context.elements);
    for (std::size_t i = 0; i + 1 < begins.size(); ++i) {
      stretches_.push_back({begins[i], begins[i + 1] - begins[i]});
    }
    travelled_.resize(stretches_.size());
  }

  Tensor damped(Stream& stream, const Contribution& of, const Update& update) override {
    const Tensor& g = of.values.front();
    Tensor out = stream.allocate(g.shape());
    const Tensor aim = of.aim ? of.aim : update.base;
    std::vector<double> gaps;
    if (per_ != proto::GapAware::parameter_by_mean) {
      gaps = root_mean_squares(stream, aim, of.read);
    }
    for (std::size_t i = 0; i < stretches_.size(); ++i) {
      const auto here = [&, part = stretches_[i]](const Tensor& x) {
        return x.view(part.offset, {part.size});
      };
      // A step that never moved a tensor leaves nothing to measure its gap by.
      const double reach = travelled_[i] > 0 ? travelled_[i] / steps_ : INFINITY;
      if (per_ == proto::GapAware::parameter_by_mean) {
        damp_by_gap(
            stream, static_cast<float>(reach), here(g), here(aim), here(of.read), here(out));
      } else {
        combine(stream, {{1 / (1 + gaps[i] / reach), here(g)}}, here(out));
      }
    }
    return out;
  }

  void note_step(Stream& stream, const Tensor& before, const Tensor& after) override {
    const std::vector<double> moved = root_mean_squares(stream, before, after);
    for (std::size_t i = 0; i < moved.size(); ++i) {
      travelled_[i] += moved[i] * largest_rate_ / rate_;
    }
  }

  void archive(Archive& a) override {
    GapScale::archive(a);
    a(travelled_);
  }

 private:
  /// Of a - b, over the parameters of each stretch.
  std::vector<double> root_mean_squares(Stream& stream, const Tensor& a, const Tensor& b) const {
    const Tensor difference = sum_of(stream, {{1, a}, {-1, b}});
    Tensor out = stream.allocate({static_cast<std::int64_t>(stretches_.size())}, DType::float64);
    sum_of_squares(stream, difference, stretches_, out);
    out.set_ready(stream.record());
    std::vector<double> values = to_host(out);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto count = static_cast<double>(std::max<std::int64_t>(1, parameters_[i]));
      values[i] = std::sqrt(values[i] / count);
    }
    return values;
  }

  proto::GapAware::Per per_;
  std::vector<Part> stretches_;           // one, or by tensor
  std::vector<std::int64_t> parameters_;  // by stretch
  std::vector<double> travelled_;         // by stretch: sum over the steps
};

std::unique_ptr<Scale> gap_damping(const RuleContext& context, const proto::GapAware& options) {
  if (options.per() == proto::GapAware::parameter) {
    return std::make_unique<OwnGapDamping>(context, options);
  }
  return std::make_unique<GapDamping>(context, options);
}

// Where replicas.scale has taken a part of another rule, the part's options are there.
const proto::GapAware& gap_aware_options(const RuleContext& c) {
  const auto& r = sections::replicas(c.experiment);
  return r.scale().has_gap_aware() ? r.scale().gap_aware() : r.rule().gap_aware();
}

}  // namespace

namespace rule_schemes {

RuleScheme gap_aware() {
  return {.info = {.name = "gap_aware",
                   .summary = "like asgd, but a gradient is divided by how far the weights have "
                              "moved, in steps at the largest rate",
                   .paper = "Barkai, Hakimi & Schuster, ICLR 2020, arXiv:1909.10802"},
          .equations =
              "w <- w - eta opt(g / (1 + |a - w_read| / C)), a = w, or where the sender's own "
              "momentum leads; C_j = largest rate sqrt(mean (step_j / rate)^2), or the mean "
              "size of a step",
          .memory = "what replicas read (up to R), 1 if per parameter, and the optimizer's moments",
          .scale = [](const RuleContext& c) { return gap_damping(c, gap_aware_options(c)); },
          .bears_delay = true,
          .corrects = true};
}

}  // namespace rule_schemes

}  // namespace troupe
