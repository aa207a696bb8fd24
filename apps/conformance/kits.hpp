// What each kind of scheme is held to, on built-in data in virtual time.
#pragma once

#include "apps/conformance/conformance.hpp"
#include "apps/conformance/trial.hpp"
#include "runtime/model/registry.hpp"
#include "runtime/schemes/codecs/codec.hpp"
#include "runtime/schemes/decoupled/decoupled.hpp"
#include "runtime/schemes/exchanges/exchange.hpp"
#include "runtime/schemes/optimizers/optimizer_scheme.hpp"
#include "runtime/schemes/policies/policy.hpp"
#include "runtime/schemes/schedules/schedule_scheme.hpp"
#include "runtime/system/extension.hpp"

#include <exception>
#include <vector>

namespace troupe::conformance {

/// Of a rule that is there, in this order:
///   identity  one replica trains; whether that is one of the plain optimizers, or how far from the
///             nearest
///   accounts  of replicas of different speeds: every gradient applied, dropped or in flight, none
///             applied twice, the version one more at each update; whether the law of lags holds
///             (with those in flight, so far, they add up to updates x (R - 1) where nobody waits and
///             nothing is dropped)
///   bound     the largest staleness applied, one replica ten times slower; held to `bound`, if any
///   crash     one or two replicas die at different moments: the run ends as it should all the same
///   replay    two equal runs: equal orders of messages, equal weights
///   resume    from each of its checkpoints a run ends as it does in one piece
/// Error (usage) where its options are wrong.
Result<std::vector<Finding>> check_rule_conformance(const ConformanceOptions& options);

/// Of a schedule, in this order:
///   order     of many numbers of stages and micro-batches: each action once and in order, nothing
///             can stall
///   finish    runs of few and of many mini-batches come to their end
///   delay     how many updates early the forwards are; held to ConformanceOptions::bound, if any
///   versions  in runs whose times vary, forwards read the versions that the sequence says
///   identity  without delay it trains what one stage trains
///   replay    two equal runs: equal orders of messages, equal weights
/// Error (usage) where its options are wrong.
Result<std::vector<Finding>> check_schedule_conformance(const ScheduleScheme& scheme,
                                                        const ConformanceOptions& options);

/// Of a weight policy, in this order:
///   views      of many schedules, stages and micro-batches: every view is of a step that its shard
///              keeps, and every prediction has been announced
///   facts      what it says of itself (newest_only, predicts, displacement) is what it reads
///   staleness  the oldest step that a forward reads, predictions not counted; held to
///              ConformanceOptions::bound, if any
///   identity   whether on one stage it trains what `latest` trains
///   replay     two equal runs: equal orders of messages, equal weights
/// Error (usage) where its options are wrong, or it goes with no schedule.
Result<std::vector<Finding>> check_policy_conformance(const PolicyScheme& scheme,
                                                      const ConformanceOptions& options);

/// Of an exchange, in this order:
///   identity  one replica trains; whether that is one of the plain optimizers, or how far from the
///             nearest; nothing where it has peers, which one replica has not
///   accounts  of replicas of different speeds: no mini-batch is applied twice, none is left out, and
///             those applied add up to the updates and the samples that the run tells of
///   crash     one or two replicas die at different moments: the run ends as it should all the same,
///             or, where the exchange needs all of them, at once and with the cause
///   replay    two equal runs: equal orders of messages, equal weights
///   resume    from each of its checkpoints a run ends as it does in one piece
/// Error (usage) where its options are wrong.
Result<std::vector<Finding>> check_exchange_conformance(const ExchangeScheme& scheme,
                                                        const ConformanceOptions& options);

/// Of a codec, in this order:
///   messages   of many sizes: each is understood, and the same of the same numbers
///   strangers  messages that were changed or cut: some are refused
///   replay     two equal runs: equal orders of messages, equal weights
///   resume     from each of its checkpoints a run ends as it does in one piece
/// Error (usage) where its options are wrong, or it codes nothing.
Result<std::vector<Finding>> check_codec_conformance(const CodecScheme& scheme,
                                                     const ConformanceOptions& options);

/// Of an optimizer, in this order; the first three of one that is a function:
///   padding   where weights, gradient and moments are 0 they stay so
///   in place  the same where the new weights take the place of the old ones
///   pieces    the same weights wherever a slice is cut
///   replay    two equal runs: equal orders of messages, equal weights
///   resume    from each of its checkpoints a run ends as it does in one piece
/// Error (usage) where its options are wrong.
Result<std::vector<Finding>> check_optimizer_conformance(const OptimizerScheme& scheme,
                                                         const ConformanceOptions& options);

/// Of a layer, in this order:
///   pure      two equal forwards: equal outputs
///   gradient  by its input and each parameter as differences say
///   adds      its gradients are added to those of earlier micro-batches where it is asked to
/// Error (usage) where its options are wrong, or it fits none of the kit's shapes.
Result<std::vector<Finding>> check_layer_conformance(const LayerScheme& scheme,
                                                     const ConformanceOptions& options);

/// Of a decoupled scheme, in this order; the first two where a module makes its error signal itself:
///   pure    the same signal of the same inputs, also of a module that was made again
///   rows    a row's error does not depend on where it stands in its micro-batch
///   replay  two equal runs: equal orders of messages, equal weights
///   resume  from each of its checkpoints a run ends as it does in one piece
/// Error (usage) where its options are wrong.
Result<std::vector<Finding>> check_decoupled_conformance(const DecoupledScheme& scheme,
                                                         const ConformanceOptions& options);

/// Of an extension, in this order:
///   listens  whether it leaves the weights alone
///   replay   two equal runs: equal orders of messages, equal weights
///   resume   from each of its checkpoints a run ends as it does in one piece
/// Error (usage) where its options are wrong.
Result<std::vector<Finding>> check_extension_conformance(const ExtensionScheme& scheme,
                                                         const ConformanceOptions& options);

/// "optimizer.rule=adam", or "optimizer.custom.name=..." of a registered one.
inline std::string optimizer_assignment(const OptimizerScheme& scheme) {
  return concat("optimizer.",
                optimizer_schemes().built_in(scheme) ? "rule=" : "custom.name=",
                scheme.info.name);
}

/// What `check` finds; where it throws, that is what is broken.
template <class Check>
Finding caught(const char* name, Check&& check) {
  try {
    return check();
  } catch (const std::exception& thrown) {
    return {name, false, thrown.what()};
  }
}

/// The promise "replay" of two runs of one experiment.
Finding equal_runs(const RunResult& first, const RunResult& second);

/// The same of the two that `run` makes.
template <class Run>
Finding two_equal(Run&& run) {
  const Trial first = run();
  const Trial second = run();
  return first.trouble.empty() ? equal_runs(first.result, second.result)
                               : Finding{"replay", false, first.trouble};
}

/// That `found`, which `what` is a sentence about, is no more than ConformanceOptions::bound, if any.
Finding within(const ConformanceOptions& options,
               const char* check,
               std::int64_t found,
               const std::string& what);

}  // namespace troupe::conformance
