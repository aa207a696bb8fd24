// easgd: replicas x_i tied to a centre. Zhang, Choromanska & LeCun 2015, arXiv:1412.6651.
//
//   d_i = alpha (x_i - centre), alpha = beta / R
//   x_i' = x_i - eta opt(g(x_i)) - d_i;  centre' = centre + sum_i d_i
//
// The paper's spring and gradient are both from x_i before the mini-batch (simultaneous). A replica that
// meets the centre by itself sends x_i when the mini-batch begins (algorithm 1, Link::rebases), and adds the
// step to the answer x_i - d_i; otherwise a push brings what the replica's own step has made and, behind it, what
// that was made from. Sequential, the spring pulls from where the step has led: less far from the gradient that
// was computed, but not the paper's recursion.
//
// The same d_i on both sides: losing this symmetry is what makes ADMM unstable there. All d_i of an
// update are from the same centre.
#include "experiment/replicas.pb.h"
#include "messages/sections.hpp"
#include "runtime/schemes/rules/parts.hpp"

namespace troupe {
namespace {

class Elastic final : public Step {
 public:
  explicit Elastic(const RuleContext& context)
      : alpha_(sections::replicas(context.experiment).exchange().easgd().beta() /
               context.replicas) {}

  Updated apply(Stream& stream, Update update) override {
    Updated out;
    std::vector<Term> centre{{1, update.base}};
    for (const Contribution& c : update.contributions) {
      // The last of what travelled is what the spring pulls.
      const double alpha = alpha_ * c.factor;
      const Tensor d = sum_of(stream, {{alpha, c.values.back()}, {-alpha, update.base}});
      out.answers.push_back(sum_of(stream, {{1, c.values.front()}, {-1, d}}));
      centre.push_back({1, d});
    }
    out.next = sum_of(stream, centre);
    return out;
  }

 private:
  double alpha_;
};

}  // namespace

std::unique_ptr<Step> elastic_step(const RuleContext& context) {
  return std::make_unique<Elastic>(context);
}

}  // namespace troupe
