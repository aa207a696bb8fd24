// diloco: an outer optimizer over the changes D = (weights read) - (weights after H inner steps).
// Douillard et al. 2023, arXiv:2311.08105; asynchronous: Liu et al. 2024, arXiv:2401.09135; by
// fragments: Douillard et al. 2025, arXiv:2501.18512; Decoupled DiLoCo (decoupled_diloco.cpp):
// arXiv:2604.21428. D is the mean by mini-batches; asynchronously it is the one arrival's / R.
//
//   nesterov: m' = mu m + D; w' = w - eps (D + mu m')        sgd: w' = w - eps D
//
// delayed Nesterov, A the sum of the R D's since the last time, c the activation:
//
//   w' = w - eps (c mu m + D), but with every R-th arrival
//   m' = mu m + sum D;  w' = w - eps ((1 - c R + c) mu m' + D)
#include "experiment/data.pb.h"
#include "experiment/replicas.pb.h"
#include "messages/archive.hpp"
#include "messages/sections.hpp"
#include "runtime/schemes/exchanges/exchange.hpp"
#include "runtime/schemes/rules/parts.hpp"

#include <utility>

namespace troupe {
namespace {

class Outer final : public Step {
 public:
  explicit Outer(const RuleContext& context)
      : options_(sections::replicas(context.experiment).exchange().diloco()),
        rate_(outer_rate(options_)),
        momentum_(options_.momentum()),
        replicas_(context.replicas),
        merge_{.rows = static_cast<double>(sections::data(context.experiment).batch_size()),
               .radial = {}} {
    const bool radial =
        options_.mode().decoupled().merge() == proto::DecoupledDiloco::radial_directional;
    for (const RuleContext::Part& part : context.parts) {
      if (radial && !part.table) {
        merge_.radial.push_back(part);
      }
    }
  }

  Updated apply(Stream& stream, Update update) override {
    Term change = options_.mode().has_decoupled() ? merged_movement(stream, update, merge_)
                                                  : mean_of(stream, update, Mean::by_mini_batches);
    if (!m_) {
      m_ = zeros(stream, update.base.elements());
    }
    if (!options_.mode().has_asynchronous()) {
      return nesterov(stream, std::move(update), change);
    }
    change.factor /= replicas_;
    switch (options_.mode().asynchronous().outer()) {
      case proto::AsynchronousDiloco::sgd:
        return moved(stream, std::move(update), {{-rate_ * change.factor, change.x}});
      case proto::AsynchronousDiloco::nesterov:
        return nesterov(stream, std::move(update), change);
      case proto::AsynchronousDiloco::delayed_nesterov:
        break;
    }
    return delayed_nesterov(stream, std::move(update), change);
  }

  std::int64_t state_tensors() const override {
    const auto& mode = options_.mode();
    const auto outer = mode.asynchronous().outer();
    if (!mode.has_asynchronous() || outer == proto::AsynchronousDiloco::nesterov) {
      return 1;
    }
    return outer == proto::AsynchronousDiloco::sgd ? 0 : 2;
  }

  void archive(Archive& a) override { a(m_, sum_); }

 private:
  Updated nesterov(Stream& stream, Update update, const Term& change) {
    combine(stream, {{momentum_, m_}, change}, m_);
    return moved(
        stream, std::move(update), {{-rate_ * change.factor, change.x}, {-rate_ * momentum_, m_}});
  }

  Updated delayed_nesterov(Stream& stream, Update update, const Term& change) {
    if (!sum_) {
      sum_ = zeros(stream, update.base.elements());
    }
    combine(stream, {{1, sum_}, change}, sum_);
    const double c = options_.mode().asynchronous().activation();
    double active = c;
    if ((update.version + 1) % replicas_ == 0) {
      combine(stream, {{momentum_, m_}, {1, sum_}}, m_);
      fill(stream, sum_, 0);
      active = 1 - c * replicas_ + c;
    }
    return moved(stream,
                 std::move(update),
                 {{-rate_ * change.factor, change.x}, {-rate_ * active * momentum_, m_}});
  }

  proto::Diloco options_;
  double rate_;
  double momentum_;
  std::int32_t replicas_;
  MovementMerge merge_;  // mode decoupled
  Tensor m_;
  Tensor sum_;  // A / R
};

}  // namespace

std::unique_ptr<Step> outer_step(const RuleContext& context) {
  return std::make_unique<Outer>(context);
}

}  // namespace troupe
