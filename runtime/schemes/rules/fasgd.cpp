// fasgd: each gradient divided by the deviation of its parameter's gradients, and by its staleness.
// Odena 2016, arXiv:1601.04033; the formulas are in kernels/late_gradient.hpp. They leave open how
// the averages begin: those of g and g^2 with 0, that of the deviation with 1, so that the first
// steps are asgd's (from 0 the very first would be a thousand times as long).
//
// A deviation is some hundredths, and dividing by it lengthens every step by as much. Relative, it is
// measured in its root mean square over the shard: what stays is how the rates of the parameters
// differ. Clipping comes before: the deviation is of the clipped gradients.
#include "experiment.pb.h"
#include "kernels/late_gradient.hpp"
#include "kernels/update.hpp"
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
    divide_by_deviation(stream, scalars_, g, square_, mean_, deviation_, out);
    if (of.factor != 1 && of.factor != 0) {
      combine(stream, {{1 / of.factor, out}}, out);  // the factor comes once more
    }
    if (relative_) {
      size_ = root_mean_square(stream, deviation_);
    }
    return out;
  }

  std::int64_t state_tensors() const override { return 3; }

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

}  // namespace

std::unique_ptr<Scale> deviation_division(const RuleContext& context, const proto::Fasgd& options) {
  return std::make_unique<ByDeviation>(context, options);
}

}  // namespace troupe
