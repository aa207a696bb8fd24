// fasgd: each gradient divided by the deviation of its parameter's gradients, and by its staleness.
// Odena 2016, arXiv:1601.04033; the formulas are in kernels/late_gradient.hpp. They leave open how
// the averages begin: those of g and g^2 with 0, that of the deviation with 1, so that the first
// steps are asgd's (from 0 the very first would be a thousand times as long).
//
// A deviation is some hundredths, and dividing by it lengthens every step by as much. Relative, it is
// measured in its root mean square over the shard: what stays is how the rates of the parameters
// differ. Clipping comes before: the deviation is of the clipped gradients.
#include "experiment/optimizer.pb.h"
#include "experiment/replicas.pb.h"
#include "kernels/late_gradient.hpp"
#include "kernels/update.hpp"
#include "kernels/wording.hpp"
#include "messages/archive.hpp"
#include "messages/sections.hpp"
#include "runtime/schemes/optimizers/optimizer_scheme.hpp"
#include "runtime/schemes/rules/parts.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

namespace troupe {
namespace {

class ByDeviation final : public Scale {
 public:
  ByDeviation(const RuleContext& context, const proto::Fasgd& options)
      : scalars_{.decay = static_cast<float>(options.decay()),
                 .deviation_decay = static_cast<float>(options.deviation_decay()),
                 .epsilon = static_cast<float>(options.epsilon())},
        relative_(options.relative()),
        elements_(context.elements) {
    for (const RuleContext::Part& part : context.parts) {
      parts_.push_back({part.offset, part.shape.elements()});
    }
  }

  double weight(const Contribution& of, const Update& /*update*/) override {
    return size_ / static_cast<double>(std::max<std::int64_t>(1, of.lag));
  }

  Tensor correct(Stream& stream, const Contribution& of, const Update& /*update*/) override {
    if (!square_) {
      square_ = zeros(stream, elements_);
      mean_ = zeros(stream, elements_);
      deviation_ = stream.allocate({elements_});
      fill(stream, deviation_, 1);
    }
    Tensor out = stream.allocate(of.values.front().shape());
    Tensor g = of.values.front();
    if (of.factor != 1) {
      combine(stream, {{of.factor, g}}, out);
      g = out;
    }
    divide_by_deviation(stream,
                        {.scalars = scalars_,
                         .g = g,
                         .square = square_,
                         .mean = mean_,
                         .deviation = deviation_,
                         .out = out});
    if (of.factor != 1 && of.factor != 0) {
      combine(stream, {{1 / of.factor, out}}, out);  // the factor comes once more
    }
    if (relative_) {
      size_ = root_mean_square(stream, deviation_);
    }
    return out;
  }

  std::int64_t state_tensors() const override { return 3; }

  void archive(Archive& a) override { a(square_, mean_, deviation_, size_); }

 private:
  /// Over the parameters: padding has no deviation. 1 where there are none.
  double root_mean_square(Stream& stream, const Tensor& x) const {
    if (parts_.empty()) {
      return 1;
    }
    Tensor out = stream.allocate({static_cast<std::int64_t>(parts_.size())}, DType::float64);
    sum_of_squares(stream, x, parts_, out);
    out.set_ready(stream.record());
    double squares = 0;
    for (const double value : to_host(out)) {
      squares += value;
    }
    double elements = 0;
    for (const Part& part : parts_) {
      elements += static_cast<double>(part.size);
    }
    return std::sqrt(squares / elements);
  }

  DeviationScalars scalars_;
  bool relative_;
  std::int64_t elements_;
  std::vector<Part> parts_;
  Tensor square_;
  Tensor mean_;
  Tensor deviation_;
  double size_ = 1;  // of the deviation
};

std::unique_ptr<Scale> deviation_division(const RuleContext& context, const proto::Fasgd& options) {
  return std::make_unique<ByDeviation>(context, options);
}

// Where replicas.scale has taken a part of another rule, the part's options are there.
const proto::Fasgd& fasgd_options(const RuleContext& c) {
  const auto& r = sections::replicas(c.experiment);
  return r.scale().has_fasgd() ? r.scale().fasgd() : r.rule().fasgd();
}

/// It divides by the gradients' deviation, and optimizers that do so themselves undo that.
Result<void> check_fasgd(const proto::Experiment& e) {
  const proto::Replicas& r = sections::replicas(e);
  const bool scales = r.scale().has_fasgd() || (r.scale().has_by_rule() && r.rule().has_fasgd());
  const RuleScheme& step = step_of(r);
  const std::string& optimizer = optimizer_scheme(sections::optimizer(e)).info.name;
  if (!scales || step.own_momentum ||
      (!step.normalises && optimizer_scheme(sections::optimizer(e)).plain)) {
    return {};
  }
  return usage_error(
      "{} divides a gradient by its own size, which undoes fasgd's division by its deviation; "
      "use "
      "sgd, momentum or nesterov, or replicas.scale staleness_aware, which divides the rate",
      step.normalises ? "replicas.step: " + step.info.name : "optimizer.rule: " + optimizer);
}

}  // namespace

namespace rule_schemes {

RuleScheme fasgd() {
  return {.info = {.name = "fasgd",
                   .summary = "like asgd, but a gradient is divided by the deviation of the "
                              "parameter's gradients and by its staleness",
                   .paper = "Odena 2016, arXiv:1601.04033",
                   .check = check_fasgd},
          .equations =
              "n <- gamma n + (1-gamma) g^2; b <- gamma b + (1-gamma) g; v <- beta v + (1-beta) "
              "sqrt(n - b^2 + epsilon); w <- w - eta opt(g / (v max(1, tau))), relative: v over "
              "its root mean square",
          .memory = "3, and the optimizer's moments",
          .scale = [](const RuleContext& c) { return deviation_division(c, fasgd_options(c)); },
          .bears_delay = true};
}

}  // namespace rule_schemes

}  // namespace troupe
