// The parts that rules are made of, one file a family, and the arithmetic that they share. Private
// to runtime/schemes.
#pragma once

#include "kernels/combine.hpp"
#include "messages/proto.hpp"
#include "runtime/schemes/optimizers/optimizer_step.hpp"
#include "runtime/schemes/rules/rule.hpp"

#include <memory>
#include <string>
#include <vector>

namespace troupe {

// -- arithmetic (arithmetic.cpp) --------------------------------------------------------------------

Tensor zeros(Stream& stream, std::int64_t elements);

/// The sum of any number of terms, at least one, in their order.
Tensor sum_of(Stream& stream, const std::vector<Term>& terms);

/// Where the successor of `x` goes: x's own buffer where `x` is its last handle (CPU), else a new one.
Tensor successor(Stream& stream, const Tensor& x);

/// The base of `update` plus all terms, at most kTermsMax - 1; their tensors may be those of its contributions.
Updated moved(Stream& stream, Update update, std::vector<Term> by);

/// The one push of an update. ContractError where there are several: the Step that asks has state for
/// one gradient at a time.
const Contribution& only(const Update& update);

/// values[0] times factor, with weight decay on the master weights in it.
Term decayed_gradient(Stream& stream, const Contribution& push, const Tensor& base, double decay);

/// By mini-batches: a contribution weighs as much as it stands for; otherwise all the same.
enum class Mean : std::uint8_t { plain, by_mini_batches };

/// The mean of the contributions' shares of the rate.
double mean_share(const Update& update, Mean mean);

/// The mean of values[which] times factor over the contributions, each weighing its share of the rate
/// more. Times mean_share() it is the mean of all that the contributions are worth.
Term mean_of(Stream& stream, const Update& update, Mean mean, std::size_t which = 0);

SliceLayout layout_of(const RuleContext& context);

/// How Decoupled DiLoCo makes one movement of several (decoupled_diloco.cpp).
struct MovementMerge {
  double rows = 1;                        // of a mini-batch
  std::vector<RuleContext::Part> radial;  // merged by norm and direction; of the rest the mean
};

Term merged_movement(Stream& stream, const Update& update, const MovementMerge& merge);

/// The values of optimizer.rule that a step with a momentum of its own may take the place of.
inline std::vector<std::string> momentum_optimizers() {
  return {"sgd", "momentum", "nesterov"};
}

// -- admissions --------------------------------------------------------------------------------------

/// Each push makes an update when it comes.
std::unique_ptr<Admission> as_they_come();
std::unique_ptr<Admission> waves(std::int64_t wave, std::int64_t distance);
/// The replicas in turn.
std::unique_ptr<Admission> cyclic();
/// An update of all living replicas but `backup`; what was computed at older weights is dropped.
std::unique_ptr<Admission> all_together(std::int64_t backup);
std::unique_ptr<Admission> quorum(const proto::QuorumDiloco& options);
/// Of a fragment that replicas send without ever waiting.
std::unique_ptr<Admission> decoupled_quorum(const proto::Diloco& options);

// -- scales ------------------------------------------------------------------------------------------

std::unique_ptr<Scale> delay_compensation(const RuleContext& context, const proto::DcAsgd& options);

// -- steps -------------------------------------------------------------------------------------------

/// The experiment's optimizer on the mean.
std::unique_ptr<Step> optimizer_step(const RuleContext& context, Mean mean);
/// Adagrad, whatever optimizer.rule is.
std::unique_ptr<Step> adagrad_step(const RuleContext& context);
/// One velocity; the point that `sent` reaches is what replicas get.
std::unique_ptr<Step> momentum_step(const RuleContext& context, Reach sent);
std::unique_ptr<Step> multi_step(const RuleContext& context);
/// w minus all changes.
std::unique_ptr<Step> subtracting_step();
std::unique_ptr<Step> averaging_step();
std::unique_ptr<Step> bmuf_step(const RuleContext& context);
std::unique_ptr<Step> elastic_step(const RuleContext& context);
std::unique_ptr<Step> outer_step(const RuleContext& context);
/// A movement at a time, momentum with every `delay`-th.
std::unique_ptr<Step> delayed_nesterov_step(double rate, double momentum, std::int64_t delay);

namespace rule_schemes {

/// The rules that come with Troupe, as runtime/CMakeLists.txt lists them: each has a function of its name
/// here, which stands beside the part that is new.
std::vector<RuleScheme> built_in();

}  // namespace rule_schemes

}  // namespace troupe
