// gap_aware: g / (1 + gap / C), the gap |w - w_read| of each parameter, or its root mean square over a
// tensor or over the shard. Barkai, Hakimi & Schuster, ICLR 2020, arXiv:1909.10802.
//
// C is the mean, over the updates so far, of the root mean square of a step, rescaled to the largest
// rate: what one step moves at that rate, so that gradients are damped less when the rate has fallen.
// Before the first step C is not known and nothing is damped.
#include "experiment.pb.h"
#include "kernels/late_gradient.hpp"
#include "kernels/update.hpp"
#include "runtime/schemes/rules/parts.hpp"

#include <algorithm>
#include <cmath>

namespace troupe {
namespace {

class GapDamping final : public Scale {
 public:
  GapDamping(const RuleContext& context, const proto::GapAware& options)
      : per_(options.per()), largest_rate_(context.rate.full()) {
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

  bool needs_read() const override { return true; }

  bool observes() const override { return true; }

  Tensor correct(Stream& stream, const Contribution& of, const Update& update) override {
    rate_ = update.rate;
    const Tensor& g = of.values.front();
    if (steps_ == 0) {
      return g;
    }
    Tensor out = stream.allocate(g.shape());
    std::vector<double> gaps;
    if (per_ != proto::GapAware::parameter) {
      gaps = root_mean_squares(stream, update.base, of.read);
    }
    for (std::size_t i = 0; i < stretches_.size(); ++i) {
      const auto here = [&, part = stretches_[i]](const Tensor& x) {
        return x.view(part.offset, {part.size});
      };
      // A step that never moved a tensor leaves nothing to measure its gap by.
      const double reach = travelled_[i] > 0 ? travelled_[i] / steps_ : INFINITY;
      if (per_ == proto::GapAware::parameter) {
        damp_by_gap(stream,
                    static_cast<float>(reach),
                    here(g),
                    here(update.base),
                    here(of.read),
                    here(out));
      } else {
        combine(stream, {{1 / (1 + gaps[i] / reach), here(g)}}, here(out));
      }
    }
    return out;
  }

  void observe(Stream& stream, const Tensor& before, const Tensor& after) override {
    if (rate_ <= 0) {
      return;  // a step of rate 0 says nothing about one of the largest
    }
    const std::vector<double> moved = root_mean_squares(stream, before, after);
    for (std::size_t i = 0; i < moved.size(); ++i) {
      travelled_[i] += moved[i] * largest_rate_ / rate_;
    }
    ++steps_;
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
  double largest_rate_;
  std::vector<Part> stretches_;           // one, or by tensor
  std::vector<std::int64_t> parameters_;  // by stretch
  std::vector<double> travelled_;         // by stretch: sum over the steps
  double steps_ = 0;
  double rate_ = 0;  // of the update under way
};

}  // namespace

std::unique_ptr<Scale> gap_damping(const RuleContext& context, const proto::GapAware& options) {
  return std::make_unique<GapDamping>(context, options);
}

}  // namespace troupe
