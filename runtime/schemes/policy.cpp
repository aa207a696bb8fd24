#include "runtime/schemes/policy.hpp"

#include "messages/experiment.hpp"
#include "runtime/schemes/optimizer_scheme.hpp"

#include <algorithm>

namespace troupe {

const std::vector<WeightScheme>& weight_schemes() {
  static const std::vector<WeightScheme> table{
      {"latest",
       ViewKind::latest,
       "the newest weights, whenever: forward and backward of a mini-batch may differ",
       "forward W[b-d], backward W[b]",
       "d in the forward, 0 in the backward",
       "1",
       "Chen, Eversole, Li, Yu & Seide, Interspeech 2012"},
      {"stash",
       ViewKind::stash,
       "the backward uses the weights of its forward: a true gradient, delayed by d",
       "forward and backward W[b-d]",
       "d",
       "K-k",
       "PipeDream: Narayanan et al., SOSP 2019"},
      {"vertical_sync",
       ViewKind::uniform,
       "every stage uses the version that the first stage used: SGD delayed by K-1",
       "forward and backward W[b-(K-1)]",
       "K-1 on every stage",
       "K",
       "PipeDream: Harlap et al. 2018, arXiv:1806.03377"},
      {"double_buffered",
       ViewKind::uniform,
       "gradients of M >= K micro-batches are accumulated, so that two versions are enough",
       "forward and backward W[b-1]",
       "1 on every stage",
       "2",
       "PipeDream-2BW: Narayanan et al., ICML 2021, arXiv:2006.09503"},
      {"accumulate",
       ViewKind::latest,
       "the newest weights; M micro-batches an update bound the drift (at M=1 it is latest)",
       "forward W[b-ceil(max(0,d-j)/M)], backward W[b]",
       "ceil(max(0,d-j)/M)",
       "1",
       "PACI 2026, arXiv:2606.07881"},
      {"spectrain",
       ViewKind::spectrain,
       "forward at weights predicted d updates ahead along the velocity, W - d eta v, kept for the "
       "backward",
       "forward and backward W[b-d] + d steps",
       "0 where the prediction holds",
       "1 + (K-k) predictions",
       "SpecTrain, consistent form: Chen, Yang & Cheng 2018, arXiv:1809.02839 (horizon counted in "
       "updates)"},
      {"spectrain_paper",
       ViewKind::spectrain_paper,
       "the paper's horizons, counted in its time units: s = floor(k/2)+K-k-1 forward, floor(k/2) "
       "backward, predicted twice",
       "forward W[b-d] + (d+floor(k/2)) steps, backward W[b] + floor(k/2) steps",
       "looks floor(k/2) updates beyond the mini-batch's own",
       "1 + 1 or 2 predictions",
       "SpecTrain: Chen, Yang & Cheng 2018, arXiv:1809.02839"},
      {"nwpt",
       ViewKind::nwpt,
       "one momentum step ahead, W - eta gamma v, on every stage: Nesterov's look-ahead, whatever "
       "the delay",
       "forward and backward W[b-d] + 1 fading step",
       "about d-1",
       "1 + (K-k) predictions",
       "Rao & Shyamala, Novel Weight Prediction Technique"},
      {"geometric",
       ViewKind::geometric,
       "d steps ahead, the velocity fading: W - eta S_d v, S_d = gamma + ... + gamma^d",
       "forward and backward W[b-d] + d fading steps",
       "0 where later gradients are small",
       "1 + (K-k) predictions",
       "msnag of FTPipe: Eliad et al., ATC 2021"},
      {"spike_compensation",
       ViewKind::stash,
       "no prediction: the step gives a late gradient the weight it would have had by now, W -= "
       "eta (a v + b g)",
       "forward and backward W[b-d]",
       "d; the same forward weights as geometric with momentum",
       "K-k",
       "Kosson et al., MLSys 2021, arXiv:2003.11666"},
      {"xpipe",
       ViewKind::xpipe,
       "the first micro-batch of a mini-batch predicts, its siblings read the same weights; "
       "backward at the newest",
       "forward W[s] + (b-s) steps, s the first micro-batch's step; backward W[b]",
       "0 where the prediction holds",
       "2 at M = 1, up to 4 for several micro-batches: two steps, each with a prediction",
       "XPipe: Guan et al. 2019, arXiv:1911.04610"},
      {"pipeoptim",
       ViewKind::pipeoptim,
       "forward at weights predicted d updates ahead by the optimizer's own direction; backward at "
       "the newest",
       "forward W[b-d] + d steps, backward W[b]",
       "0 where the prediction holds, 0 in the backward",
       "1 + 1 prediction",
       "PipeOptim: Guan et al. 2023, arXiv:2312.00839"},
      {"pipemare",
       ViewKind::pipemare,
       "T1: rate / delay^p; T2: backward at old weights reconstructed as W - d delta; T3: "
       "synchronous epochs first",
       "forward W[b-d], backward W[b] - d steps of the smoothed displacement",
       "d",
       "2, and delta",
       "PipeMare: Yang et al., MLSys 2021, arXiv:1910.05124"},
      {"nesterov",
       ViewKind::stash,
       "stash with NAdam, whose (1 - mu) factor discounts the late gradient",
       "forward and backward W[b-d]",
       "d",
       "K-k",
       "AsyncPP: Ajanthan et al., ICML 2025, arXiv:2505.01099"},
  };
  return table;
}

const WeightScheme& weight_scheme(std::string_view name) {
  const auto& all = weight_schemes();
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const auto& s) { return s.name == name; });
  TROUPE_CHECK(found != all.end(), "no weight policy '", name, "'");
  return *found;
}

ViewKind view_of(const proto::WeightPolicy& weights) {
  // Without T2 there is no displacement to go back along.
  return weights.has_pipemare() && !weights.pipemare().correct()
             ? ViewKind::latest
             : weight_scheme(choice_name(weights)).view;
}

Result<void> check_policy(const proto::Experiment& experiment, const Schedule& schedule) {
  const std::string name = choice_name(experiment.pipeline().weights());
  const OptimizerScheme& optimizer = optimizer_scheme(experiment.optimizer());
  const auto refuse = [](const std::string& why) {
    return Error{ErrorKind::usage, why};
  };
  if (name == "double_buffered" && schedule.options.micro_batches < schedule.options.stages) {
    return refuse(concat(
        "pipeline.weights: double_buffered needs pipeline.micro_batches >= pipeline.stages (",
        schedule.options.stages,
        "), so that one older version is enough; it is ",
        schedule.options.micro_batches));
  }
  if (name == "double_buffered" && schedule.delay_max > 1) {
    return refuse(
        concat("pipeline.weights: double_buffered has room for a delay of 1; with ",
               schedule.options.name,
               " at pipeline.micro_batches ",
               schedule.options.micro_batches,
               " it is ",
               schedule.delay_max,
               ": raise pipeline.micro_batches",
               schedule.options.name == "async_one_f_one_b" ? "" : " or use async_one_f_one_b"));
  }
  if (name == "vertical_sync" && !schedule.flushed && schedule.options.micro_batches != 1) {
    return refuse(
        concat("pipeline.weights: vertical_sync is defined for one micro-batch a mini-batch; "
               "pipeline.micro_batches is ",
               schedule.options.micro_batches,
               " (double_buffered is its form for several)"));
  }
  if ((name == "geometric" || name == "nwpt" || name == "spike_compensation") &&
      !optimizer.heavy_ball) {
    return refuse(
        concat("pipeline.weights: ",
               name,
               " follows the velocity of optimizer.rule momentum; it is ",
               optimizer.info.name,
               name == "spike_compensation"
                   ? ""
                   : " (spectrain, pipeoptim and xpipe predict along any rule's direction)"));
  }
  if (name == "nesterov" && !optimizer.discounts_gradient) {
    return refuse(
        concat("pipeline.weights: nesterov is stash with a discounted NAdam: set optimizer.rule to "
               "nadam or "
               "nadamw (it is ",
               optimizer.info.name,
               "); `--set pipeline.weights=nesterov` does so where no rule has been chosen"));
  }
  if (experiment.pipeline().activations() == proto::Pipeline::overwrite && name != "latest") {
    return refuse(concat(
        "pipeline.activations: overwrite is a control for pipeline.weights latest; it is ", name));
  }
  return {};
}

}  // namespace troupe
