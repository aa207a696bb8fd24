// dc_asgd: each gradient corrected to first order for how far the weights have moved since. Zheng et
// al. 2017, arXiv:1609.08326; the formulas are in kernels/late_gradient.hpp. Clipping comes before:
// the correction is of the clipped gradient.
#include "experiment/replicas.pb.h"
#include "kernels/late_gradient.hpp"
#include "kernels/wording.hpp"
#include "messages/archive.hpp"
#include "messages/sections.hpp"
#include "runtime/schemes/rules/parts.hpp"

namespace troupe {
namespace {

Compensation kind_of(proto::DcAsgd::Variant variant) {
  switch (variant) {
    case proto::DcAsgd::constant:
      return Compensation::constant;
    case proto::DcAsgd::adaptive:
      return Compensation::adaptive;
    case proto::DcAsgd::absolute:
      return Compensation::absolute;
  }
  TROUPE_CHECK(false, "replicas.rule.dc_asgd.variant ", variant, " has no kernel");
}

/// The paper's: lambda_0 of its constant and of its adaptive form.
double lambda_of(const proto::DcAsgd& options) {
  if (options.lambda() >= 0) {
    return options.lambda();
  }
  return options.variant() == proto::DcAsgd::adaptive ? 2 : 0.04;
}

class Compensating final : public Scale {
 public:
  Compensating(const RuleContext& context, const proto::DcAsgd& options)
      : kind_(kind_of(options.variant())),
        scalars_{.lambda = static_cast<float>(lambda_of(options)),
                 .decay = static_cast<float>(options.decay())},
        elements_(context.elements) {}

  bool needs_read() const override { return true; }

  Tensor correct(Stream& stream, const Contribution& of, const Update& update) override {
    if (kind_ == Compensation::adaptive && !mean_square_) {
      mean_square_ = zeros(stream, elements_);
    }
    Tensor out = stream.allocate(of.values.front().shape());
    Tensor g = of.values.front();
    if (of.factor != 1) {
      combine(stream, {{of.factor, g}}, out);
      g = out;
    }
    compensate_delay(stream,
                     {.kind = kind_,
                      .scalars = scalars_,
                      .g = g,
                      .w = update.base,
                      .w_read = of.read,
                      .mean_square = mean_square_,
                      .out = out});
    if (of.factor != 1 && of.factor != 0) {
      combine(stream, {{1 / of.factor, out}}, out);  // the factor comes once more
    }
    return out;
  }

  std::int64_t state_tensors() const override { return kind_ == Compensation::adaptive ? 1 : 0; }

  void archive(Archive& a) override { a(mean_square_); }

 private:
  Compensation kind_;
  CompensationScalars scalars_;
  std::int64_t elements_;
  Tensor mean_square_;
};

// Where replicas.scale has taken a part of another rule, the part's options are there.
const proto::DcAsgd& dc_asgd_options(const RuleContext& c) {
  const auto& r = sections::replicas(c.experiment);
  return r.scale().has_dc_asgd() ? r.scale().dc_asgd() : r.rule().dc_asgd();
}

Result<void> check_dc_asgd(const proto::Experiment& e) {
  const proto::Replicas& r = sections::replicas(e);
  const bool scales = r.scale().has_dc_asgd();
  const double lambda = (scales ? r.scale().dc_asgd() : r.rule().dc_asgd()).lambda();
  if (lambda < 0 && lambda != -1) {
    return usage_error("replicas.{}.dc_asgd.lambda: {}; use -1 (for the variant's own), 0 or more",
                       scales ? "scale" : "rule",
                       lambda);
  }
  return {};
}

}  // namespace

std::unique_ptr<Scale> delay_compensation(const RuleContext& context,
                                          const proto::DcAsgd& options) {
  return std::make_unique<Compensating>(context, options);
}

namespace rule_schemes {

RuleScheme dc_asgd() {
  return {.info = {.name = "dc_asgd",
                   .summary = "like asgd, but a gradient is corrected, to first order, for how far "
                              "the weights have moved",
                   .paper = "Zheng et al., ICML 2017, arXiv:1609.08326",
                   .check = check_dc_asgd},
          .equations =
              "constant: g + lambda g^2 (w - w_read); adaptive: lambda / sqrt(mean g^2); "
              "absolute: |g| for g^2",
          .memory = "what replicas read (up to R), 1 if adaptive, and the optimizer's moments",
          .scale = [](const RuleContext& c) { return delay_compensation(c, dc_asgd_options(c)); },
          .corrects = true};
}

}  // namespace rule_schemes

}  // namespace troupe
